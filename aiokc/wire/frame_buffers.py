"""Reuse of the buffers of long frames: fresh memory costs a page fault for every 4 KiB that is received into it."""

from __future__ import annotations

from typing import Final

# A frame gets no buffer larger than this many times its length: the whole buffer stays in memory with the frame.
_LARGER: Final = 2


class FrameBuffers:
    """Spare buffers that were given back, at most ``most_spare`` bytes of them.

    The code that accounts for a frame gives its buffer back when it is done with it. Views of the buffer may still
    exist then; as long as they do, ``take`` does not hand it out.
    """

    def __init__(self, most_spare: int = 0) -> None:
        #: The bytes of the buffers that wait for another frame.
        self.spare_bytes = 0
        self._most_spare = most_spare
        self._spare: list[bytearray] = []

    def take(self, length: int) -> bytearray:
        """Return a buffer for a frame: a spare one of about its length, or an empty one. No view of it exists."""
        fitting = [buffer for buffer in self._spare if len(buffer) <= _LARGER * length]
        for buffer in sorted(fitting, key=lambda buffer: abs(len(buffer) - length)):
            self._forget(buffer)
            if _is_free(buffer):
                return buffer
        return bytearray()

    def give_back(self, buffer: object) -> None:
        """Take back the buffer of a frame that no longer counts. Ignores anything but the buffer of a long frame."""
        if not isinstance(buffer, bytearray) or not 0 < len(buffer) <= self._most_spare:
            return
        if any(buffer is spare for spare in self._spare):
            return  # two parts of the frame were kept, and each gave its buffer back
        self._spare.append(buffer)
        self.spare_bytes += len(buffer)
        while self.spare_bytes > self._most_spare:
            self._forget(self._spare[0])

    def _forget(self, buffer: bytearray) -> None:
        self._spare = [spare for spare in self._spare if spare is not buffer]
        self.spare_bytes -= len(buffer)


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of ``buffer`` is left: only then can its length change."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
