"""What was fetched of one partition and not handed out: batches as they came, decoded only as far as somebody asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import DeserializationFailed, KafkaError, RecordError
from ..records import AbortedTransactions, ColumnBuilder, RecordReader, append, append_run, open_measured
from ..types import ConsumerRecord, RawRecord, TopicPartition
from .arrived_batches import split_arrived, take_apart
from .frame_memory import FrameMemory, Run, Unread


@dataclass(slots=True)
class Fetched:
    """One partition's part of a Fetch response, asked from ``offset`` by the claim that ``token`` names."""

    tp: TopicPartition
    token: int
    offset: int
    records: memoryview
    aborted: Sequence[tuple[int, int]] | None = None
    error: KafkaError | None = None
    broker: int = -1


#: A batch that is open: its reader, and how many bytes that keeps.
Opened: TypeAlias = tuple[RecordReader, int]


@dataclass(slots=True)
class Limits:
    """How batches are opened. ``check_crcs`` and ``max_decompressed_bytes`` are the consumer's options."""

    check_crcs: bool = True
    max_decompressed_bytes: int = 128 << 20


class PartitionBuffer:
    """The batches of one claim on a partition, in order: each begins where the one before it ended.

    An error keeps its place in that order: what lies before it is handed out first.

    In memory are batches as they came until they are opened, and those that are open or decoded, decompressed, until
    the last of their records was taken. So what was decoded, as records or into columns, and not taken can be read
    again (``rewind``). Plain batches side by side are kept as runs, which ``append`` makes columns of as they are; who
    wants records of them gets them batch by batch.

    Where records are deserialized, ``typed`` are the first of ``ready`` once more, with the user's keys and values, and
    ``refused`` says why the one behind those is not among them.
    """

    __slots__ = (
        "_decoded",
        "_limits",
        "_memory",
        "_passed",
        "_reader",
        "_senders",
        "_unread",
        "end",
        "epoch",
        "error",
        "next",
        "next_epoch",
        "ready",
        "refused",
        "taken",
        "taken_epoch",
        "token",
        "tp",
        "typed",
    )

    def __init__(
        self,
        tp: TopicPartition,
        token: int,
        offset: int,
        limits: Limits,
        memory: FrameMemory | None = None,
        epoch: int | None = None,
    ) -> None:
        self.tp = tp
        self.token = token
        self.end = offset  # the next offset to fetch
        self.epoch = epoch  # the leader epoch of the last record before that
        self.next = offset  # the position once all of ``ready`` is handed out
        self.next_epoch = epoch  # the leader epoch of the last record, or marker, before that
        self.taken = offset  # the position behind what was taken
        self.taken_epoch = epoch  # and the leader epoch of the last record before that
        self.ready: list[RawRecord] = []
        self.typed: list[ConsumerRecord[Any, Any]] = []
        self.refused: DeserializationFailed | None = None
        self.error: KafkaError | None = None
        self._unread: deque[Unread | Run] = deque()
        self._passed: list[Unread | Run] = []  # batches that are read to their end, and of which not all was taken
        self._reader: RecordReader | None = None  # of the first unread one
        self._senders: list[tuple[int, int]] = []  # from which offset on which broker has sent it
        self._limits = limits
        self._memory = memory or FrameMemory()
        self._decoded = 0  # bytes of the batches that are open, or passed

    def drop(self) -> None:
        """Keep nothing any more. What a thread, or a call that gave way, still does to it counts for nobody."""
        self._clear()
        self._memory = FrameMemory()

    def _clear(self) -> None:
        for unread in self._unread:
            self._memory.release(unread)
        self._unread.clear()
        self._reader = None
        self._forget_passed()

    def _forget_passed(self) -> None:
        """All that was decoded is taken: only the batch in hand is still needed."""
        first = self._unread[0] if self._unread else None
        for passed in self._passed:
            if isinstance(passed, Run):
                self._memory.release(passed)
        if isinstance(first, Run) and first.at:
            self._memory.release(self._memory.cut(first, first.at))
        self._passed.clear()
        kept = first.size if isinstance(first, Unread) and self._reader is not None else 0
        self._memory.bytes -= self._decoded - kept
        self._decoded = kept

    def add(self, fetched: Fetched) -> None:
        """Append what arrived. An answer for another offset than the end of what is here is stale and dropped."""
        if fetched.offset != self.end or self.error is not None:
            return
        if fetched.error is not None:
            self.error = fetched.error
            return
        self._remember_sender(fetched)
        aborted = None
        if fetched.aborted:
            aborted = AbortedTransactions(fetched.aborted, check_crcs=self._limits.check_crcs)
        try:
            for unread, next_offset, epoch in split_arrived(fetched.records, self.end, aborted):
                self._unread.append(unread)
                self._memory.hold(unread)
                self.end, self.epoch = next_offset, epoch
        except RecordError as error:
            self.error = self._located(error)
            return
        if self.end == fetched.offset and len(fetched.records) > 0:
            self.error = self._located(
                RecordError("the broker sent bytes without one complete record batch; nothing can be read past here")
            )

    @property
    def undecoded(self) -> bool:
        return self._reader is not None or bool(self._unread)

    @property
    def empty(self) -> bool:
        return not self.ready and not self.undecoded and self.error is None

    @property
    def at_error(self) -> bool:
        """Whether the error is what comes next: nothing is left before it."""
        return self.error is not None and not self.ready and not self.undecoded

    @property
    def at_run(self) -> bool:
        """Whether the next records are those of a run: ``append`` needs no batch to be opened."""
        return bool(self._unread) and isinstance(self._unread[0], Run)

    def unopened(self) -> Unread | None:
        """The batch to open before the next record can be decoded; None where one is open, or none is left."""
        if self._reader is not None or not self._unread:
            return None
        first = self._unread[0]
        if isinstance(first, Run):
            self._take_apart(first)
            first = self._first_batch
        return first

    @property
    def _first_batch(self) -> Unread:
        first = self._unread[0]
        assert isinstance(first, Unread)
        return first

    def _take_apart(self, run: Run) -> None:
        """Have the next batches of the run by themselves, before what is left of it."""
        if run.at:
            self._passed.append(self._memory.cut(run, run.at))
        batches, rest = take_apart(run)
        for batch in batches:
            self._memory.hold(batch)
        if rest is not None:
            self._memory.hold(rest)
        self._memory.release(run)
        self._unread.popleft()
        if rest is not None:
            self._unread.appendleft(rest)
        self._unread.extendleft(reversed(batches))

    def open(self, unread: Unread) -> Opened | None:
        """Check and decompress the next batch; None where nobody must see it (an aborted transaction).

        Changes nothing here, so a thread may do it. Raises RecordError.
        """
        header, view = unread.header, unread.view
        if unread.hidden or (unread.aborted is not None and unread.aborted.skips(header, view)):
            return None
        return open_measured(
            header,
            view,
            topic=self.tp.topic,
            partition=self.tp.partition,
            check_crcs=self._limits.check_crcs,
            max_decompressed_bytes=self._limits.max_decompressed_bytes,
        )

    def opened(self, unread: Unread, opened: Opened | None) -> None:
        """Go on with the reader, unless the batch was dropped while it was being opened."""
        if not self._unread or self._unread[0] is not unread:
            return
        self._reader, unread.size = opened or (None, 0)
        unread.reader, unread.hidden = self._reader, self._reader is None
        self._memory.release(unread)
        self._memory.bytes += unread.size
        self._decoded += unread.size
        if self._reader is None or self._reader.remaining == 0:
            self._close_batch()

    def failed_with(self, error: RecordError) -> None:
        """The next batch can't be read: the error takes its place, and what follows it is dropped."""
        self.error = self._located(error)
        if self._reader is not None:
            self._passed.append(self._unread.popleft())  # records before the error may have to be read again
        for unread in self._unread:
            self._memory.release(unread)
        self._unread.clear()
        self._reader = None

    def decode(self, count: int) -> None:
        """Move up to ``count`` more records to ``ready``, from the batch in hand or, with none open, the next one."""
        try:
            unread = self.unopened()
            if unread is not None:
                self.opened(unread, self.open(unread))
            if self._reader is not None:
                self._read(count)
        except RecordError as error:
            self.failed_with(error)

    def _read(self, count: int) -> None:
        reader = self._reader
        assert reader is not None
        taken = reader.take(count, self.next)
        if self.ready:
            self.ready += taken
        else:
            self.ready = taken
        if self.ready:
            self.next = max(self.next, self.ready[-1].offset + 1)
            self.next_epoch = self._first_batch.header.leader_epoch
        if reader.remaining == 0:
            self._close_batch()

    def append(self, builder: ColumnBuilder, rows: int, size: int, until: int) -> int:
        """Append up to ``rows`` records before offset ``until``, from a run or one batch; return how many.

        It stops once all rows of the builder count ``size``. ``next`` is ``until`` once there are no more before that.
        """
        first = self._unread[0] if self._unread else None
        if isinstance(first, Run):
            count, has_moved = self._append_run(first, builder, rows, size, until)
            if has_moved:
                return count
        try:
            unread = self.unopened()
            if unread is not None:
                self.opened(unread, self.open(unread))
            if self._reader is not None:
                return self._append(self._reader, builder, rows, size, until)
        except RecordError as error:
            self.failed_with(error)
        return 0

    def _append_run(self, run: Run, builder: ColumnBuilder, rows: int, size: int, until: int) -> tuple[int, bool]:
        """Append from the run; return how many, and False where its next batch is one to be read by itself."""
        count, at, end, epoch = append_run(
            builder,
            run.view,
            run.at,
            topic=self.tp.topic,
            partition=self.tp.partition,
            from_offset=self.next,
            until=until,
            rows=rows,
            size=size,
            check_crcs=self._limits.check_crcs,
        )
        has_moved, run.at = count > 0 or at > run.at, at
        self._memory.reads(run)
        if end > self.next:
            self.next, self.next_epoch = end, epoch
        if at == len(run.view):
            self._pass_first()
        return count, has_moved

    def _append(self, reader: RecordReader, builder: ColumnBuilder, rows: int, size: int, until: int) -> int:
        count = append(builder, reader, self.next, until, rows, size)
        if count:
            self.next = reader.next_offset
            self.next_epoch = self._first_batch.header.leader_epoch
        if reader.remaining == 0:
            self._close_batch()
        elif count == 0 and not builder.is_full:
            self.next = until
        return count

    def _close_batch(self) -> None:
        """The batch is read to its end: the position is behind it, whatever compaction left of its records."""
        unread = self._first_batch
        self._pass_first()
        self.next = max(self.next, unread.header.next_offset)
        self.next_epoch = unread.header.leader_epoch

    def _pass_first(self) -> None:
        self._passed.append(self._unread.popleft())
        self._go_on()

    def _go_on(self) -> None:
        """With the reader of the next batch, if it was opened before."""
        first = self._unread[0] if self._unread else None
        self._reader = first.reader if isinstance(first, Unread) else None

    def take(self, count: int) -> tuple[list[RawRecord], int]:
        """Return up to ``count`` decoded records, and the position after them; its epoch is ``taken_epoch`` then.

        Behind the last of them there may be offsets that hold no record, of a newer epoch: a marker of a transaction.
        """
        if count >= len(self.ready):
            taken, self.ready = self.ready, []
            return taken, self.take_appended()
        taken = self.ready[:count]
        del self.ready[:count]
        self.taken, self.taken_epoch = taken[-1].offset + 1, taken[-1].leader_epoch
        return taken, self.taken

    def take_typed(self, count: int) -> tuple[list[ConsumerRecord[Any, Any]], int]:
        """Do as ``take`` with what is deserialized. What is only decoded stays, and the position before it."""
        taken = self.typed if count >= len(self.typed) else self.typed[:count]
        if not taken and self.ready:
            return [], self.taken
        _, after = self.take(len(taken))
        self.typed = self.typed[len(taken) :]
        return taken, after

    def take_appended(self) -> int:
        """All that was decoded is handed out: return the position behind it; its epoch is ``taken_epoch`` then."""
        self._forget_passed()
        self.taken, self.taken_epoch = self.next, self.next_epoch
        return self.taken

    def rewind(self) -> None:
        """Read again, from where ``take`` ended, what was decoded and not taken."""
        for unread in reversed(self._passed):
            self._unread.appendleft(unread)
        for unread in self._unread:
            if isinstance(unread, Run):
                unread.at = 0
            elif unread.reader is not None:
                unread.reader.rewind()
            elif not unread.hidden:
                break
        self._passed.clear()
        self.ready, self.typed, self.refused = [], [], None
        self._go_on()
        self.next, self.next_epoch = self.taken, self.taken_epoch

    def _remember_sender(self, fetched: Fetched) -> None:
        if self._senders and self._senders[-1][1] == fetched.broker:
            return
        self._senders.append((fetched.offset, fetched.broker))
        while len(self._senders) > 1 and self._senders[1][0] <= self.taken:
            del self._senders[0]  # all that this one has sent is the user's by now

    def _located(self, error: RecordError) -> RecordError:
        """Say where, with the offset from which nothing more can be read, and who sent it."""
        if not error.topic:
            error.topic, error.partition, error.offset = self.tp.topic, self.tp.partition, self.next
        error.broker = next((broker for start, broker in reversed(self._senders) if start <= self.next), -1)
        return error
