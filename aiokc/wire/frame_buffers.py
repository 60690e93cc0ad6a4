"""The buffers of long frames, used again: fresh memory costs a page fault for every 4 KiB that is received into it."""

from __future__ import annotations

from typing import Final

# A frame gets no buffer that is larger than this many times its length: all of it counts as long as the frame is kept.
_LARGER: Final = 2


class FrameBuffers:
    """Buffers that were given back, at most ``most_spare`` bytes of them.

    Whoever keeps count of a frame gives its buffer back when he is done; views of it may still be left then, and as
    long as there are, nobody else gets it.
    """

    def __init__(self, most_spare: int = 0) -> None:
        #: What the buffers occupy that wait for another frame.
        self.spare_bytes = 0
        self._most_spare = most_spare
        self._spare: list[bytearray] = []

    def take(self, length: int) -> bytearray:
        """Return a buffer for a frame: a spare one of about its length, or an empty one. Nobody else looks at it."""
        fitting = [buffer for buffer in self._spare if len(buffer) <= _LARGER * length]
        for buffer in sorted(fitting, key=lambda buffer: abs(len(buffer) - length)):
            self._forget(buffer)
            if _is_free(buffer):
                return buffer
        return bytearray()

    def give_back(self, buffer: object) -> None:
        """The frame in this buffer is not counted any more. What is no buffer of a long frame is left alone."""
        if not isinstance(buffer, bytearray) or len(buffer) > self._most_spare:
            return
        if any(buffer is spare for spare in self._spare):
            return  # the frame was kept twice, one part of it after the other
        self._spare.append(buffer)
        self.spare_bytes += len(buffer)
        while self.spare_bytes > self._most_spare:
            self._forget(self._spare[0])

    def _forget(self, buffer: bytearray) -> None:
        self._spare = [spare for spare in self._spare if spare is not buffer]
        self.spare_bytes -= len(buffer)


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of it is left: only then may it change its length."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
