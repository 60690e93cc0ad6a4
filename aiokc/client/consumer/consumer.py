"""The public Consumer: checks the arguments of every call, and passes it on to the ConsumerRuntime."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Generic, Self, Unpack, cast

from ...config import ConsumerConfig, ConsumerOptions, configured, named
from ...errors import ConfigError
from ...records import checked_columns, new_builder
from ...records.columns import TimestampUnit
from ...serialization.deserializer import AnyDeserializer
from ...types import (
    EARLIEST,
    LATEST,
    ConsumerRecord,
    ConsumerRecords,
    GroupMetadata,
    K,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordColumns,
    SubscriptionPattern,
    TopicInfo,
    TopicPartition,
    V,
)
from ..aio.single_user import SingleUser
from ..arguments import (
    check_pattern,
    checked_count,
    checked_offset,
    checked_partition,
    checked_partitions,
    checked_seconds,
    checked_timestamps,
    checked_topics,
    checked_wait,
    is_text,
    named_topics,
)
from ..fetch.column_collector import ColumnPoll
from ..group.rebalance_listener import RebalanceListener
from ..group.user_commits import Committable
from ..in_use import InUse
from ..offsets.async_commits import OnCommitted
from .introspection import Introspection
from .poll import Poll
from .record_stream import LEAST_AHEAD
from .runtime import ConsumerRuntime
from .waiting_for_assignment import wait_assigned
from .waiting_for_positions import seek_to_committed, wait_positions

_ALL_RECORDS = 1 << 31
_GIB = 1 << 30
_STOP_MS = 30_000


class Consumer(Introspection, Generic[K, V]):
    """Reads records from Kafka, alone or as a member of a group.

        async with Consumer("events", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            while True:
                for partition, records in (await consumer.getmany()).items():
                    await process(records)
                await consumer.commit()

    ``topics`` (names, one compiled pattern, or one SubscriptionPattern) and ``listener`` are those of subscribe().
    Options are those of ConsumerConfig, by keyword or as ``config``. A deserializer is a function of the bytes, or an
    object with ``deserialize``; sync or async. Keys are K and values V, the types that the deserializers return, and
    bytes without a deserializer; either is None where the producer wrote null. With ``group_id=None`` a subscription
    means all partitions of its topics, and commit() and committed() raise UsageError.

    One task at a time may be inside getmany, getone, the iterator or wait_assigned; a second one gets ConcurrentCall.
    Every call that waits or commits raises ConsumerClosed before start() and after stop(). If an error has ended the
    background, these calls raise that error. Every wait for the network ends after ``timeout_ms`` (default:
    default_api_timeout_ms) with RequestTimedOut, or with NoBrokersAvailable where any broker could have answered. Only
    waiting for records is unbounded by default; it counts as polling. A cancelled call loses nothing. An argument that
    is no valid partition, offset, timestamp, count or timeout raises ConfigError.

    A consumer that is garbage-collected while it runs, without stop(), gives a ResourceWarning and is stopped in the
    background. In asyncio's debug mode the warning says where the consumer was made.
    """

    def __init__(
        self,
        *topics: str | re.Pattern[str] | SubscriptionPattern,
        key_deserializer: AnyDeserializer[K] | None = None,
        value_deserializer: AnyDeserializer[V] | None = None,
        listener: RebalanceListener | None = None,
        config: ConsumerConfig | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.config = named(configured(ConsumerConfig, config, cast(dict[str, Any], options)))
        self._runtime = ConsumerRuntime(self.config, Random(), key_deserializer, value_deserializer)
        self._user = SingleUser()
        self._poll: Poll[K, V] = Poll(self._runtime, self._user)
        self._in_use = InUse(
            self._runtime.cluster_client,
            f"a Consumer (group_id={self.config.group_id!r}, client_id={self.config.client_id!r})",
            partial(self._runtime.stop_forgotten, timeout=_STOP_MS / 1e3),
            self._runtime.loop_is_closed,
        )
        if len(topics) == 1 and isinstance(topics[0], re.Pattern | SubscriptionPattern):
            self.subscribe(topics[0], listener=listener)
        elif topics:
            self.subscribe(cast(tuple[str, ...], topics), listener=listener)
        elif listener is not None:
            raise ConfigError("a listener comes with the topics: give some, or give it to subscribe()")

    # Life cycle

    async def start(self, *, timeout_ms: float | None = None) -> None:
        """Connect; return once a broker has answered. Raises NoBrokersAvailable after ``timeout_ms``.

        The consumer joins its group in the background. If start() fails, or is cancelled, this consumer is stopped,
        within 2 s: a member that has joined leaves its group as by stop(). Make another one then. A second start()
        waits for the first one, until its own ``timeout_ms`` (RequestTimedOut), and changes nothing.
        """
        await self._runtime.start(timeout=self._seconds(timeout_ms))

    async def stop(self, *, timeout_ms: float = _STOP_MS, leave: bool | None = None) -> None:
        """Stop fetching, finish commits, commit processed records (with enable_auto_commit), leave the group, close.

        stop() ends within ``timeout_ms``, and no step waits for what can't come any more: where nothing is left to
        commit and the listener returns at once, stop() takes 3 s at most, also where no broker answers. Raises
        UsageError in another event loop than that of start().

        stop() does not commit what the last call returned: it is called on success, on failure and by other tasks, and
        only the application knows whether that batch is processed. Call commit() first, or use ``async with``: a block
        that ends without an exception has processed its last batch.

        ``leave`` says whether the member tells the group at once that it leaves (KIP-1092). With None, only a dynamic
        member does. A static member that has called unsubscribe() has left by that, and tells nothing any more.

        The listener's on_partitions_revoked() is called before the member leaves the group, and what is left of the
        callbacks of commit_soon() at the end; then stop() raises the first error of theirs. commit() within the
        listener leaves out what the last call returned, except when an ``async with`` block ends without an exception.
        A getmany() that waits in another task raises ConsumerClosed. A second call of stop() waits for the first one. A
        stop() that is cancelled goes through the same steps within 2 s, before it raises CancelledError.
        """
        self._poll.stream.report()
        await self._stop(checked_seconds(timeout_ms), leave, raises=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._user.was_this_task:
            # A block that ends without an exception has processed its last batch.
            self._runtime.subscription.mark_processed()
        self._poll.stream.report()
        # The block's own exception matters more than what callbacks raise.
        await self._stop(_STOP_MS / 1e3, None, raises=error is None)

    async def _stop(self, timeout: float, leave_group: bool | None, *, raises: bool) -> None:
        try:
            await self._runtime.stop(timeout=timeout, leave_group=leave_group)
        except asyncio.CancelledError:  # after the same steps: what was under way has its outcome
            self._runtime.run_last_callbacks(raises=False)
            raise
        self._runtime.run_last_callbacks(raises=raises)

    # What to read

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics instead of those subscribed before. An empty list of topics means unsubscribe().

        A compiled pattern means all topics whose whole name matches, in each new snapshot of the cluster: a topic that
        is created later is found within metadata_max_age_ms. A SubscriptionPattern is matched by the group's
        coordinator (KIP-848); where it refuses the pattern, the next call for records raises
        INVALID_REGULAR_EXPRESSION. ``listener`` replaces the former one, and is told which partitions are assigned and
        revoked. Raises UsageError after assign(), when the subscription changes between names and one of the patterns
        without unsubscribe() in between, and for a SubscriptionPattern without the consumer protocol.
        """
        if isinstance(listener, type):
            raise ConfigError(f"listener must be a RebalanceListener: give an instance of {listener.__name__}")
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise ConfigError(f"listener must be a RebalanceListener, not {type(listener).__name__}")
        if isinstance(topics, re.Pattern | SubscriptionPattern):
            check_pattern(topics)
            self._runtime.subscribing.subscribe(topics, listener)
            self._in_use.listener = listener
            return
        wanted = named_topics(topics)
        if wanted:
            self._runtime.subscribing.subscribe(wanted, listener)
            self._in_use.listener = listener
        else:
            self._runtime.subscribing.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group assigns them. An empty list of partitions means unsubscribe().

        With a group_id, the consumer can still commit offsets. Raises UsageError after subscribe().
        """
        wanted = checked_partitions(partitions)
        if wanted:
            self._runtime.subscribing.assign(wanted)
        else:
            self._runtime.subscribing.unsubscribe()

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group: assignment() is empty at once; the rest is done in the background.

        The listener's on_partitions_revoked() is called before the member leaves the group; a commit() within that
        callback stores all that was returned. A static member does not tell its group (KIP-345): if it subscribes to
        the same topics within ``session_timeout_ms``, it gets the same partitions again without a rebalance; after that
        time the other members get them.
        """
        self._runtime.subscribing.unsubscribe()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group rebalance: for an assignor whose user data has changed, so that the group leader gets it.

        And for static members of the classic protocol (KIP-345) that were restarted with other topics: their group does
        not notice by itself. The rebalance happens in the background, and brokers log ``reason`` (KIP-800). The call
        does nothing while a rebalance is going on, or before the consumer has joined. In the consumer protocol
        (KIP-848) no member can do that: this one then asks the coordinator at once whether something has changed, and
        the log says so. Don't call it in on_partitions_assigned(): each rebalance would begin the next one. Raises
        UsageError without a group_id, or after assign().
        """
        if reason is not None and not is_text(reason):
            raise ConfigError(f"a reason must be a str of 32 KiB at most, not {type(reason).__name__}")
        self._runtime.enforce_rebalance(reason or "the user enforced a rebalance")

    def subscription(self) -> frozenset[str]:
        """The topics that this consumer subscribes to; with a pattern, those that match it now.

        Only the coordinator knows what a SubscriptionPattern matches: then these are the topics of the assignment.
        """
        return self._runtime.subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now."""
        return frozenset(self._runtime.subscription.assigned)

    async def wait_assigned(self, *, timeout_ms: float | None = None) -> frozenset[TopicPartition]:
        """Wait until partitions are assigned, and on_partitions_assigned() is done; return the whole assignment.

            async with Consumer("events", group_id="replay") as consumer:
                await consumer.wait_assigned()
                await consumer.seek_to_beginning()

        Returns at once if that is so already; after assign() it always is. An empty assignment is one, too: the set is
        empty where the group has more members than partitions, or where none of the topics exists. So is the first one
        with a SubscriptionPattern, which the coordinator matches later, and, with the consumer protocol, that of a
        member for which others have still to give up partitions. A member whose compiled pattern matches no
        topic waits outside the group, and so does this call. The next rebalance may come at any time: the listener is
        told of it.

        Waiting here counts as polling, as waiting for records does: the call marks what earlier calls returned as
        processed, and only one task at a time may be in this call or in one that returns records (ConcurrentCall).
        Raises what getmany() would raise about the group and the topics, but nothing about positions, since the
        application may be about to seek. Raises UsageError within a listener or where nothing is subscribed to, and
        RequestTimedOut after ``timeout_ms``.
        """
        self._poll.stream.close()
        return await wait_assigned(self._runtime, self._user, self._seconds(timeout_ms))

    # Records

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float | None = None, max_records: int | None = None
    ) -> ConsumerRecords[K | None, V | None]:
        """Return the next records (of ``partitions``, else of all assigned): at least one, at most ``max_records``.

        With ``timeout_ms=None`` the call waits until there are records, with 0 it looks once; when the time is over, it
        returns {}. ``max_records`` defaults to max_poll_records. The call marks what earlier calls returned as
        processed. commit() takes the result as it is. Raises UsageError where one of ``partitions`` is not assigned, or
        not any more, and DeserializationFailed once the records before the failing one are returned.
        """
        most = self.config.max_poll_records if max_records is None else checked_count("max_records", max_records)
        timeout = checked_wait(timeout_ms)
        if not partitions:
            batch = self._poll.lease.take(most)
            if batch is not None:
                return batch
        return await self._poll.records(partitions, timeout, most, most)

    async def getmany_columns(
        self,
        *partitions: TopicPartition,
        timeout_ms: float | None = None,
        max_records: int | None = None,
        max_bytes: int = 4 << 20,
        columns: Iterable[str] | None = None,
        timestamp_unit: TimestampUnit = "ms",
    ) -> RecordColumns:
        """Return the next records as Arrow columns, which pyarrow, polars and DuckDB take over without a copy.

        The batch has what is buffered. It ends with the record with which it reaches ``max_bytes`` (default 4 MiB, at
        most 1 GiB), after ``max_records`` (default: no limit), or where fetch_buffer_bytes has no room to decompress
        more. ``columns`` are some of topic, partition, offset, timestamp, timestamp_type, key, value, headers and
        leader_epoch, in any order; None means all but leader_epoch. ``timestamp_unit`` is "ms", Kafka's own, or "us".
        Deserializers and interceptors do not see these records. When ``timeout_ms`` is over, the batch is empty.
        Everything else is as with getmany(); calls of both may alternate.

        Raises RecordError at a record that columns can't hold: over 2 GiB, or with a timestamp beyond microseconds.
        """
        most = _ALL_RECORDS if max_records is None else min(checked_count("max_records", max_records), _ALL_RECORDS)
        most_bytes = checked_count("max_bytes", max_bytes, most=_GIB)
        new = partial(new_builder, checked_columns(columns), timestamp_unit)
        wanted = ColumnPoll(self._runtime.collector, new, rows=most, size=most_bytes)
        return await self._poll.columns(partitions, checked_wait(timeout_ms), wanted)

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K | None, V | None]:
        """Wait for the next record (of ``partitions``, else of any assigned), and return it.

        The call marks what earlier calls returned as processed.
        """
        if not partitions:
            record = next(self._poll.steps.items, None)
            return record if record is not None else await self._poll.one()
        batch = await self._poll.records(partitions, None, LEAST_AHEAD, 1)
        return next(iter(batch.values()))[0]

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K | None, V | None]]:
        self._poll.in_use = self._in_use
        return self._poll.steps

    def __anext__(self) -> Coroutine[Any, Any, ConsumerRecord[K | None, V | None]]:
        """Return the next record, as getone() does; the iteration ends when the consumer is stopped."""
        self._poll.in_use = self._in_use
        return self._poll.steps.__anext__()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until resume(). What is buffered stays.

        The application still has to poll within max_poll_interval_ms. Raises UsageError where one is not assigned.
        """
        self._runtime.subscribing.pause(checked_partitions(partitions), True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again. Raises UsageError where one is not assigned."""
        self._runtime.subscribing.pause(checked_partitions(partitions), False)

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return self._runtime.subscription.paused()

    # Positions

    async def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record to hand out, as soon as it is known."""
        tp = checked_partition(partition)
        self._runtime.errors.check()  # before the look at what is assigned: after stop() that is nothing
        return (await wait_positions(self._runtime, [tp], self._seconds(timeout_ms)))[tp]

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on reading at ``offset``. Records that were fetched before are dropped.

        Raises UsageError where ``partition`` is not assigned, ConfigError where ``offset`` is no offset.
        """
        tp = checked_partition(partition)
        where = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        self._runtime.subscribing.seek({tp: checked_offset(f"cannot seek {tp} to", where)})

    async def seek_to_beginning(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> None:
        """Go on at the beginning of these partitions (none given: of all assigned); return when positions are known.

        Where none is given, those that a rebalance takes in the meantime are left out, and UsageError is raised before
        the first assignment since subscribe() (so by seek_to_end, seek_to_committed and committed): start() does not
        wait for that, wait_assigned() does. What a call has begun that is cancelled, or times out, goes on in the
        background.
        """
        await self._reset(partitions, EARLIEST, timeout_ms)

    async def seek_to_end(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> None:
        """Go on at the end of these partitions, as seek_to_beginning() at their beginning."""
        await self._reset(partitions, LATEST, timeout_ms)

    async def _reset(self, partitions: Iterable[TopicPartition], timestamp: int, timeout_ms: float | None) -> None:
        wanted, timeout = checked_partitions(partitions), self._seconds(timeout_ms)
        self._runtime.errors.check()  # a call that is refused has moved nothing
        moved = wanted or self._runtime.all_assigned()
        self._runtime.subscribing.reset(moved, timestamp)
        await wait_positions(self._runtime, moved, timeout, but_gone=not wanted)

    async def seek_to_committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Go on at the offsets that the group has committed (none given: of all assigned), and return those.

        Where the group has committed none (None), the position stays. Where no partition is given, those that a
        rebalance takes in the meantime are left out; a given one raises UsageError then, also if it has come back.
        """
        return await seek_to_committed(self._runtime, checked_partitions(partitions), self._seconds(timeout_ms))

    # Commits

    async def commit(
        self,
        offsets: Committable = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Store these offsets for the group, each the *next* one to read. None: all that was returned so far.

        ``offsets`` may be what one getmany() returned: then exactly that batch is committed, whatever was returned
        since.

        The consumer retries what can be retried until ``timeout_ms``. Raises CommitFailed where the group has gone on
        without this member, or has given a partition to another member in between; with UNKNOWN_TOPIC_ID once all is
        stored but the offsets of a topic that was recreated; and RebalanceInProgress while the group rebalances. After
        each of these, go on polling. Raises MemberFenced, AuthorizationFailed, and UsageError without a group_id.
        """
        with self._runtime.cluster_client.call():
            await self._runtime.group("commit()").commit(offsets, timeout=self._seconds(timeout_ms))

    def commit_soon(self, offsets: Committable = None, on_done: OnCommitted | None = None) -> None:
        """Send a commit without waiting for it: after earlier commits, once, and without a retry (Java's commitAsync).

        A later call of this consumer (getmany, getone, the iterator, commit, commit_soon, stop) calls
        ``on_done(offsets, error)`` in its own task: in the order of the commits, and before a later commit() or stop()
        returns. ``error`` is None if the offsets are stored, else what commit() would raise. What ``on_done`` raises,
        that later call raises; the end of a block that an exception ends only logs it. Without a callback the consumer
        logs an error. Calls that come faster than the coordinator answers share one request, and its outcome.
        """
        self._runtime.group("commit_soon()").commit_soon(offsets, on_done)

    async def committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed for these partitions (none given: for all assigned); None: nothing."""
        wanted = checked_partitions(partitions)
        with self._runtime.cluster_client.call():
            return await self._runtime.committed(wanted, timeout=self._seconds(timeout_ms))

    def group_metadata(self) -> GroupMetadata:
        """Return this member's identity, for a producer that commits its offsets within a transaction (KIP-447).

        Where the group has gone on without this member, or has revoked what the last call returned, it is the identity
        of that time: so the coordinator refuses the producer's offsets. Before the first assignment generation_id is
        -1, and member_id is "", or in the consumer protocol the id that the client has made. After assign() they are -1
        and "". Raises UsageError without a group_id.
        """
        return self._runtime.group("group_metadata()").membership.group_metadata

    # Looking at the cluster

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset that is still in the log of each partition. Positions stay as they are.

        beginning_offsets(), end_offsets() and offsets_for_times() raise UnknownTopic where a partition does not exist,
        after ``timeout_ms``: until then it may appear.
        """
        return await self._runtime.edges(checked_partitions(partitions), EARLIEST, timeout=self._seconds(timeout_ms))

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last record that isolation_level lets the consumer read; positions stay."""
        return await self._runtime.edges(checked_partitions(partitions), LATEST, timeout=self._seconds(timeout_ms))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset with a timestamp at or after each of these (ms since the epoch); None without one.

        Raises ConfigError for a negative timestamp.
        """
        wanted = checked_timestamps(timestamps)
        if any(timestamp < 0 for timestamp in wanted.values()):
            raise ConfigError("offsets_for_times takes timestamps in ms since the epoch, not negative ones")
        return await self._runtime.list_offsets(wanted, timeout=self._seconds(timeout_ms))

    async def partitions_for_topic(self, topic: str, *, timeout_ms: float | None = None) -> frozenset[int]:
        """Return the partition numbers of ``topic``. Raises UnknownTopic."""
        self._runtime.errors.check()
        topics = await self._runtime.cluster_client.topics(checked_topics([topic]), timeout=self._seconds(timeout_ms))
        return frozenset(topics[topic].partitions)

    async def list_topics(self, *, timeout_ms: float | None = None) -> dict[str, TopicInfo]:
        """Return all topics that this principal may see, internal ones too."""
        self._runtime.errors.check()
        return await self._runtime.cluster_client.topics(None, timeout=self._seconds(timeout_ms))

    def _seconds(self, timeout_ms: float | None) -> float:
        return checked_seconds(self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)
