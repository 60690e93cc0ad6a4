"""Counts the memory of fetched batches: a frame is kept whole as long as one of its batches is unread."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ....records import (
    NOT_BEGUN,
    AbortedTransactions,
    BatchHeader,
    Inside,
    Place,
    RecordReader,
    RecordSpan,
    UnpackingAhead,
    detach_held,
)
from ....types import RawRecord
from ....wire import FrameBuffers
from .fetched_partition import Limits

# A frame is replaced by copies of its unread batches once no more than this share of it is unread and a frame has come
# since any of it was read: one paused partition must not keep the 50 MB that came for all others.
_WORTH_KEEPING: Final = 0.25

# So many bytes are kept to unpack batches to, in buffers that are no shorter than that: 300 kB as a rule.
_MOST_SPARE: Final = 1 << 20
_LEAST_SPARE: Final = 64 << 10

# A thread unpacks no more than that ahead: the next batches of thirty partitions or so.
_MOST_AHEAD: Final = 8 << 20

# Buffers to unpack to may keep this share of the budget, and what a thread has unpacked ahead as much again.
_SHARE_TO_UNPACK: Final = 1 / 16

# One call may decompress this share of the budget once that is used up: calls that hand out one small batch each would
# read slowly what fills the buffer.
_SHARE_OF_A_CALL: Final = 1 / 16

# So many bytes are copied in one step, and at most one span, batch or run more: some 0.6 ms for each MiB.
_COPIED_AT_ONCE: Final = 1 << 20

_EMPTY: Final = memoryview(b"")


@dataclass(slots=True, eq=False)
class Unread:
    """A batch that has arrived. ``view`` is empty once the batch was opened or dropped.

    An opened batch has a ``reader``, which keeps ``size`` bytes, or is ``hidden``: a batch of an aborted transaction,
    or a control batch. No record before the reader's ``place`` is wanted any more. It ``is_large`` if an attempt to
    open it on the event loop has shown that, or its header does. It ``is_checked`` if its CRC was checked, and its
    header is not the one that the CRC is of any more.
    """

    header: BatchHeader
    view: memoryview
    aborted: AbortedTransactions | None
    frame: Frame | None = None
    reader: RecordReader | None = None
    place: Place = (0, 0, 0)
    size: int = 0
    hidden: bool = False
    is_large: bool = False
    is_checked: bool = False


@dataclass(slots=True, eq=False)
class Run:
    """Plain batches side by side (records/runs.py). They need no opening: they are decoded from ``view``.

    ``at`` is the byte at which the first batch begins that was not decoded to its end. ``inside`` is how far that batch
    was decoded to records. It ``is_checked`` if it was unpacked: CRCs are checked before that. ``spans`` are records
    that were decoded and not taken, and refer to the frame.
    """

    view: memoryview
    aborted: AbortedTransactions | None
    frame: Frame | None = None
    at: int = 0
    inside: Inside = NOT_BEGUN
    is_checked: bool = False
    spans: tuple[RecordSpan, ...] = ()


@dataclass(slots=True, eq=False)
class PackedRun:
    """Compressed batches side by side (records/packed/packed_runs.py), from the first one on that was not unpacked."""

    view: memoryview
    aborted: AbortedTransactions | None
    frame: Frame | None = None


#: What a frame has, as long as it is not decoded.
Held: TypeAlias = Unread | Run | PackedRun


@dataclass(slots=True, eq=False)
class Frame:
    """The bytes of one response, and which of its batches and runs are unread. Its memory goes back to ``buffers``.

    ``read_at`` is how many frames had come when a part of this one was last read. ``left`` is the bytes unread.
    ``lent`` says how many spans of it were taken that are not settled. The buffer that a packed run was unpacked to
    is such a frame, too.
    """

    owner: object
    size: int
    read_at: int
    buffers: FrameBuffers | None
    left: int = 0
    lent: int = 0
    unread: dict[Held, None] = field(default_factory=dict)


class FrameMemory:
    """Counts in ``bytes`` the frames, copies of batches, and decompressed batches.

    It gives a frame back to ``buffers``, or to ``unpacking`` if it was taken there, when nothing of the frame is
    unread, and all that was taken of it is settled.
    """

    def __init__(self, buffers: FrameBuffers | None = None, *, budget: int = sys.maxsize) -> None:
        self.bytes = 0
        self._budget = budget
        self._most = budget + int(budget * _SHARE_OF_A_CALL)
        self.buffers = buffers or FrameBuffers()
        to_unpack = int(budget * _SHARE_TO_UNPACK)
        self.unpacking = FrameBuffers(min(_MOST_SPARE, to_unpack))
        self.ahead = UnpackingAhead(self.unpacking, min(_MOST_AHEAD, to_unpack))
        self._frames: dict[int, Frame] = {}
        self.came = 0  # frames, so far
        self._lent_spans: list[RecordSpan] = []  # that were taken, and are not settled
        self._lent: list[Frame] = []  # the frame of each of these
        self.settling_frees = False  # whether ``settle`` may free a frame: one of which nothing is unread
        self._replaced: Frame | None = None  # of which some is copied, and some is not

    @property
    def spare_bytes(self) -> int:
        """The bytes of the buffers that wait for another frame, or to be unpacked to, or that a thread unpacks to."""
        return self.buffers.spare_bytes + self.unpacking.spare_bytes + self.ahead.bytes

    @property
    def in_use(self) -> int:
        """All that counts: ``bytes`` and ``spare_bytes``."""
        return self.bytes + self.spare_bytes

    @property
    def room(self) -> int:
        """How many bytes may still come, within the budget."""
        return max(0, self._budget - self.in_use)

    @property
    def is_over_budget(self) -> bool:
        """Whether more is in use than the budget: then no batch is to be opened that can wait."""
        return self.in_use > self._budget

    @property
    def is_far_over_budget(self) -> bool:
        """Whether the budget is exceeded by what one call may decompress: one that has records has to end then."""
        return self.in_use > self._most

    def hold(self, unread: Held) -> None:
        """Keep the frame of this batch or run, until ``free`` is called for all of the frame's batches."""
        view = unread.view
        frame = self._frames.get(id(view.obj))
        if frame is None:
            if self._frames:
                self._look_at_oldest()
            self.came += 1
            frame = self._begin(view, self.buffers)
        frame.unread[unread] = None
        frame.left += len(view)
        unread.frame = frame

    def hold_unpacked(self, run: Run, packed: PackedRun, size: int) -> None:
        """Keep the buffer of ``run``. The first ``size`` bytes of ``packed`` were unpacked to it, and are forgotten."""
        is_long = len(run.view) >= _LEAST_SPARE
        self._put(run, self._begin(run.view, self.unpacking if is_long else None))
        self.cut_off(packed, size)

    def unpack_ahead(self, packed: PackedRun, limits: Limits) -> None:
        """Have a thread unpack the next batches of ``packed``, if there is memory for them."""
        limit, room = limits.max_decompressed_bytes, self.room
        self.ahead.begin(packed, packed.view, limit=limit, check_crcs=limits.check_crcs, room=room)

    def _begin(self, view: memoryview, buffers: FrameBuffers | None) -> Frame:
        frame = self._frames[id(view.obj)] = Frame(view.obj, memoryview(view.obj).nbytes, self.came, buffers)
        self.bytes += frame.size
        return frame

    def _put(self, unread: Held, frame: Frame) -> None:
        frame.unread[unread] = None
        frame.left += len(unread.view)
        unread.frame = frame

    def cut(self, run: Run, size: int) -> Run:
        """Cut a run behind ``size`` bytes, where a batch ends; return the first part, as a run of its own."""
        first = Run(run.view[:size], run.aborted, at=min(run.at, size), is_checked=run.is_checked, spans=run.spans)
        run.view, run.at, run.spans = run.view[size:], max(run.at - size, 0), ()
        if run.frame is not None:
            run.frame.left -= size
            self._put(first, run.frame)
        return first

    def trim(self, run: Run) -> None:
        """Cut off the part of a run that was read: it is not needed any more."""
        rest = run.view[run.at :]  # first: without memory for it nothing changes
        if run.frame is not None:
            run.frame.left -= run.at
        run.view, run.at = rest, 0

    def cut_off(self, packed: PackedRun, size: int) -> None:
        """Cut off the first ``size`` bytes of a packed run: they are unpacked, or held by themselves."""
        if size == len(packed.view):
            return self.free(packed)
        packed.view = packed.view[size:]
        if packed.frame is not None:
            packed.frame.left -= size
            packed.frame.read_at = self.came

    def lend(self, run: Run) -> None:
        """The records of the run's spans were taken, or dropped. Keep its frame for them until ``settle``."""
        if run.spans and run.frame is not None:
            run.frame.lent += len(run.spans)
            self._lent += [run.frame] * len(run.spans)
            self._lent_spans += run.spans
            run.spans = ()

    def lend_of(self, run: Run, records: RecordSpan | list[RawRecord], at: int) -> None:
        """These records, the only ones that were decoded, were taken. Do as ``trim`` and ``lend``, in one call.

        ``at`` is where the run's first batch begins that was not decoded to its end.
        """
        frame = run.frame
        if at:
            run.view, run.at = run.view[at:], 0
        if frame is None:
            return
        frame.left -= at
        frame.read_at = self.came  # so that it is not replaced by copies
        if not isinstance(records, list):
            frame.lent += 1
            self._lent.append(frame)
            self._lent_spans.append(records)

    @property
    def is_settled(self) -> bool:
        """Whether ``settle`` has nothing to do."""
        return not self._lent

    def settle(self) -> bool:
        """Let go of the frames of what was taken; return whether there was anything to do.

        Records that are still in use keep copies of their bytes. One call copies a MiB or two, which take a
        millisecond, and leaves the rest, in the order in which it was taken, to the next one (``is_settled``).
        """
        if not self._lent:
            return False
        done = detach_held(self._lent_spans, _COPIED_AT_ONCE)
        lent, self._lent = self._lent[:done], self._lent[done:]
        self.settling_frees = self.settling_frees and bool(self._lent)
        del self._lent_spans[:done]
        for frame in lent:
            frame.lent -= 1
            if not frame.lent and not frame.unread:
                self._forget(frame)
        return True

    def free(self, unread: Held) -> None:
        """Let go of the bytes of a batch that was opened, or of a batch or run that is done or dropped."""
        frame = unread.frame
        if type(unread) is PackedRun:
            self.ahead.cancel(unread)
        if frame is None:
            unread.view = _EMPTY
            return
        if type(unread) is Run and unread.spans:  # as ``lend`` does
            frame.lent += len(unread.spans)
            self._lent += [frame] * len(unread.spans)
            self._lent_spans += unread.spans
            unread.spans = ()
        del frame.unread[unread]
        frame.left -= len(unread.view)
        frame.read_at = self.came
        unread.view, unread.frame = _EMPTY, None
        if frame.unread:
            return
        if frame.lent:
            self.settling_frees = True
        else:
            self._forget(frame)

    def _forget(self, frame: Frame) -> None:
        self.bytes -= frame.size
        del self._frames[id(frame.owner)]
        if frame.buffers is not None:
            frame.buffers.give_back(frame.owner)

    def _look_at_oldest(self) -> None:
        """Replace the oldest frame by copies if it was not read lately and little of it is unread.

        A frame that has more left goes to the end, so that the next call looks at another one.
        """
        oldest = next(iter(self._frames.values()), None)
        if self._replaced is not None or oldest is None or oldest.read_at == self.came:
            return
        if oldest.left > oldest.size * _WORTH_KEEPING:
            self._frames[id(oldest.owner)] = self._frames.pop(id(oldest.owner))
            return
        with suppress(MemoryError):  # the next call of the application settles it, or raises
            self.settle()
        if oldest.lent or self._frames.get(id(oldest.owner)) is not oldest:
            return  # if it is still lent, the next frame that comes is another step
        self._replaced = oldest
        self.replace()

    @property
    def is_replacing(self) -> bool:
        """Whether ``replace`` has something to do: ``hold`` has made the first step."""
        return self._replaced is not None

    def replace(self) -> None:
        """Copy some more of the frame that is being replaced by copies. It counts until all of it is copied.

        If there is no memory for a copy, the frame stays for what is left of it: copies would only have saved some.
        """
        frame, copied = self._replaced, 0
        if frame is None:
            return
        try:
            while frame.unread and copied < _COPIED_AT_ONCE:
                copied += self._copy(next(iter(frame.unread)), frame)
        except MemoryError:
            self._replaced = None  # the next frame that comes tries it again
            return
        if frame.unread:
            return
        self._replaced = None
        if frame.lent:
            self.settling_frees = True
        elif self._frames.get(id(frame.owner)) is frame:  # else others have forgotten it
            self._forget(frame)

    def _copy(self, unread: Held, frame: Frame) -> int:
        """Replace what ``frame`` has of a batch or run by a copy; return how many bytes were copied.

        Nothing is taken out of the frame before there is memory for all of the copy.
        """
        size = copied = len(unread.view)
        if isinstance(unread, Run):
            for span in unread.spans:
                span.detach()
                copied += span.size
        elif isinstance(unread, PackedRun):
            self.ahead.cancel(unread)  # it refers to the frame
        view = memoryview(bytes(unread.view))
        copy = self._begin(view, self.buffers)
        del frame.unread[unread]
        frame.left -= size
        unread.view = view
        self._put(unread, copy)
        return copied
