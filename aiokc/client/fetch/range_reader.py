"""Client.read() and Client.read_columns(): iterate over ranges of offsets, with a Fetcher of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from heapq import nsmallest
from itertools import chain
from types import TracebackType

import anyio

from ...config import ClientConfig
from ...core.cluster.avoided_replicas import AvoidedReplicas
from ...core.cluster.snapshot import Cluster, known_error, unknown_partition
from ...core.counters import FetchCounters
from ...core.fetch.partition.record_sequence import RecordSequence
from ...core.subscription.position import PartitionPosition
from ...core.subscription.state import Subscription
from ...errors import KafkaError, RequestTimedOut, fresh
from ...records import ColumnBuilder
from ...types import BatchEnd, PartitionRecords, RecordColumns, TopicPartition
from ..aio.supervisor import Supervisor
from ..aio.time_slice import TimeSlice
from ..cluster.cluster_client import ClusterClient
from .column_collector import ColumnCollector
from .fetcher import Fetcher

# The most records of one step: enough that the step's own cost does not count, few enough to be some MB.
_RECORDS_AT_ONCE = 4096
_ALL_ROWS = 1 << 31

_SHOWN = 10  # partitions that an error tells of

Ranges = Mapping[TopicPartition, tuple[int, int]]


async def read_ranges(
    cluster_client: ClusterClient[ClientConfig],
    ranges: Ranges,
    *,
    timeout: float,
    counters: FetchCounters,
    avoided: AvoidedReplicas,
    following: AbstractContextManager[None],
) -> AsyncGenerator[PartitionRecords, None]:
    """Yield the records of ``{partition: (from, until)}``, each partition's in order.

    A range ends by position: it also ends at offsets that hold no record (control records, aborted or compacted ones).
    ``counters`` counts what is fetched, ``avoided`` knows from before which replicas are silent, and ``following``
    keeps the topics in the metadata. Raises OffsetOutOfRange where the log does not hold a range's start any more,
    RequestTimedOut, which names the positions, after ``timeout`` seconds without progress, or UnknownTopic where the
    cluster says that a partition does not exist, and ClientClosed when the client is stopped meanwhile. An error of a
    topic (AuthorizationFailed, an invalid name) is raised as soon as newer metadata have it, behind what was read.
    """
    async with _RangeReading(cluster_client, ranges, timeout, counters, avoided, following) as reading:
        collector = reading.fetcher.collector
        while reading.unfinished:
            await reading.give_way()
            await collector.settle_all(reading.time_slice)
            await collector.decode(_RECORDS_AT_ONCE, reading.time_slice)
            reading.check()
            batch = collector.take(_RECORDS_AT_ONCE)
            reading.moves(batch)
            for tp, records in batch.items():
                until = ranges[tp][1]
                if records[-1].offset >= until:
                    records = RecordSequence(record for record in records if record.offset < until)
                if records:  # else all that was decoded lies behind the range
                    yield PartitionRecords(tp, records, reading.position(tp))
                    reading.progresses()  # the caller's time with these records does not count
            await reading.next()


async def read_column_ranges(
    cluster_client: ClusterClient[ClientConfig],
    ranges: Ranges,
    *,
    builder: ColumnBuilder,
    batch_bytes: int,
    timeout: float,
    counters: FetchCounters,
    avoided: AvoidedReplicas,
    following: AbstractContextManager[None],
) -> AsyncGenerator[RecordColumns, None]:
    """Yield the records of these ranges as batches of columns, each full with the record that reaches ``batch_bytes``.

    The last batch may be smaller. It has no row where the ranges end with offsets that hold none: it says so, and of
    which topics they are. What was read before an error is yielded before the error is raised. Everything else is as
    with ``read_ranges``.
    """
    async with _RangeReading(cluster_client, ranges, timeout, counters, avoided, following) as reading:
        columns = ColumnCollector(reading.fetcher.collector)
        ends: dict[TopicPartition, BatchEnd] = {}
        try:
            while reading.unfinished:
                await reading.give_way()
                reading.check()
                has_all = columns.append_at_once(builder, _ALL_ROWS, batch_bytes, reading.time_slice.ends)
                # No await before `take`: rows can't be taken out of the builder again. If other tasks ran in between
                # and a partition's leader moved, `take` would not hand that partition out, though its rows are in the
                # batch. A caller that goes on where the batch says that it ends would get these rows twice.
                ends |= reading.ends_of(columns.take())
                if builder.size >= batch_bytes or builder.is_full:
                    yield RecordColumns(builder.finish(), ends)
                    ends = {}
                    reading.progresses()
                if has_all:
                    await reading.next()
                else:
                    reading.leave_read()
                    await reading.time_slice.give_way()
        except KafkaError:
            if builder.rows:
                yield RecordColumns(builder.finish(), ends)
            raise
        if builder.rows or ends:
            yield RecordColumns(builder.finish(), ends)


class _RangeReading:
    """One read: its own Fetcher, the ranges that are left, and the time of its last progress."""

    def __init__(
        self,
        cluster_client: ClusterClient[ClientConfig],
        ranges: Ranges,
        timeout: float,
        counters: FetchCounters,
        avoided: AvoidedReplicas,
        following: AbstractContextManager[None],
    ) -> None:
        self._cluster = cluster_client
        self._following = following
        self._ranges = ranges
        self._timeout = timeout
        self._subscription = subscription = Subscription()
        subscription.assign(tp for tp, (start, until) in ranges.items() if start < until)
        for tp in subscription.assigned:
            subscription.seek(tp, ranges[tp][0])
            subscription.read_until(tp, ranges[tp][1])
        # A broker keeps a fetch session for minutes, and has room for a thousand: short reads must not use them up.
        self.fetcher = Fetcher(
            cluster_client.config,
            cluster_client.pool,
            cluster_client.metadata,
            subscription,
            cluster_client.random,
            sessions=False,
            counters=counters,
            avoided=avoided,
        )
        self._background = Supervisor("aiokc range reader")
        self._last_progress = 0.0
        self._known_before = 0  # the version of the metadata that were known when the read began
        self.time_slice = TimeSlice()
        self._moved: dict[TopicPartition, None] = {}  # since the last ``next``
        self._begun = set[TopicPartition]()  # what has had rows

    async def __aenter__(self) -> _RangeReading:
        self._background.ended.followed_by(self.fetcher.arrived)
        self._cluster.background.ended.followed_by(self.fetcher.arrived)
        self._cluster.metadata.changed.followed_by(self.fetcher.wake)
        self._cluster.metadata.changed.followed_by(self.fetcher.arrived)
        self._known_before = self._cluster.metadata.cluster.version
        self._background.start([self.fetcher.run])
        self._following.__enter__()
        self.progresses()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._following.__exit__(None, None, None)
        self._cluster.metadata.changed.not_followed_by(self.fetcher.arrived)
        self._cluster.metadata.changed.not_followed_by(self.fetcher.wake)
        self._cluster.background.ended.not_followed_by(self.fetcher.arrived)
        self.fetcher.close()
        await self._background.stop()
        with anyio.CancelScope(shield=True):
            await self.fetcher.collector.settle_all(self.time_slice)

    def check(self) -> None:
        """Raise what ended the client's background, or the background of this read."""
        self._cluster.check()
        self._background.check()

    @property
    def unfinished(self) -> bool:
        return bool(self._subscription.assigned)

    def position(self, tp: TopicPartition) -> int:
        """The offset to read next: within the range, or at its end."""
        return min(self._subscription[tp].position, self._ranges[tp][1])

    def moves(self, taken: Iterable[TopicPartition]) -> None:
        """The collector has handed out records of the ``taken`` partitions, and has ``skipped`` offsets of others.

        Only these are looked at: at all of them, after each time slice, would take longer than the slice.
        """
        self._moved.update(dict.fromkeys(taken))
        self._moved.update(dict.fromkeys(self.fetcher.collector.skipped))

    def ends_of(self, taken: Collection[TopicPartition]) -> dict[TopicPartition, BatchEnd]:
        """Return where the partitions stand that ``take`` has just moved, and handed out rows of if they are ``taken``.

        Only those that have had rows, now or before, or that are at their range's end.

        One that moves on before its first row (control records) is told of later. Until then nothing of it was handed
        out. A caller whose read fails because retention has deleted its first records loses nothing by beginning behind
        them.
        """
        self.moves(taken)
        self._begun.update(taken)
        ends: dict[TopicPartition, BatchEnd] = {}
        for tp in chain(taken, self.fetcher.collector.skipped):
            if tp in self._begun or self._is_read(tp):
                at = self._subscription[tp]
                ends[tp] = BatchEnd(self.position(tp), at.leader_epoch, at.assignment_token, at.topic_id)
        return ends

    def progresses(self) -> None:
        """There is progress: the timeout begins anew."""
        self._last_progress = asyncio.get_running_loop().time()

    async def give_way(self) -> None:
        """Let other tasks run at least every 1 ms, however much is buffered, and however fast the caller takes it.

        To be called before a step looks at anything, and not between that look and the wait in ``next``: an error may
        be buffered while others run. ``arrived`` tells of it once, and nobody fetches its partition again. A wait that
        begins after that would end by the timeout.
        """
        if asyncio.get_running_loop().time() > self.time_slice.ends:
            await self.time_slice.give_way()

    def leave_read(self) -> bool:
        """Drop the ranges that are finished. Return whether any position has moved since the last call."""
        if not self._moved:
            return False
        self.progresses()
        if read := [tp for tp in self._moved if self._is_read(tp)]:
            self._subscription.give_up(read)
            # What was buffered behind the end of a range is freed: there is room to fetch.
            self.fetcher.wake.notify()
        self._moved.clear()
        return True

    async def next(self) -> None:
        """Drop the ranges that are finished. If no position has moved, wait for records, or raise why none can come.

        There must be no await between the look that has found nothing, which is ``check`` and ``take``, and this call.
        """
        if self.leave_read():
            return
        left = self._last_progress + self._timeout - asyncio.get_running_loop().time()
        if self.fetcher.collector.has_undecoded():
            await asyncio.sleep(0)
            if left <= 0:
                raise self._stuck()
            return
        self._raise_topic_error()
        self.fetcher.collector.user_waits(None)
        if not await self.fetcher.arrived.wait(left):
            raise self._stuck()
        self.time_slice.begins()

    def _is_read(self, tp: TopicPartition) -> bool:
        return self._subscription[tp].position >= self._ranges[tp][1]

    def _newer_metadata(self) -> Cluster | None:
        """What a broker has said of the cluster since the read began; what was known before may be out of date."""
        cluster = self._cluster.metadata.cluster
        return cluster if cluster.version > self._known_before else None

    def _raise_topic_error(self) -> None:
        cluster = self._newer_metadata()
        if cluster is not None and cluster.errors:
            error = known_error(cluster, {tp.topic for tp in self._subscription.assigned})
            if error is not None:
                raise fresh(error)

    def _stuck(self) -> KafkaError:
        cluster = self._newer_metadata()
        unknown = None if cluster is None else unknown_partition(cluster, self._subscription.assigned)
        if unknown is not None:
            return unknown
        where = "; ".join(
            f"{tp} at offset {position.position} of the range's end {position.until}"
            f" ({self._log_end(position)}; {self._led_by(tp)}{self._held_up(tp)})"
            for tp, position in nsmallest(_SHOWN, self._subscription.assigned.items())
        )
        others = len(self._subscription.assigned) - _SHOWN
        more = f"; and {others} more partitions" if others > 0 else ""
        cause = self._trouble()
        why = "" if cause is None else f": {cause}"
        error = RequestTimedOut(f"no progress for {self._timeout:.3g} s: {where}{more}{why}")
        error.__cause__ = cause
        return error

    def _trouble(self) -> KafkaError | None:
        """What goes wrong at the moment, and is tried again: a broker's refusal first, which is about the records."""
        cluster, now = self._cluster, self._cluster.now()
        return self.fetcher.refusal(now) or cluster.metadata.error or cluster.pool.trouble(now)

    def _log_end(self, position: PartitionPosition) -> str:
        end, stable = position.high_watermark, position.last_stable_offset
        if end is None:
            return "the end of its log is unknown"
        says = f"its log ends at {end}"
        if self._cluster.config.isolation_level == "read_committed" and stable is not None and stable < end:
            says += f", but a transaction that began at {stable} is still open"
        return says

    def _held_up(self, tp: TopicPartition) -> str:
        collector = self.fetcher.collector
        buffer = collector.buffer.of(tp)
        waits = buffer is not None and collector.opening.holds_up(buffer)
        return "; a thread is to open its next batch" if waits else ""

    def _led_by(self, tp: TopicPartition) -> str:
        leader = self._cluster.metadata.cluster.leader(tp)
        return "no broker leads it now" if leader is None else f"broker {leader.node_id} leads it"
