"""FrameParts: a frame in pieces, where long record batches stay in the buffers that they are in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

#: A frame as it is written to a socket: one piece after the other.
Parts: TypeAlias = Sequence[bytes | bytearray | memoryview]

#: Shorter content is copied: a piece of its own costs more.
_LEAST: Final = 4096


class FrameParts(bytearray):
    """What a message is written into. It has the bytes behind the last piece; ``finish`` returns all of the frame."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes | bytearray | memoryview] = []

    def splice(self, content: memoryview) -> None:
        """Put ``content`` here without a copy. It may not change until the frame is sent."""
        if len(content) < _LEAST:
            self.extend(content)
            return
        self._parts += bytearray(self), content
        self.clear()

    def finish(self) -> Parts:
        return [*self._parts, bytearray(self)] if self or not self._parts else self._parts


def splice(out: bytearray, content: memoryview) -> None:
    """Append record batches to a message: without a copy, where its frame is written in pieces."""
    if isinstance(out, FrameParts):
        out.splice(content)
    else:
        out += content
