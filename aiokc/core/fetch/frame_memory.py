"""Counts the memory of fetched batches: a frame is kept whole as long as one of its batches is unread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...records import NOT_BEGUN, AbortedTransactions, BatchHeader, Inside, RecordReader, RecordSpan, detach_held
from ...wire import FrameBuffers

# A frame is replaced by copies of its unread batches once no more than this share of it is unread and a frame has come
# since any of it was read: one paused partition must not keep the 50 MB that came for all others.
_WORTH_KEEPING: Final = 0.25

_EMPTY: Final = memoryview(b"")


@dataclass(slots=True, eq=False)
class Unread:
    """A batch that has arrived. ``view`` is empty once the batch was opened or dropped.

    An opened batch has a ``reader``, which keeps ``size`` bytes, or is ``hidden``: a batch of an aborted transaction,
    or a control batch. It ``is_large`` if an attempt to open it on the event loop has shown that.
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
    """Plain batches side by side (records/runs.py). They need no opening: they are decoded from ``view``.

    ``at`` is the byte at which the first batch begins that was not decoded to its end. ``inside`` is how far that batch
    was decoded to records. ``spans`` are records that were decoded and not taken, and refer to the frame.
    """

    view: memoryview
    aborted: AbortedTransactions | None
    frame: Frame | None = None
    at: int = 0
    inside: Inside = NOT_BEGUN
    spans: list[RecordSpan] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Frame:
    """The bytes of one response, and which of its batches and runs are unread.

    ``read_at`` is how many frames had come when a part of this one was last read. ``left`` is the bytes unread.
    ``lent`` says how often records of it were taken that are not settled.
    """

    owner: object
    size: int
    read_at: int
    left: int = 0
    lent: int = 0
    unread: dict[Unread | Run, None] = field(default_factory=dict)


class FrameMemory:
    """Counts in ``bytes`` the frames, copies of batches, and decompressed batches.

    It gives a frame back to ``buffers`` when nothing of the frame is unread, and all that was taken of it is settled.
    """

    def __init__(self, buffers: FrameBuffers | None = None) -> None:
        self.bytes = 0
        self.buffers = buffers or FrameBuffers()
        self._frames: dict[int, Frame] = {}
        self._came = 0
        self._lent: list[tuple[Frame, list[RecordSpan]]] = []

    def hold(self, unread: Unread | Run) -> None:
        """Keep the frame of this batch or run, until ``free`` is called for all of the frame's batches."""
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
        """Cut a run behind ``size`` bytes, where a batch ends; return the first part, as a run of its own."""
        first = Run(run.view[:size], run.aborted, at=min(run.at, size), spans=run.spans)
        run.view, run.at, run.spans = run.view[size:], max(run.at - size, 0), []
        if run.frame is not None:
            run.frame.left -= size
            self._put(first, run.frame)
        return first

    def reads(self, run: Run) -> None:
        """Note that some of a run was read, so that its frame is not replaced by copies."""
        if run.frame is not None:
            run.frame.read_at = self._came

    def trim(self, run: Run) -> None:
        """Cut off the part of a run that was read: it is not needed any more."""
        if run.frame is not None:
            run.frame.left -= run.at
        run.view, run.at = run.view[run.at :], 0

    def lend(self, run: Run) -> None:
        """The records of the run's spans were taken, or dropped. Keep its frame for them until ``settle``."""
        if run.spans and run.frame is not None:
            run.frame.lent += 1
            self._lent.append((run.frame, run.spans))
            run.spans = []

    def settle(self) -> bool:
        """Let go of the frames of all that was taken; return whether there were any.

        Records that are still in use keep copies of their bytes.
        """
        if not self._lent:
            return False
        lent, self._lent = self._lent, []
        for frame, spans in lent:
            detach_held(spans)
            frame.lent -= 1
            self._forget_if_done(frame)
        return True

    def free(self, unread: Unread | Run) -> None:
        """Let go of the bytes of a batch that was opened, or of a batch or run that is done or dropped."""
        if isinstance(unread, Run):
            self.lend(unread)
        frame, size = unread.frame, len(unread.view)
        unread.view, unread.frame = _EMPTY, None
        if frame is None:
            return
        del frame.unread[unread]
        frame.left -= size
        frame.read_at = self._came
        self._forget_if_done(frame)

    def _forget_if_done(self, frame: Frame) -> None:
        if not frame.unread and not frame.lent:
            self._forget(frame)

    def _forget(self, frame: Frame) -> None:
        self.bytes -= frame.size
        del self._frames[id(frame.owner)]
        self.buffers.give_back(frame.owner)

    def _look_at_oldest(self) -> None:
        """Replace the oldest frame by copies if it was not read lately and little of it is unread.

        A frame that has more left goes to the end, so that the next call looks at another one.
        """
        oldest = next(iter(self._frames.values()), None)
        if oldest is None or oldest.read_at == self._came:
            return
        if oldest.left > oldest.size * _WORTH_KEEPING:
            self._frames[id(oldest.owner)] = self._frames.pop(id(oldest.owner))
            return
        self.settle()
        if id(oldest.owner) not in self._frames:
            return
        self._forget(oldest)
        for unread in oldest.unread:
            if isinstance(unread, Run):
                detach_held(unread.spans)
            unread.view = memoryview(bytes(unread.view))
            self._put(unread, self._begin(unread.view))
