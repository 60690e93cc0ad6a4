"""What one partition keeps in memory: batches to be read, and those that were read and of which not all was taken."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from ...records import NOT_BEGUN, BatchHeader, RecordReader
from .arrived_batches import take_apart
from .frame_memory import FrameMemory, Run, Unread

#: A batch that is open: its reader, and how many bytes that keeps.
Opened: TypeAlias = tuple[RecordReader, int]


class BatchQueue:
    """Batches and runs of them, in the order of their offsets: ``unread`` are those behind what was passed.

    Batches are kept as they came until they are opened, and then as they are decompressed, until the last of their
    records was taken; runs as they came. So what was not taken can be read again.
    """

    __slots__ = ("_decoded", "_memory", "_passed", "reader", "unread")

    def __init__(self, memory: FrameMemory) -> None:
        self.unread: deque[Unread | Run] = deque()
        self.reader: RecordReader | None = None  # of the first one, once it is open
        self._passed: list[Unread | Run] = []  # read to their end, and not all of it was taken
        self._memory = memory
        self._decoded = 0  # bytes of the batches that are open, or passed

    @property
    def first(self) -> Unread | Run | None:
        """What is to be read next, or read on."""
        return self.unread[0] if self.unread else None

    @property
    def header(self) -> BatchHeader:
        """That of the batch that is open."""
        first = self.unread[0]
        assert isinstance(first, Unread)
        return first.header

    @property
    def open_bytes(self) -> int:
        """What the first batch has in memory, if it is open."""
        first = self.unread[0]
        return first.size if isinstance(first, Unread) else 0

    def add(self, unread: Unread | Run) -> None:
        """It lies behind all others."""
        self.unread.append(unread)
        self._memory.hold(unread)

    def opened(self, unread: Unread, opened: Opened | None) -> None:
        """The first batch is open, or nobody must see it (None): its part of a frame is not needed any more."""
        self.reader, unread.size = opened or (None, 0)
        unread.reader, unread.hidden = self.reader, self.reader is None
        self._memory.free(unread)
        self._memory.bytes += unread.size
        self._decoded += unread.size

    def has_read(self, run: Run, at: int) -> None:
        """The first run was read up to the batch at byte ``at``."""
        run.at = at
        self._memory.reads(run)
        if at == len(run.view):
            self.pass_first()

    def pass_first(self) -> None:
        """It is read to its end: go on with the next one, whose reader is there if it was opened before."""
        self._passed.append(self.unread.popleft())
        self._find_reader()

    def _find_reader(self) -> None:
        first = self.first
        self.reader = first.reader if isinstance(first, Unread) else None

    def take_apart(self, run: Run) -> None:
        """Have the next batches of the first run by themselves, before what is left of it."""
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
        """All that was decoded is taken: only the batch in hand is still needed."""
        first = self.first
        for passed in self._passed:
            if isinstance(passed, Run):
                self._memory.free(passed)
        if isinstance(first, Run) and first.at:
            self._memory.trim(first)
        self._passed.clear()
        kept = self._open_bytes()
        self._memory.bytes -= self._decoded - kept
        self._decoded = kept

    def _open_bytes(self) -> int:
        """Of the batches that are to be read: several are open where some were read before, and then read again."""
        size = 0
        for unread in self.unread:
            if isinstance(unread, Run):
                continue
            if unread.reader is None and not unread.hidden:
                break
            size += unread.size
        return size

    def rewind(self) -> None:
        """What was read and not taken is unread again, from its beginning."""
        for passed in reversed(self._passed):
            self.unread.appendleft(passed)
        for unread in self.unread:
            if isinstance(unread, Run):
                unread.at, unread.inside = 0, NOT_BEGUN
            elif unread.reader is not None:
                unread.reader.rewind()
            elif not unread.hidden:
                break
        self._passed.clear()
        self._find_reader()

    def end_here(self) -> None:
        """The first one can't be read, or not further: drop it and what follows it, but for records that were read."""
        if self.reader is not None:
            self._passed.append(self.unread.popleft())
        self._drop_unread()

    def drop(self) -> None:
        """Keep nothing."""
        self._drop_unread()
        self.forget_passed()

    def _drop_unread(self) -> None:
        for unread in self.unread:
            self._memory.free(unread)
        self.unread.clear()
        self.reader = None
