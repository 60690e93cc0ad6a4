"""The buffer of one partition: batches as they were fetched, decoded only as far as a call asks for records."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from ....errors import DeserializationFailed, RecordError, RecordTooLarge
from ....records import (
    NOT_BEGUN,
    BatchHeader,
    ColumnBuilder,
    RecordReader,
    TakenOfRun,
    append,
    append_run,
    open_measured,
    take_run,
)
from ....types import ConsumerRecord, TopicPartition
from .arrivals import PartitionArrivals
from .batch_queue import BatchQueue, Opened
from .fetched_partition import Limits
from .frame_memory import FrameMemory, Held, PackedRun, Run, Unread
from .record_sequence import RecordSequence

# The most that a batch may decompress to on the event loop: some 2 ms, with the slowest codec.
_AT_ONCE_BYTES: Final = 512 << 10
# The same of a message set (formats 0 and 1): all of its messages are found first, in Python.
_AT_ONCE_BYTES_OF_MESSAGES: Final = 128 << 10
# One step decodes no more bytes than this, or one record: copies need new memory, and 1 MB of that takes 1 ms or more.
_STEP_BYTES: Final = 1 << 20
# One step takes the records of so many runs, since each of them may hold only one.
_RUNS_AT_ONCE: Final = 16


class PartitionBuffer(PartitionArrivals):
    """What was fetched of one partition under one token, and how far that is decoded, and taken.

    An error keeps its place in the order of the records: those before it are handed out first.

    What was decoded, as records or into columns, and not taken can be decoded again (``rewind``). Runs are read as they
    are, packed ones once they are unpacked; a batch of a run is opened by itself only if it can't be read, to say why.

    With deserializers, ``typed`` holds the first records of ``ready`` with deserialized keys and values, and
    ``refused`` is the error of the record behind those, if its deserializer raised.
    """

    __slots__ = (
        "_until",
        "next",
        "next_epoch",
        "ready",
        "refused",
        "taken_epoch",
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
        until: int | None = None,
    ) -> None:
        self.tp = tp
        self.token = token
        self.end = offset
        self.epoch = epoch
        self.next = offset  # the position once all of ``ready`` is handed out
        self.next_epoch = epoch  # the leader epoch of the last record, or marker, before ``next``
        self.taken = offset
        self.taken_epoch = epoch  # the leader epoch of the last record before ``taken``
        self.ready: RecordSequence[bytes | None, bytes | None] = RecordSequence()
        self.typed: Sequence[ConsumerRecord[Any, Any]] = ()  # a list once there are some
        self.refused: DeserializationFailed | None = None
        self.error = None
        self._senders = ()
        self._limits = limits
        self._until = sys.maxsize if until is None else until  # the first offset that is not wanted
        self._arriving = None
        self._memory = memory or FrameMemory()
        self._kept = BatchQueue(self._memory)

    @property
    def is_open(self) -> bool:
        """Whether anything is decompressed, or decoded and not taken."""
        first = self._kept.first
        return bool(self.ready) or self._kept.reader is not None or (isinstance(first, Run) and first.is_checked)

    @property
    def needs_memory(self) -> bool:
        """Whether a batch has to be opened, or batches to be unpacked, before the next record is decoded."""
        return isinstance(self._kept.first, PackedRun) or self.unopened() is not None

    @property
    def first(self) -> Held | None:
        """The batch or run to decode next, as it is kept: a packed run as long as nothing of it was unpacked."""
        return self._kept.first

    @property
    def undecoded(self) -> bool:
        return bool(self._kept.unread)

    @property
    def empty(self) -> bool:
        return not self.ready and not self._kept.unread and self.error is None and self._arriving is None

    @property
    def at_error(self) -> bool:
        """Whether nothing is left before the error."""
        return self.error is not None and not self.ready and not self._kept.unread

    def unopened(self) -> Unread | None:
        """The batch to open before the next record is decoded.

        None if that record is in a run, packed or not, or in an open batch, or if none is left.
        """
        first = self._kept.first
        return first if isinstance(first, Unread) and self._kept.reader is None else None

    def open(self, unread: Unread) -> Opened | None:
        """Check and decompress the next batch; return None if it is hidden (``AbortedTransactions.skips``).

        Changes nothing in this buffer, so a thread may call it. What was taken before, or is not wanted, is skipped
        here, too: of hundreds of thousands of records, that takes as long as to decompress them. Raises RecordError.
        """
        opened = self._open(unread, self._limits.max_decompressed_bytes)
        if opened is not None:
            opened[0].take(0, self.taken)  # not ``next``: what was decoded may be put back meanwhile
        return opened

    def _open(self, unread: Unread, most: int) -> Opened | None:
        header, view = unread.header, unread.view
        if unread.hidden or (unread.aborted is not None and unread.aborted.skips(header, view)):
            return None
        topic, partition = self.tp
        check_crcs = self._limits.check_crcs and not unread.is_checked
        return open_measured(
            header, view, topic=topic, partition=partition, check_crcs=check_crcs, max_decompressed_bytes=most
        )

    def opened(self, unread: Unread, opened: Opened | None) -> None:
        """Go on with the reader that ``open`` returned, unless the batch was dropped meanwhile.

        If what was decoded before it was put back meanwhile (``rewind``), the batch is open when its turn comes again.
        """
        is_next = self._kept.first is unread
        if not is_next and unread not in self._kept.unread:
            return
        self._kept.opened(unread, opened)
        if is_next and (opened is None or opened[0].remaining == 0):
            self._close_batch(unread.header)

    def failed_with(self, error: RecordError) -> None:
        """Put ``error`` in the place of the next batch, unless no record of that is wanted; drop it and all behind."""
        first = self._kept.first
        if isinstance(first, Unread) and first.header.begins_behind(self._until):
            self.next = self._until
        else:
            self.error = self._located(error, self.next)
        self._kept.end_here()

    def decode(self, count: int) -> None:
        """Decode up to ``count`` more records into ``ready``, from the run or batch that is next."""
        first = self._unpacked_first()
        if isinstance(first, Run):
            if self._take_of_run(first, count):
                return
        elif isinstance(first, PackedRun):
            return
        try:
            reader = self._open_first()
            if reader is not None:
                self._read(reader, count)
        except RecordError as error:
            self.failed_with(error)

    def _unpacked_first(self) -> Held | None:
        """Return the batch or run to decode next; if that is packed, what its first batches are unpacked to.

        It stays packed if its first batch is so large that a thread should open it: ``unopened`` returns that from then
        on, and the next attempt here opens it whatever its size.
        """
        first = self.first
        if not isinstance(first, PackedRun):
            return first
        unpacked = self._kept.unpack(first, self._limits)
        return first if isinstance(unpacked, Unread) and unpacked.is_large else unpacked

    def _open_first(self) -> RecordReader | None:
        """Return the reader of the next batch; None if no batch is left, or it is hidden. Raises RecordError."""
        if isinstance(self._kept.first, Run):
            self._kept.take_apart(self._kept.first)
        unread = self.unopened()
        if unread is not None:
            self._open_at_once(unread)
        return self._kept.reader

    def _open_at_once(self, unread: Unread) -> None:
        """Open a batch here and now, but give up if it decompresses to too much: it ``is_large`` from then on.

        A caller that sees ``is_large`` has a thread ``open`` it; the next attempt here opens it whatever its size. Only
        an attempt tells what a few kB of compressed zeros become.
        """
        most = self._limits.max_decompressed_bytes
        if not unread.is_large:
            most = min(most, _AT_ONCE_BYTES if unread.header.magic >= 2 else _AT_ONCE_BYTES_OF_MESSAGES)
        try:
            self.opened(unread, self._open(unread, most))
        except RecordTooLarge:
            if unread.is_large or most == self._limits.max_decompressed_bytes:
                raise
            unread.is_large = True

    def _take_of_run(self, run: Run, count: int) -> bool:
        """Decode records from the run; return False if its next batch has to be read by itself."""
        return self._found(run, self._look_into(run, count))

    def _look_into(self, run: Run, count: int) -> TakenOfRun:
        topic, partition = self.tp
        check_crcs = self._limits.check_crcs and not run.is_checked
        return take_run(run.view, run.at, run.inside, topic, partition, self.next, count, check_crcs)

    def _found(self, run: Run, found: TakenOfRun) -> bool:
        """Note what was found in the run; return False if its next batch has to be read by itself."""
        taken, at, run.inside, after, epoch = found
        has_moved = at > run.at or bool(taken)
        if taken:
            self.ready.add(taken)
            if not isinstance(taken, list):
                run.spans += (taken,)
        self._kept.note_read(run, at)
        if after > self.next:
            self.next, self.next_epoch = after, epoch if epoch >= 0 else None
        return has_moved

    def _read(self, reader: RecordReader, count: int) -> None:
        header = self._kept.header
        average = self._kept.open_bytes // max(1, header.record_count)
        self.ready.add(reader.take(min(count, max(1, _STEP_BYTES // max(1, average))), self.next))
        if self.ready:
            self.next = max(self.next, self.ready[-1].offset + 1)
            self.next_epoch = header.leader_epoch
        if reader.remaining == 0:
            self._close_batch(header)

    def append(self, builder: ColumnBuilder, rows: int, size: int, until: int) -> int:
        """Append up to ``rows`` records before offset ``until``, from a run or one batch; return how many.

        It stops once all rows of the builder have ``size`` bytes. ``next`` is ``until`` once no record before it is
        left.
        """
        first = self._unpacked_first()
        if isinstance(first, PackedRun):
            return 0
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
        """Append from the run; return how many rows, and False if its next batch has to be read by itself."""
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
            check_crcs=self._limits.check_crcs and not run.is_checked,
        )
        has_moved, run.inside = count > 0 or at > run.at, NOT_BEGUN
        self._kept.note_read(run, at)
        if end > self.next:
            self.next, self.next_epoch = end, epoch
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
        """Go on behind a batch that was decoded to its end: compaction may have removed its last records."""
        self._kept.pass_first()
        self.next = max(self.next, header.next_offset)
        self.next_epoch = header.leader_epoch

    def take(self, count: int) -> tuple[RecordSequence[bytes | None, bytes | None], int]:
        """Take up to ``count`` decoded records; return them and the position behind them (``taken``, ``taken_epoch``).

        The position may lie behind offsets without a record, of a newer leader epoch: a transaction's marker.
        """
        if count >= len(self.ready):
            self._kept.forget_passed()  # before anything is taken out: if there is no memory, the next call takes it
            taken, self.ready = self.ready, RecordSequence()
            self.taken, self.taken_epoch = self.next, self.next_epoch
            return taken, self.taken
        taken = self.ready.split(count)
        self.taken, self.taken_epoch = taken[-1].offset + 1, taken[-1].leader_epoch
        return taken, self.taken

    def take_of_runs(self, count: int) -> tuple[RecordSequence[bytes | None, bytes | None], bool] | None:
        """Decode and take up to ``count`` records of the runs that come first, as ``decode`` and ``take`` do.

        Return them, and whether the run that came first goes on behind them, as it nearly always does: what is open,
        unpacked and unread has not changed then. None: nothing was taken. What was decoded and not taken is ready.
        """
        if self.ready:
            return None
        taken: RecordSequence[bytes | None, bytes | None] = RecordSequence()
        goes_on, size = True, 0
        for _ in range(_RUNS_AT_ONCE):
            try:
                run = self._kept.first
                if type(run) is PackedRun:
                    goes_on = False
                    if taken and self._memory.is_far_over_budget:
                        break
                    run = self._unpacked_first()
                if type(run) is not Run:
                    break
                span, at, inside, after, epoch = found = self._look_into(run, count)
            except MemoryError:
                if not taken:
                    raise
                break  # the position is behind what was taken: only this call can return that
            size += len(run.view)
            is_last = at == len(run.view)
            if is_last and span and self.error is None:
                self._kept.take_last(run, span)
                goes_on = False
            elif len(span) == count and not is_last:
                run.inside = inside
                self._memory.lend_of(run, span, at)
            else:
                self._found(run, found)
                break
            taken.add(span)
            self.next = self.taken = after
            self.next_epoch = self.taken_epoch = epoch if epoch >= 0 else None
            count -= len(span)
            if not count:
                return taken, goes_on
            if size >= _STEP_BYTES:
                break
        return (taken, False) if taken else None

    def take_typed(self, count: int) -> tuple[RecordSequence[Any, Any], int]:
        """Do as ``take`` does, with deserialized records; the position stays before those that are only decoded."""
        taken = self.typed if count >= len(self.typed) else self.typed[:count]
        if not taken and self.ready:
            return RecordSequence(), self.taken
        _, after = self.take(len(taken))
        self.typed = self.typed[len(taken) :]
        return RecordSequence(taken), after

    def take_appended(self) -> int:
        """Note that all that was decoded is handed out; return the position behind it (``taken``, ``taken_epoch``)."""
        self._kept.forget_passed()
        self.taken, self.taken_epoch = self.next, self.next_epoch
        return self.taken

    def rewind(self) -> None:
        """Go back to where the last ``take`` ended: what was decoded and not taken is decoded again."""
        self._kept.rewind()
        self.ready, self.typed, self.refused = RecordSequence(), (), None
        self.next, self.next_epoch = self.taken, self.taken_epoch
