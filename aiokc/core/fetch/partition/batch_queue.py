"""The queue of one partition's batches: those still to decode, and those decoded whose records were not all taken."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TypeAlias

from ....native import untrack
from ....records import NOT_BEGUN, UNPACKED_AT_ONCE, BatchHeader, RecordReader, RecordSpan, room_to_unpack, unpack_run
from ....types import RawRecord
from .arrived_batches import first_of, take_apart
from .fetched_partition import Limits
from .frame_memory import FrameMemory, Held, PackedRun, Run, Unread

#: The reader of an open batch, and how many bytes that reader keeps in memory.
Opened: TypeAlias = tuple[RecordReader, int]


class BatchQueue:
    """Batches and runs in the order of their offsets. ``unread`` begins with the one to decode next.

    A batch is kept as it came until it is opened, and decompressed from then on until its last record was taken. A run
    is kept as it came. A packed run is unpacked from its beginning on, into one run after the other. So everything that
    was not taken can be decoded again (``rewind``).
    """

    __slots__ = ("_decoded", "_memory", "_passed", "reader", "unread")

    def __init__(self, memory: FrameMemory) -> None:
        self.unread: deque[Held] = deque()
        self.reader: RecordReader | None = None  # of the first batch in ``unread``, once it is open
        self._passed: list[Held] | tuple[()] = ()  # decoded to their end, and not all of their records were taken
        self._memory = memory
        self._decoded = 0  # decompressed bytes of the batches that are open or passed
        # Each buffered partition has both. Neither can be in a cycle: nothing that they refer to refers back to them.
        untrack((self, self.unread))

    @property
    def first(self) -> Held | None:
        """The batch or run to decode next; some of it may be decoded already."""
        return self.unread[0] if self.unread else None

    @property
    def header(self) -> BatchHeader:
        """The header of the open batch."""
        first = self.unread[0]
        assert isinstance(first, Unread)
        return first.header

    @property
    def open_bytes(self) -> int:
        """The bytes that the first batch keeps decompressed; 0 unless it is open."""
        first = self.unread[0]
        return first.size if isinstance(first, Unread) else 0

    def add(self, unread: Held) -> None:
        """Append a batch or run, which lies behind all others."""
        self.unread.append(unread)
        self._memory.hold(unread)

    def opened(self, unread: Unread, opened: Opened | None) -> None:
        """Note that a batch is open, or hidden (``opened`` is None), and free its part of the frame.

        It is the first one, or those before it were decoded and put back. Changes nothing if it raises MemoryError.
        """
        if opened is None:
            unread.hidden = True
        else:
            reader, size = opened
            unread.place = reader.mark()
            unread.reader, unread.size = reader, size
        self._find_reader()
        self._memory.free(unread)
        self._memory.bytes += unread.size
        self._decoded += unread.size

    def note_read(self, run: Run, at: int) -> None:
        """Note that the first run was decoded up to the batch at byte ``at``."""
        run.at = at
        if run.frame is not None:
            run.frame.read_at = self._memory.came  # so that it is not replaced by copies
        if at == len(run.view):
            self._pass(self.unread.popleft())
            if self.unread:
                self._find_reader()

    def take_last(self, run: Run, records: RecordSpan | list[RawRecord]) -> None:
        """Go on behind the first run: its last records, the only ones that were decoded, were taken."""
        if not isinstance(records, list):
            run.spans = (records,)
        self.pass_first()
        self.forget_passed()

    def pass_first(self) -> None:
        """Go on behind the first batch or run. The next batch has a reader already if it was open before a rewind."""
        unread = self.unread
        self._pass(unread.popleft())
        if unread or self.reader is not None:
            self._find_reader()

    def _pass(self, held: Held) -> None:
        # Most queues have no list: a partition of few records passes one run, and takes all of that (``take_last``).
        if self._passed:
            self._passed.append(held)
        else:
            self._passed = [held]

    def _find_reader(self) -> None:
        first = self.unread[0] if self.unread else None
        self.reader = first.reader if isinstance(first, Unread) else None

    def unpack(self, packed: PackedRun, limits: Limits) -> Run | Unread:
        """Put what the next batches of the first packed run are unpacked to before it; return that.

        It is the first batch by itself if that can't be unpacked, or is so large that a thread has to do it.
        """
        buffer, taken = self._memory.ahead.end(packed)
        is_large = False
        if not taken:
            buffer, taken, is_large = self._unpacked(packed, limits)
        first: Run | Unread
        if taken:
            first = Run(memoryview(buffer), packed.aborted, is_checked=True)
            self._memory.hold_unpacked(first, packed, taken)
        else:
            first = first_of(packed, is_large=is_large)
            self._memory.hold(first)
            self._memory.cut_off(packed, len(first.view))
        if not packed.view:
            self.unread.popleft()
        try:
            self.unpack_ahead(limits)
        finally:
            self.unread.appendleft(first)  # it is cut off from the packed run: nothing else has these records
        return first

    def unpack_ahead(self, limits: Limits) -> None:
        """Have a thread unpack the next batches, if they are packed, and it may."""
        first = self.unread[0] if self.unread and limits.unpacks_ahead else None
        if isinstance(first, PackedRun):
            self._memory.unpack_ahead(first, limits)

    def _unpacked(self, packed: PackedRun, limits: Limits) -> tuple[bytearray, int, bool]:
        """Unpack the next batches here; return the run, how many bytes they have, and whether the first is_large.

        Without room in memory that is one batch.
        """
        limit, at_once = limits.max_decompressed_bytes, min(UNPACKED_AT_ONCE, self._memory.room)
        room, is_large = room_to_unpack(packed.view, limit=limit, at_once=at_once)
        if not room:
            return bytearray(), 0, is_large
        buffer = self._memory.unpacking.take(room)
        taken = unpack_run(packed.view, buffer, limit=limit, at_once=at_once, check_crcs=limits.check_crcs)
        return buffer, taken, is_large

    def take_apart(self, run: Run) -> None:
        """Replace the first run by its next batches, one by one, and what is left of it."""
        if run.at:
            self._pass(self._memory.cut(run, run.at))
        batches, rest = take_apart(run)
        for batch in batches:
            self._memory.hold(batch)
        if rest is not None:
            self._memory.hold(rest)
        self._memory.free(run)
        self.unread.popleft()
        if rest is not None:
            self.unread.appendleft(rest)
        self.unread.extendleft(reversed(batches))

    def forget_passed(self) -> None:
        """Free what was decoded to its end, because all decoded records were taken. The open batch stays."""
        first = self.unread[0] if self.unread else None
        if type(first) is Run:
            self._memory.lend(first)  # if there is no memory, all stays as it was
        with suppress(MemoryError):  # a rewind goes further back, then, and skips what was taken
            if type(first) is Run and first.at:
                self._memory.trim(first)
            elif type(first) is Unread and first.reader is not None:
                first.place = first.reader.mark()
        for passed in self._passed:
            if type(passed) is Run:
                self._memory.free(passed)
        self._passed = ()
        if self._decoded:
            kept = self._open_bytes()
            self._memory.bytes -= self._decoded - kept
            self._decoded = kept

    def _open_bytes(self) -> int:
        """The decompressed bytes of the batches in ``unread``. After a rewind, several of them may be open."""
        size = 0
        for unread in self.unread:
            if isinstance(unread, Run):
                continue
            if isinstance(unread, PackedRun) or (unread.reader is None and not unread.hidden):
                break
            size += unread.size
        return size

    def rewind(self) -> None:
        """Put back each batch and run that was decoded and not all taken: it is decoded again from its start.

        An open batch is decoded again from where all was taken that was decoded: to skip what lies before that may take
        long where its records are many.
        """
        for passed in reversed(self._passed):
            self.unread.appendleft(passed)
        for unread in self.unread:
            if isinstance(unread, Run):
                unread.at, unread.inside, unread.spans = 0, NOT_BEGUN, ()
            elif isinstance(unread, PackedRun):
                break
            elif unread.reader is not None:
                unread.reader.go_back(unread.place)
            elif not unread.hidden:
                break
        self._passed = ()
        self._find_reader()

    def end_here(self) -> None:
        """Drop the first batch, which can't be read (any further), and all behind it. Decoded records stay."""
        if self.reader is not None:
            self._pass(self.unread.popleft())
        self._drop_unread()

    def drop(self) -> None:
        """Drop everything."""
        self._drop_unread()
        self.forget_passed()

    def _drop_unread(self) -> None:
        for unread in self.unread:
            self._memory.free(unread)
        self.unread.clear()
        self.reader = None
