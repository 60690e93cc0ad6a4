"""What was fetched of one partition and not handed out: batches as they came, decoded only as far as somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from ...errors import DeserializationFailed, KafkaError, RecordError, RecordTooLarge
from ...records import (
    NOT_BEGUN,
    AbortedTransactions,
    BatchHeader,
    ColumnBuilder,
    RecordReader,
    append,
    append_run,
    open_measured,
    take_run,
)
from ...types import ConsumerRecord, RawRecord, TopicPartition
from .arrived_batches import Arrived, split_arrived
from .batch_queue import BatchQueue, Opened
from .fetched_partition import FetchedPartition, Limits
from .frame_memory import FrameMemory, Run, Unread

# Of a batch that is decompressed where it holds the event loop: some 2 ms, with the slowest codec.
_AT_ONCE_BYTES: Final = 512 << 10
# A step makes no more of them, or one record: the memory of what is copied is new, at 1 ms for 1 MB and worse.
_STEP_BYTES: Final = 1 << 20

# To look at so many batches by themselves, each of which may be one record, takes less than a millisecond.
_ADDED_AT_ONCE: Final = 64


class PartitionBuffer:
    """The batches of one claim on a partition, in order: each begins where the one before it ended.

    An error keeps its place in that order: what lies before it is handed out first.

    What was decoded, as records or into columns, and not taken can be read again (``rewind``). Plain batches side by
    side are read as they are; only one of them that can't be read is opened by itself, to say why.

    Where records are deserialized, ``typed`` are the first of ``ready`` once more, with the user's keys and values, and
    ``refused`` says why the one behind those is not among them.
    """

    __slots__ = (
        "_arriving",
        "_kept",
        "_limits",
        "_senders",
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
        self._senders: list[tuple[int, int]] = []  # from which offset on which broker has sent it
        self._limits = limits
        self._arriving: Iterator[Arrived] | None = None  # what of an answer is not added yet
        self._kept = BatchQueue(memory or FrameMemory())

    def drop(self) -> None:
        """Keep nothing any more. What a thread, or a call that gave way, still does to it counts for nobody."""
        self._arriving = None
        self._kept.drop()
        self._kept = BatchQueue(FrameMemory())

    def add(self, fetched: FetchedPartition) -> None:
        """Append what arrived, all of it."""
        self.begin(fetched)
        while self.is_arriving:
            self.add_more()

    def begin(self, fetched: FetchedPartition) -> None:
        """Append the first batches of what arrived, and by ``add_more`` the others, while it ``is_arriving``.

        An answer for another offset than the end of what is here is stale and dropped.
        """
        if fetched.offset != self.end or self.error is not None or self.is_arriving:
            return
        if fetched.error is not None:
            self.error = fetched.error
            return
        self._remember_sender(fetched)
        aborted = None
        if fetched.aborted:
            aborted = AbortedTransactions(fetched.aborted, check_crcs=self._limits.check_crcs)
        self._arriving = split_arrived(fetched.records, self.end, aborted)
        self.add_more()
        self._refuse_nothing(fetched)

    def _refuse_nothing(self, fetched: FetchedPartition) -> None:
        """Bytes of which no batch was appended are an error: nothing can be read past them."""
        if self.error is None and self.end == fetched.offset and len(fetched.records) > 0:
            self.error = self._located(
                RecordError("the broker sent bytes without one complete record batch; nothing can be read past here")
            )

    @property
    def is_arriving(self) -> bool:
        """Whether there is more of an answer to add."""
        return self._arriving is not None

    def add_more(self) -> None:
        """Append some more batches of what arrived. They are what is buffered: ``end`` is behind the last of them."""
        arriving = self._arriving
        if arriving is None or self.error is not None:  # what was added first can't be read: nothing is added behind it
            return self.leave_rest()
        try:
            added = 0
            for unread, next_offset, epoch in islice(arriving, _ADDED_AT_ONCE):
                self._kept.add(unread)
                self.end, self.epoch = next_offset, epoch
                added += 1
        except RecordError as error:
            self._arriving, self.error = None, self._located(error)
            return
        if added < _ADDED_AT_ONCE:
            self._arriving = None

    def leave_rest(self) -> None:
        """Add no more of what arrived: it is fetched again, from ``end`` on."""
        self._arriving = None

    @property
    def is_open(self) -> bool:
        """Whether something of it is in memory twice: decompressed, or decoded."""
        return bool(self.ready) or self._kept.reader is not None

    @property
    def undecoded(self) -> bool:
        return bool(self._kept.unread)

    @property
    def empty(self) -> bool:
        return not self.ready and not self.undecoded and self.error is None and self._arriving is None

    @property
    def at_error(self) -> bool:
        """Whether the error is what comes next: nothing is left before it."""
        return self.error is not None and not self.ready and not self.undecoded

    def unopened(self) -> Unread | None:
        """The batch to open before the next record is decoded; None at a run, or where one is open, or none is left."""
        first = self._kept.first
        return first if isinstance(first, Unread) and self._kept.reader is None else None

    def open(self, unread: Unread) -> Opened | None:
        """Check and decompress the next batch; None where nobody must see it (an aborted transaction).

        Changes nothing here, so a thread may do it. Raises RecordError.
        """
        return self._open(unread, self._limits.max_decompressed_bytes)

    def _open(self, unread: Unread, most: int) -> Opened | None:
        header, view = unread.header, unread.view
        if unread.hidden or (unread.aborted is not None and unread.aborted.skips(header, view)):
            return None
        return open_measured(
            header,
            view,
            topic=self.tp.topic,
            partition=self.tp.partition,
            check_crcs=self._limits.check_crcs,
            max_decompressed_bytes=most,
        )

    def opened(self, unread: Unread, opened: Opened | None) -> None:
        """Go on with the reader, unless the batch was dropped while it was being opened."""
        if self._kept.first is not unread:
            return
        self._kept.opened(unread, opened)
        if opened is None or opened[0].remaining == 0:
            self._close_batch(unread.header)

    def failed_with(self, error: RecordError) -> None:
        """The next batch can't be read: the error takes its place, and what follows it is dropped."""
        self.error = self._located(error)
        self._kept.end_here()

    def decode(self, count: int) -> None:
        """Move up to ``count`` more records to ``ready``, from the batch in hand or, with none open, the next one."""
        first = self._kept.first
        if isinstance(first, Run) and self._take_of_run(first, count):
            return
        try:
            reader = self._open_first()
            if reader is not None:
                self._read(reader, count)
        except RecordError as error:
            self.failed_with(error)

    def _open_first(self) -> RecordReader | None:
        """Return the reader of the next batch, or None: there is none, or nobody must see it. Raises RecordError."""
        if isinstance(self._kept.first, Run):
            self._kept.take_apart(self._kept.first)
        unread = self.unopened()
        if unread is not None:
            self._open_at_once(unread)
        return self._kept.reader

    def _open_at_once(self, unread: Unread) -> None:
        """Open a batch that may be larger than it looks: then give up, until somebody asks for it again.

        A thread can ask first (``open``). Nothing else says beforehand what a few kB of compressed zeros become.
        """
        most = self._limits.max_decompressed_bytes
        if not unread.is_large:
            most = min(most, _AT_ONCE_BYTES)
        try:
            self.opened(unread, self._open(unread, most))
        except RecordTooLarge:
            if unread.is_large or most == self._limits.max_decompressed_bytes:
                raise
            unread.is_large = True

    def _take_of_run(self, run: Run, count: int) -> bool:
        """Decode from the run; return False where its next batch is one to be read by itself."""
        taken, at, run.inside, after, epoch = take_run(
            run.view,
            run.at,
            run.inside,
            topic=self.tp.topic,
            partition=self.tp.partition,
            from_offset=self.next,
            count=count,
            check_crcs=self._limits.check_crcs,
        )
        has_moved = bool(taken) or at > run.at
        self._have_ready(taken)
        self._has_read(run, at, after, epoch)
        return has_moved

    def _have_ready(self, records: list[RawRecord]) -> None:
        """They are behind those that are ready already; as a rule there are none, and nothing is copied."""
        if self.ready:
            self.ready += records
        else:
            self.ready = records

    def _has_read(self, run: Run, at: int, after: int, epoch: int | None) -> None:
        """A run was read up to the batch at byte ``at``, and to offset ``after``."""
        self._kept.has_read(run, at)
        if after > self.next:
            self.next, self.next_epoch = after, epoch

    def _read(self, reader: RecordReader, count: int) -> None:
        header = self._kept.header
        average = self._kept.open_bytes // max(1, header.record_count)
        self._have_ready(reader.take(min(count, max(1, _STEP_BYTES // max(1, average))), self.next))
        if self.ready:
            self.next = max(self.next, self.ready[-1].offset + 1)
            self.next_epoch = header.leader_epoch
        if reader.remaining == 0:
            self._close_batch(header)

    def append(self, builder: ColumnBuilder, rows: int, size: int, until: int) -> int:
        """Append up to ``rows`` records before offset ``until``, from a run or one batch; return how many.

        It stops once all rows of the builder count ``size``. ``next`` is ``until`` once there are no more before that.
        """
        first = self._kept.first
        if isinstance(first, Run):
            count, has_moved = self._append_run(first, builder, rows, size, until)
            if has_moved:
                return count
        try:
            reader = self._open_first()
            if reader is not None:
                return self._append(reader, builder, rows, size, until)
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
        has_moved, run.inside = count > 0 or at > run.at, NOT_BEGUN
        self._has_read(run, at, end, epoch)
        return count, has_moved

    def _append(self, reader: RecordReader, builder: ColumnBuilder, rows: int, size: int, until: int) -> int:
        count = append(builder, reader, self.next, until, rows, size)
        header = self._kept.header
        if count:
            self.next = reader.next_offset
            self.next_epoch = header.leader_epoch
        if reader.remaining == 0:
            self._close_batch(header)
        elif count == 0 and not builder.is_full:
            self.next = until
        return count

    def _close_batch(self, header: BatchHeader) -> None:
        """The batch is read to its end: the position is behind it, whatever compaction left of its records."""
        self._kept.pass_first()
        self.next = max(self.next, header.next_offset)
        self.next_epoch = header.leader_epoch

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
        self._kept.forget_passed()
        self.taken, self.taken_epoch = self.next, self.next_epoch
        return self.taken

    def rewind(self) -> None:
        """Read again, from where ``take`` ended, what was decoded and not taken."""
        self._kept.rewind()
        self.ready, self.typed, self.refused = [], [], None
        self.next, self.next_epoch = self.taken, self.taken_epoch

    def _remember_sender(self, fetched: FetchedPartition) -> None:
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
