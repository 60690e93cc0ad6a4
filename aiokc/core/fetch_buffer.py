"""Fetched and not yet handed out: record batches as they came, decoded only as far as somebody asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from ..errors import KafkaError, RecordError
from ..records import AbortedTransactions, RecordReader, open_measured, split_batches
from ..types import RawRecord, TopicPartition
from ..wire import FrameBuffers
from .frame_memory import FrameMemory, Unread
from .positions import PartitionPosition
from .subscription import Subscription

# How many partitions serving looks at before it goes to the trouble of listing all.
_FIRST_FEW: Final = 16


@dataclass(slots=True)
class Fetched:
    """One partition's part of a Fetch response, asked from ``offset`` by the claim that ``token`` names."""

    tp: TopicPartition
    token: int
    offset: int
    records: memoryview
    aborted: Sequence[tuple[int, int]] | None = None
    error: KafkaError | None = None


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
    the last of their records was taken.
    """

    __slots__ = (
        "_decoded",
        "_limits",
        "_memory",
        "_reader",
        "_unread",
        "end",
        "epoch",
        "error",
        "next",
        "next_epoch",
        "ready",
        "taken_epoch",
        "token",
        "tp",
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
        self.taken_epoch = epoch  # and of the last one before what ``take`` returned
        self.ready: list[RawRecord] = []
        self.error: KafkaError | None = None
        self._unread: deque[Unread] = deque()
        self._reader: RecordReader | None = None
        self._limits = limits
        self._memory = memory or FrameMemory()
        self._decoded = 0  # bytes of what ``ready`` was decoded from

    def drop(self) -> None:
        """Keep nothing any more. What a thread, or a call that gave way, still does to it counts for nobody."""
        self._clear()
        self._memory = FrameMemory()

    def _clear(self) -> None:
        for unread in self._unread:
            self._memory.release(unread)
        self._unread.clear()
        self._reader = None
        self._forget_decoded()

    def _forget_decoded(self) -> None:
        self._memory.bytes -= self._decoded
        self._decoded = 0

    def add(self, fetched: Fetched) -> None:
        """Append what arrived. An answer for another offset than the end of what is here is stale and dropped."""
        if fetched.offset != self.end or self.error is not None:
            return
        if fetched.error is not None:
            self.error = fetched.error
            return
        aborted = None
        if fetched.aborted:
            aborted = AbortedTransactions(fetched.aborted, check_crcs=self._limits.check_crcs)
        try:
            for header, view in split_batches(fetched.records):
                if header.next_offset <= self.end:
                    continue  # all of it lies before what was asked for
                unread = Unread(header, view, aborted)
                self._unread.append(unread)
                self._memory.hold(unread)
                self.end = header.next_offset
                self.epoch = header.leader_epoch
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

    def unopened(self) -> Unread | None:
        """The batch to open before the next record can be decoded; None where one is open, or none is left."""
        return self._unread[0] if self._reader is None and self._unread else None

    def open(self, unread: Unread) -> Opened | None:
        """Check and decompress the next batch; None where nobody must see it (an aborted transaction).

        Changes nothing here, so a thread may do it. Raises RecordError.
        """
        header, view = unread.header, unread.view
        if unread.aborted is not None and unread.aborted.skips(header, view):
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
        self._reader, size = opened or (None, 0)
        if self._reader is None or self._reader.remaining == 0:
            self._close_batch()
        else:
            self._memory.release(unread)
            self._memory.bytes += size
            self._decoded += size

    def failed_with(self, error: RecordError) -> None:
        """The next batch can't be read: the error takes its place, and what follows it is dropped."""
        self.error = self._located(error)
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
        self.ready += reader.take(count, self.next)
        if self.ready:
            self.next = max(self.next, self.ready[-1].offset + 1)
            self.next_epoch = self._unread[0].header.leader_epoch
        if reader.remaining == 0:
            self._close_batch()

    def _close_batch(self) -> None:
        """The batch is read to its end: the position is behind it, whatever compaction left of its records."""
        unread = self._unread.popleft()
        self._reader = None
        self._memory.release(unread)
        self.next = max(self.next, unread.header.next_offset)
        self.next_epoch = unread.header.leader_epoch

    def take(self, count: int) -> tuple[list[RawRecord], int]:
        """Return up to ``count`` decoded records, and the position after them; its epoch is ``taken_epoch`` then.

        Behind the last of them there may be offsets that hold no record, of a newer epoch: a marker of a transaction.
        """
        if count >= len(self.ready):
            taken, self.ready = self.ready, []
            if self._reader is None:
                self._forget_decoded()
            self.taken_epoch = self.next_epoch
            return taken, self.next
        taken = self.ready[:count]
        del self.ready[:count]
        self.taken_epoch = taken[-1].leader_epoch
        return taken, taken[-1].offset + 1

    def _located(self, error: RecordError) -> RecordError:
        """Say where, with the offset from which nothing more can be read."""
        if not error.topic:
            error.topic, error.partition, error.offset = self.tp.topic, self.tp.partition, self.next
        return error


class FetchBuffer:
    """All partitions' buffers. Only claims that still hold are served; the rest is dropped when it is met.

    What happened here that changes from where a partition is fetched on, or whether, is told by ``take_touched``.
    """

    def __init__(self, limits: Limits | None = None, buffers: FrameBuffers | None = None) -> None:
        self._limits = limits or Limits()
        self._partitions: dict[TopicPartition, PartitionBuffer] = {}
        self._memory = FrameMemory(buffers)
        self._touched: dict[TopicPartition, None] = {}

    @property
    def bytes(self) -> int:
        """The memory that what was fetched and not taken yet occupies: frames, and what is decompressed already.

        Spare buffers for the next frames count as well.
        """
        return self._memory.bytes + self._memory.buffers.spare_bytes

    def take_touched(self) -> list[TopicPartition]:
        """Return the partitions whose buffers were filled, emptied or dropped since the last call."""
        if not self._touched:
            return []
        touched, self._touched = self._touched, {}
        return list(touched)

    @property
    def has_touched(self) -> bool:
        return bool(self._touched)

    def add(self, fetched: Fetched, position: PartitionPosition) -> None:
        """Store what arrived for a claim that still holds."""
        buffer = self._partitions.get(fetched.tp)
        if buffer is None or buffer.token != position.token:
            self._drop(fetched.tp)
            buffer = PartitionBuffer(
                fetched.tp, position.token, position.position, self._limits, self._memory, position.leader_epoch
            )
            self._partitions[fetched.tp] = buffer
        buffer.add(fetched)
        self._touched[fetched.tp] = None
        self._drop_if_done(buffer, position)

    def fail(self, tp: TopicPartition, position: PartitionPosition, error: KafkaError) -> None:
        """Put ``error`` behind whatever is buffered of this claim."""
        offset, _ = self.frontier(tp, position)
        self.add(Fetched(tp, position.token, offset, memoryview(b""), error=error), position)

    def frontier(self, tp: TopicPartition, position: PartitionPosition) -> tuple[int, int | None]:
        """The next offset to ask for, and the leader epoch of the last record before it.

        That is behind what is buffered for this claim, else the position.
        """
        buffer = self._partitions.get(tp)
        if buffer is not None and buffer.token == position.token:
            return buffer.end, buffer.epoch
        return position.position, position.leader_epoch

    def holds(self, tp: TopicPartition) -> bool:
        buffer = self._partitions.get(tp)
        return buffer is not None and not buffer.empty

    def failed(self, tp: TopicPartition, token: int) -> bool:
        """Whether an error waits to be raised for this claim: there is no use in fetching past it."""
        buffer = self._partitions.get(tp)
        return buffer is not None and buffer.token == token and buffer.error is not None

    def served(self, buffer: PartitionBuffer, position: PartitionPosition) -> None:
        """It had its turn: all others come first now."""
        self._partitions[buffer.tp] = self._partitions.pop(buffer.tp)
        if buffer.empty:
            self._touched[buffer.tp] = None
        self._drop_if_done(buffer, position)

    def _drop_if_done(self, buffer: PartitionBuffer, position: PartitionPosition) -> None:
        """Keep only what holds something, so that serving costs nothing for the partitions that have no records."""
        if buffer.empty and buffer.next == position.position:
            self._drop(buffer.tp)

    def _drop(self, tp: TopicPartition) -> None:
        buffer = self._partitions.pop(tp, None)
        if buffer is not None:
            buffer.drop()
            self._touched[tp] = None

    def drop(self, tp: TopicPartition) -> None:
        """Forget what is buffered of ``tp``: it is fetched again, from the position on."""
        self._drop(tp)

    def clear_error(self, error: KafkaError) -> list[TopicPartition]:
        """Forget it, and return where it was: more than one partition where one request failed for many.

        They are asked again, from their positions.
        """
        failed = [tp for tp, buffer in self._partitions.items() if buffer.error is error and not buffer.ready]
        for tp in failed:
            self._drop(tp)
        return failed

    def forget_stale(self, tp: TopicPartition, subscription: Subscription) -> None:
        """Drop the buffer of a claim that does not hold any more (revoked, sought away from)."""
        buffer = self._partitions.get(tp)
        if buffer is not None and subscription.get(tp, buffer.token) is None:
            self._drop(tp)

    def servable(
        self, subscription: Subscription, only: Iterable[TopicPartition] | None = None
    ) -> Iterator[tuple[PartitionBuffer, PartitionPosition]]:
        """The buffers that may be handed out now, in the order of service: who was served comes last."""
        wanted = None if only is None else frozenset(only)
        for tp in self._in_order():
            buffer = self._partitions.get(tp)
            if buffer is None or (wanted is not None and tp not in wanted):
                continue
            position = subscription.get(tp, buffer.token)
            if position is None or not position.fetchable:
                continue
            if not buffer.empty or buffer.next > position.position:  # the latter: behind offsets that hold no record
                yield buffer, position

    def _in_order(self) -> Iterator[TopicPartition]:
        """The partitions as they stand now. Most callers have enough with the first few: that is all they pay for."""
        first = list(islice(self._partitions, _FIRST_FEW))
        yield from first
        if len(first) == _FIRST_FEW:
            seen = frozenset(first)
            yield from [tp for tp in self._partitions if tp not in seen]
