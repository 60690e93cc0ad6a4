"""The queue of one partition's batches: those still to decode, and those decoded whose records were not all taken."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from ...records import NOT_BEGUN, BatchHeader, RecordReader
from .arrived_batches import take_apart
from .frame_memory import FrameMemory, Run, Unread

#: The reader of an open batch, and how many bytes that reader keeps in memory.
Opened: TypeAlias = tuple[RecordReader, int]


class BatchQueue:
    """Batches and runs in the order of their offsets. ``unread`` begins with the one to decode next.

    A batch is kept as it came until it is opened, and decompressed from then on until its last record was taken. A run
    is kept as it came. So everything that was not taken can be decoded again (``rewind``).
    """

    __slots__ = ("_decoded", "_memory", "_passed", "reader", "unread")

    def __init__(self, memory: FrameMemory) -> None:
        self.unread: deque[Unread | Run] = deque()
        self.reader: RecordReader | None = None  # of the first batch in ``unread``, once it is open
        self._passed: list[Unread | Run] = []  # decoded to their end, and not all of their records were taken
        self._memory = memory
        self._decoded = 0  # decompressed bytes of the batches that are open or passed

    @property
    def first(self) -> Unread | Run | None:
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

    def add(self, unread: Unread | Run) -> None:
        """Append a batch or run, which lies behind all others."""
        self.unread.append(unread)
        self._memory.hold(unread)

    def opened(self, unread: Unread, opened: Opened | None) -> None:
        """Note that the first batch is open, or hidden (``opened`` is None), and free its part of the frame."""
        self.reader, unread.size = opened or (None, 0)
        unread.reader, unread.hidden = self.reader, self.reader is None
        self._memory.free(unread)
        self._memory.bytes += unread.size
        self._decoded += unread.size

    def has_read(self, run: Run, at: int) -> None:
        """Note that the first run was decoded up to the batch at byte ``at``."""
        run.at = at
        self._memory.reads(run)
        if at == len(run.view):
            self.pass_first()

    def pass_first(self) -> None:
        """Go on behind the first batch or run. The next batch has a reader already if it was open before a rewind."""
        self._passed.append(self.unread.popleft())
        self._find_reader()

    def _find_reader(self) -> None:
        first = self.first
        self.reader = first.reader if isinstance(first, Unread) else None

    def take_apart(self, run: Run) -> None:
        """Replace the first run by its next batches, one by one, and what is left of it."""
        if run.at:
            self._passed.append(self._memory.cut(run, run.at))
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
        first = self.first
        for passed in self._passed:
            if isinstance(passed, Run):
                self._memory.free(passed)
        if isinstance(first, Run):
            self._memory.lend(first)
            if first.at:
                self._memory.trim(first)
        self._passed.clear()
        kept = self._open_bytes()
        self._memory.bytes -= self._decoded - kept
        self._decoded = kept

    def _open_bytes(self) -> int:
        """The decompressed bytes of the batches in ``unread``. After a rewind, several of them may be open."""
        size = 0
        for unread in self.unread:
            if isinstance(unread, Run):
                continue
            if unread.reader is None and not unread.hidden:
                break
            size += unread.size
        return size

    def rewind(self) -> None:
        """Put back each batch and run that was decoded and not all taken: it is decoded again from its start."""
        for passed in reversed(self._passed):
            self.unread.appendleft(passed)
        for unread in self.unread:
            if isinstance(unread, Run):
                unread.at, unread.inside, unread.spans = 0, NOT_BEGUN, []
            elif unread.reader is not None:
                unread.reader.rewind()
            elif not unread.hidden:
                break
        self._passed.clear()
        self._find_reader()

    def end_here(self) -> None:
        """Drop the first batch, which can't be read (any further), and all behind it. Decoded records stay."""
        if self.reader is not None:
            self._passed.append(self.unread.popleft())
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
