"""Counts the memory of fetched batches: a frame is kept whole as long as one of its batches is unread."""

from __future__ import annotations

from collections.abc import Iterable
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
    was decoded to records.
    """

    view: memoryview
    aborted: AbortedTransactions | None
    frame: Frame | None = None
    at: int = 0
    inside: Inside = NOT_BEGUN


@dataclass(slots=True, eq=False)
class Frame:
    """The bytes of one response, and which of its batches and runs are unread.

    ``read_at`` is how many frames had come when a part of this one was last read. ``left`` is the bytes unread.
    ``spans`` is how many spans of records refer to it.
    """

    owner: object
    size: int
    read_at: int
    left: int = 0
    spans: int = 0
    unread: dict[Unread | Run, None] = field(default_factory=dict)


class FrameMemory:
    """Counts in ``bytes`` the frames, copies of batches, and decompressed batches.

    It gives a frame back to ``buffers`` when nothing of the frame is unread, and no span refers to it.
    """

    def __init__(self, buffers: FrameBuffers | None = None) -> None:
        self.bytes = 0
        self.buffers = buffers or FrameBuffers()
        self._frames: dict[int, Frame] = {}
        self._came = 0
        self._spans: dict[RecordSpan, Frame] = {}
        self._done: list[RecordSpan] = []  # of them, those that ``settle`` lets go

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
        first = Run(run.view[:size], run.aborted, at=min(run.at, size))
        run.view, run.at = run.view[size:], max(run.at - size, 0)
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

    def free(self, unread: Unread | Run) -> None:
        """Let go of the bytes of a batch that was opened, or of a batch or run that is done or dropped."""
        frame, size = unread.frame, len(unread.view)
        unread.view, unread.frame = _EMPTY, None
        if frame is None:
            return
        del frame.unread[unread]
        frame.left -= size
        frame.read_at = self._came
        self._forget_if_done(frame)

    def refers(self, span: RecordSpan, run: Run) -> None:
        """Keep the frame of ``run`` for the span of its records, until ``settle`` after ``is_done``."""
        if run.frame is not None:
            self._spans[span] = run.frame
            run.frame.spans += 1

    def is_done(self, spans: Iterable[RecordSpan]) -> None:
        """The records of these spans were handed out, or dropped. They may still be read until ``settle``."""
        self._done += spans

    def settle(self) -> bool:
        """Let go of the frames of spans that are done; return whether there were any.

        Those that are still in use keep copies of their records.
        """
        if not self._done:
            return False
        done, self._done = self._done, []
        for span in done:
            frame = self._spans.pop(span, None)
            if frame is not None:
                frame.spans -= 1
                self._forget_if_done(frame)
        del span  # else it would be in use
        detach_held(done)
        return True

    def _forget_if_done(self, frame: Frame) -> None:
        if not frame.unread and not frame.spans:
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
        self._forget(oldest)
        for span in [span for span, frame in self._spans.items() if frame is oldest]:
            del self._spans[span]
            span.detach()
        for unread in oldest.unread:
            unread.view = memoryview(bytes(unread.view))
            self._put(unread, self._begin(unread.view))
