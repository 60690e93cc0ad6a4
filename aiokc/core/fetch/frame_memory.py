"""What fetched batches keep in memory: whole frames, as long as one batch of them is unread, and what is decoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...records import NOT_BEGUN, AbortedTransactions, BatchHeader, Inside, RecordReader
from ...wire import FrameBuffers

# A frame of which no more than this share is unread, and nothing was read while another frame came, is given up for
# copies of that: one partition that nobody reads must not keep the 50 MB that came for all the others.
_WORTH_KEEPING: Final = 0.25

_EMPTY: Final = memoryview(b"")


@dataclass(slots=True, eq=False)
class Unread:
    """A batch that has arrived. ``view`` is empty once it is open, or was dropped.

    Open, it has a ``reader``, which keeps ``size`` bytes; or it is ``hidden``: part of an aborted transaction. It
    ``is_large`` where an attempt to open it at once has shown that.
    """

    header: BatchHeader
    view: memoryview
    aborted: AbortedTransactions | None
    frame: Frame | None = None
    reader: RecordReader | None = None
    size: int = 0
    hidden: bool = False
    is_large: bool = False


@dataclass(slots=True, eq=False)
class Run:
    """Plain batches side by side (records/runs.py). They need no opening: ``view`` is what they are read from.

    ``at`` is where the first of them begins that was not read, or only in part; ``inside`` says to where, if records
    were made of it.
    """

    view: memoryview
    aborted: AbortedTransactions | None
    frame: Frame | None = None
    at: int = 0
    inside: Inside = NOT_BEGUN


@dataclass(slots=True, eq=False)
class Frame:
    """The bytes of one response, which batches of it are unread, and how many frames had come when one was read."""

    owner: object
    size: int
    read_at: int
    left: int = 0
    unread: dict[Unread | Run, None] = field(default_factory=dict)


class FrameMemory:
    """Counts ``bytes``: frames, copies, and what was decompressed.

    Gives the ``buffers`` of frames back when nothing of them is unread.
    """

    def __init__(self, buffers: FrameBuffers | None = None) -> None:
        self.bytes = 0
        self.buffers = buffers or FrameBuffers()
        self._frames: dict[int, Frame] = {}
        self._came = 0

    def hold(self, unread: Unread | Run) -> None:
        """A batch is kept, or a run of them, and the frame that it is a part of with it."""
        view = unread.view
        frame = self._frames.get(id(view.obj))
        if frame is None:
            self._look_at_oldest()
            self._came += 1
            frame = self._begin(view)
        self._put(unread, frame)

    def _begin(self, view: memoryview) -> Frame:
        frame = self._frames[id(view.obj)] = Frame(view.obj, memoryview(view.obj).nbytes, self._came)
        self.bytes += frame.size
        return frame

    def _put(self, unread: Unread | Run, frame: Frame) -> None:
        frame.unread[unread] = None
        frame.left += len(unread.view)
        unread.frame = frame

    def cut(self, run: Run, size: int) -> Run:
        """The first bytes of a run, which batches of it end with, become a run of their own."""
        first = Run(run.view[:size], run.aborted, at=min(run.at, size))
        run.view, run.at = run.view[size:], max(run.at - size, 0)
        if run.frame is not None:
            run.frame.left -= size
            self._put(first, run.frame)
        return first

    def reads(self, run: Run) -> None:
        """Some of a run was read: its frame does not stand still."""
        if run.frame is not None:
            run.frame.read_at = self._came

    def trim(self, run: Run) -> None:
        """What was read of a run is not needed any more."""
        if run.frame is not None:
            run.frame.left -= run.at
        run.view, run.at = run.view[run.at :], 0

    def free(self, unread: Unread | Run) -> None:
        """A batch is open, or dropped, or a run is: its bytes are not needed any more."""
        frame, size = unread.frame, len(unread.view)
        unread.view, unread.frame = _EMPTY, None
        if frame is None:
            return
        del frame.unread[unread]
        frame.left -= size
        frame.read_at = self._came
        if not frame.unread:
            self._forget(frame)

    def _forget(self, frame: Frame) -> None:
        self.bytes -= frame.size
        del self._frames[id(frame.owner)]
        self.buffers.give_back(frame.owner)

    def _look_at_oldest(self) -> None:
        """Give it up if it stands still and little of it is left; let the next frame look at the next one else."""
        oldest = next(iter(self._frames.values()), None)
        if oldest is None or oldest.read_at == self._came:
            return
        if oldest.left > oldest.size * _WORTH_KEEPING:
            self._frames[id(oldest.owner)] = self._frames.pop(id(oldest.owner))
            return
        self._forget(oldest)
        for unread in oldest.unread:
            unread.view = memoryview(bytes(unread.view))
            self._put(unread, self._begin(unread.view))
