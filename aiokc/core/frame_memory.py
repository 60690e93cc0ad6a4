"""What fetched batches keep in memory: whole frames, as long as one batch of them is unread, and what is decoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..records import AbortedTransactions, BatchHeader

# A frame of which no more than this share is unread is given up for copies of that: one partition that nobody reads
# must not keep the 50 MB that came for all the others.
_WORTH_KEEPING: Final = 0.25

_EMPTY: Final = memoryview(b"")


@dataclass(slots=True, eq=False)
class Unread:
    """A batch that has arrived and is not open yet. ``view`` is empty once it is, or was dropped."""

    header: BatchHeader
    view: memoryview
    aborted: AbortedTransactions | None
    frame: Frame | None = None


@dataclass(slots=True, eq=False)
class Frame:
    """The bytes of one response, and which batches of it are unread."""

    key: int
    size: int
    left: int = 0
    unread: dict[Unread, None] = field(default_factory=dict)


class FrameMemory:
    """Counts ``bytes``: frames, copies, and what was decompressed."""

    def __init__(self) -> None:
        self.bytes = 0
        self._frames: dict[int, Frame] = {}

    def hold(self, unread: Unread) -> None:
        """A batch is kept, and the frame that it is a part of with it."""
        owner = unread.view.obj
        frame = self._frames.get(id(owner))
        if frame is None:
            size = memoryview(owner).nbytes
            frame = self._frames[id(owner)] = Frame(id(owner), size)
            self.bytes += size
        frame.unread[unread] = None
        frame.left += len(unread.view)
        unread.frame = frame

    def release(self, unread: Unread) -> None:
        """A batch is open, or dropped: its bytes are not needed any more."""
        frame, size = unread.frame, len(unread.view)
        unread.view, unread.frame = _EMPTY, None
        if frame is None:
            return
        del frame.unread[unread]
        frame.left -= size
        if not frame.unread:
            self.bytes -= frame.size
            del self._frames[frame.key]
        elif frame.left <= frame.size * _WORTH_KEEPING:
            self._give_up(frame)

    def _give_up(self, frame: Frame) -> None:
        del self._frames[frame.key]
        self.bytes -= frame.size
        for unread in frame.unread:
            unread.view = memoryview(bytes(unread.view))
            self.hold(unread)
