"""The public Consumer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Generic, Unpack, cast

from ...config import ConsumerConfig, ConsumerOptions, configured, named
from ...deserializer import AnyDeserializer
from ...errors import ConfigError
from ...observation import Health, Metrics
from ...records import checked_columns, new_builder
from ...records.columns import TimestampUnit
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
    TopicInfo,
    TopicPartition,
    V,
)
from ..aio.single_user import SingleUser
from ..arguments import (
    checked_count,
    checked_offset,
    checked_partition,
    checked_partitions,
    checked_seconds,
    checked_timestamps,
    checked_topics,
    is_text,
    is_topic_name,
)
from ..fetch.column_collector import ColumnPoll
from ..group.rebalance_listener import RebalanceListener
from ..group.user_commits import Committable
from ..in_use import InUse
from ..offsets.async_commits import OnCommitted
from .poll import Poll
from .record_stream import LEAST_AHEAD
from .runtime import ConsumerRuntime
from .waiting_for_assignment import wait_assigned

_ALL_RECORDS = 1 << 31
_GIB = 1 << 30
_STOP_MS = 30_000


class Consumer(Generic[K, V]):
    """Reads records from Kafka, alone or as a member of a group.

        async with Consumer("events", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            while True:
                for partition, records in (await consumer.getmany()).items():
                    await process(records)
                await consumer.commit()

    ``topics`` (names, or one compiled pattern) and ``listener`` are those of subscribe(); options are those of
    ConsumerConfig, by keyword or as ``config``. Keys are K and values V, what the deserializers return (functions of
    the bytes, or objects with ``deserialize``; sync or async), or None where the producer wrote null; bytes without.
    With ``group_id=None`` a subscription means all partitions of its topics, and commit() and committed() raise
    UsageError.

    One task at a time may be inside getmany, getone, the iterator or wait_assigned (ConcurrentCall). All calls that
    wait for something, or commit, raise ConsumerClosed outside start() ... stop(), and what ended the background, as
    itself, if something did. Every wait for the network ends after ``timeout_ms`` (default: default_api_timeout_ms)
    with RequestTimedOut, or NoBrokersAvailable where any broker could have answered. Only waiting for records is
    unbounded by default; it counts as polling. A cancelled call loses nothing. What is no partition, offset,
    timestamp, count or time to wait raises ConfigError.

    One that is forgotten while it runs, without stop(), gives a ResourceWarning, which in asyncio's debug mode says
    where it was made, and is stopped in the background.
    """

    def __init__(
        self,
        *topics: str | re.Pattern[str],
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
        if len(topics) == 1 and isinstance(topics[0], re.Pattern):
            self.subscribe(topics[0], listener=listener)
        elif topics:
            self.subscribe(cast(tuple[str, ...], topics), listener=listener)
        elif listener is not None:
            raise ConfigError("a listener comes with the topics: give some, or give it to subscribe()")

    # Life cycle

    async def start(self, *, timeout_ms: int | None = None) -> None:
        """Connect; return once a broker has answered. Raises NoBrokersAvailable after ``timeout_ms``.

        Joining the group goes on in the background. After a failure this consumer is stopped: make another one.
        """
        await self._runtime.start(timeout=self._seconds(timeout_ms))

    async def stop(self, *, timeout_ms: int = _STOP_MS, leave: bool | None = None) -> None:
        """Fetch no more, finish commits, commit (with enable_auto_commit) what earlier calls returned, leave, close.

        Ends in ``timeout_ms``, and each step waits only for what it can still bring: where nothing is left to commit
        and the listener is done at once, it takes 3 s at most, also where no broker answers. Raises UsageError in
        another event loop than that of start(). What the last call returned is not committed: stop() is called on
        success, on failure and by other tasks, and only the user knows whether that batch is processed; commit() it
        first, or use ``async with``. ``leave`` says whether the group is told at once (KIP-1092); None: only by a
        dynamic member.

        The listener's on_partitions_revoked() is called before the group is left; what it raises is raised at the end.
        There commit() leaves out what the last call returned, but for a block that ends without an exception. A
        getmany() that waits in another task raises ConsumerClosed. A second call waits for the first one.
        """
        await self._runtime.stop(timeout=checked_seconds(timeout_ms), leave_group=leave)
        self._runtime.listener.raise_last_error()

    async def __aenter__(self) -> Consumer[K, V]:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._user.was_this_task:
            # a block that ends without an exception is done with its last batch
            self._runtime.subscription.mark_processed()
        await self._runtime.stop(timeout=_STOP_MS / 1e3, leave_group=None)
        if error is None:  # else that one matters more, and those of the listener are in the log
            self._runtime.listener.raise_last_error()

    # What to read

    def subscribe(self, topics: Iterable[str] | re.Pattern[str], *, listener: RebalanceListener | None = None) -> None:
        """Read these topics instead of those subscribed before; none at all is unsubscribe().

        A compiled pattern means all topics whose whole name matches, in each new picture of the cluster: those that
        are created later are found within metadata_max_age_ms. ``listener`` is told of the partitions that come and
        go, in the place of the former one. Raises UsageError after assign(), and where names follow a pattern or a
        pattern names, without unsubscribe() in between.
        """
        if isinstance(listener, type):
            raise ConfigError(f"listener must be a RebalanceListener: give an instance of {listener.__name__}")
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise ConfigError(f"listener must be a RebalanceListener, not {type(listener).__name__}")
        if isinstance(topics, re.Pattern):
            if not isinstance(topics.pattern, str):
                raise ConfigError(f"a pattern of topics must be made from str, not from bytes: {topics.pattern!r}")
            self._runtime.subscribe(topics, listener)
            self._in_use.listener = listener
            return
        wanted = [topics] if isinstance(topics, str) else list(topics)
        if not all(map(is_topic_name, wanted)):
            raise ConfigError(f"topics must be non-empty strings, or one compiled pattern, not {wanted!r}")
        if wanted:
            self._runtime.subscribe(wanted, listener)
            self._in_use.listener = listener
        else:
            self._runtime.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, with no group deciding; none at all is unsubscribe().

        With a group_id, offsets can still be committed. Raises UsageError after subscribe().
        """
        wanted = checked_partitions(partitions)
        if wanted:
            self._runtime.assign(wanted)
        else:
            self._runtime.unsubscribe()

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group: assignment() is empty at once, the rest is done in the background.

        The listener's on_partitions_revoked() is called before the group is left; a commit() inside of it stores what
        was returned. A static member does not tell its group (KIP-345): it gets the same again where it subscribes to
        the same topics within ``session_timeout_ms``, and nobody rebalances; later others have its partitions.
        """
        self._runtime.unsubscribe()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group assign its partitions anew: for assignors whose user data has news for the leader.

        It happens in the background, and brokers log ``reason`` (KIP-800). Nothing happens while a rebalance is going
        on already, or before the consumer has joined. In on_partitions_assigned it would begin the next one each time.
        Raises UsageError without a group_id, or after assign().
        """
        if reason is not None and not is_text(reason):
            raise ConfigError(f"a reason must be a str of 32 KiB at most, not {type(reason).__name__}")
        self._runtime.enforce_rebalance(reason or "the user enforced a rebalance")

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; with a pattern, those that match it now."""
        return self._runtime.subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now."""
        return frozenset(self._runtime.subscription.assigned)

    async def wait_assigned(self, *, timeout_ms: int | None = None) -> frozenset[TopicPartition]:
        """Wait until partitions are assigned, and on_partitions_assigned() is done; return all that are.

            async with Consumer("events", group_id="replay") as consumer:
                for partition in await consumer.wait_assigned():
                    consumer.seek(partition, 0)

        Returns at once where that is so already, after assign() always. A group, or without one the cluster's answer,
        may have none for this consumer, which is an assignment, too: the set is empty where there are more members than
        partitions, or no topic of these exists. A member whose pattern matches nothing waits outside the group, and
        this call with it. The next rebalance may come at any time: a listener hears of that.

        Waiting here is polling, as waiting for records is: calling it says that what earlier calls returned is
        processed, and one task at a time may be in here or there (ConcurrentCall). Raises what getmany() would raise
        of group and topics (not of positions: the user may be about to seek), UsageError where nothing is subscribed
        to and in a listener, and RequestTimedOut after ``timeout_ms``.
        """
        self._poll.run.close()
        return await wait_assigned(self._runtime, self._user, self._seconds(timeout_ms))

    # Records

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int | None = None, max_records: int | None = None
    ) -> ConsumerRecords[K | None, V | None]:
        """Return the next records (of ``partitions``, else of all), at least one, at most ``max_records``.

        ``timeout_ms``: None waits for records, 0 looks once; {} is returned when it is over. ``max_records`` is
        max_poll_records unless given. Calling it says that what earlier calls returned is processed. commit() takes
        what it returns. Raises UsageError where one of ``partitions`` is not assigned, or not any more, and
        DeserializationFailed once what lies before that record is returned.
        """
        most = self.config.max_poll_records if max_records is None else checked_count("max_records", max_records)
        return await self._poll.records(partitions, _seconds_or_none(timeout_ms), most, most)

    async def getmany_columns(
        self,
        *partitions: TopicPartition,
        timeout_ms: int | None = None,
        max_records: int | None = None,
        max_bytes: int = 4 << 20,
        columns: Iterable[str] | None = None,
        timestamp_unit: TimestampUnit = "ms",
    ) -> RecordColumns:
        """Return the next records as Arrow columns, which pyarrow, polars and DuckDB take over without a copy.

        All that is buffered is returned at once, up to the record by which the batch has ``max_bytes`` (at most 1 GiB),
        or ``max_records`` of them. ``columns`` are some of topic, partition, offset, timestamp, timestamp_type, key,
        value, headers and leader_epoch, in any order; None is all but the last. ``timestamp_unit`` is "ms", Kafka's
        own, or "us". Deserializers see nothing of them, and the batch is empty when ``timeout_ms`` is over. Everything
        else is as with getmany(), and the two may take turns.

        Raises RecordError at a record that columns can't hold: over 2 GiB, or with a timestamp beyond microseconds.
        """
        most = _ALL_RECORDS if max_records is None else min(checked_count("max_records", max_records), _ALL_RECORDS)
        most_bytes = checked_count("max_bytes", max_bytes, most=_GIB)
        new = partial(new_builder, checked_columns(columns), timestamp_unit)
        wanted = ColumnPoll(self._runtime.collector, new, rows=most, size=most_bytes)
        return await self._poll.columns(partitions, _seconds_or_none(timeout_ms), wanted)

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K | None, V | None]:
        """Return the next record (of ``partitions``, else of any), waiting for it.

        Calling it says that what earlier calls returned is processed.
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
        """The next record; the iteration ends when the consumer is stopped."""
        self._poll.in_use = self._in_use
        return self._poll.steps.__anext__()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these until resume(). What is buffered stays; the group needs polls all the same."""
        self._runtime.pause(checked_partitions(partitions), True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these again."""
        self._runtime.pause(checked_partitions(partitions), False)

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return self._runtime.subscription.paused()

    # Positions

    async def position(self, partition: TopicPartition, *, timeout_ms: int | None = None) -> int:
        """Return the offset of the next record that will be returned, as soon as it is known."""
        tp = checked_partition(partition)
        return (await self._runtime.positions([tp], timeout=self._seconds(timeout_ms)))[tp]

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on reading at ``offset``; nothing of what was fetched before is returned any more."""
        tp = checked_partition(partition)
        where = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        self._runtime.seek(tp, checked_offset(f"cannot seek {tp} to", where))

    async def seek_to_beginning(self, *partitions: TopicPartition, timeout_ms: int | None = None) -> None:
        """Go on at the beginning of these (none given: of all assigned); the new positions are known on return."""
        await self._runtime.seek_by_time(checked_partitions(partitions), EARLIEST, timeout=self._seconds(timeout_ms))

    async def seek_to_end(self, *partitions: TopicPartition, timeout_ms: int | None = None) -> None:
        """Go on at the end of these (none given: of all assigned); the new positions are known on return."""
        await self._runtime.seek_by_time(checked_partitions(partitions), LATEST, timeout=self._seconds(timeout_ms))

    async def seek_to_committed(
        self, *partitions: TopicPartition, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Go on at what the group has committed, and return that; where it has nothing (None), the position stays."""
        wanted = partitions or tuple(self._runtime.subscription.assigned)
        committed = await self.committed(*wanted, timeout_ms=timeout_ms)
        for tp, offset in committed.items():
            if offset is not None:
                self.seek(tp, offset)
        return committed

    # Commits

    async def commit(
        self,
        offsets: Committable = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Store, for the group, these offsets: each the *next* one to read. None: all that was returned so far.

        What one getmany() returned can be given as it is: then that batch is stored, whatever was returned since.

        Retries what can be retried until ``timeout_ms``. Raises CommitFailed where the group has gone on without this
        member or given a partition to another one in between, RebalanceInProgress while it assigns anew (after both,
        go on polling), MemberFenced, AuthorizationFailed, and UsageError without a group_id.
        """
        await self._runtime.group("commit()").commit(offsets, timeout=self._seconds(timeout_ms))

    def commit_soon(self, offsets: Committable = None, on_done: OnCommitted | None = None) -> None:
        """Send a commit without waiting for it: after those called for before, once, and never again (commitAsync).

        ``on_done(offsets, error)`` is called by a later call of this consumer in its task (getmany, getone, the
        iterator, commit, commit_soon, stop): in the order of the calls, and all before a later commit() or stop()
        returns. ``error`` is None where they are stored, else what commit() would raise. Without a callback an error is
        logged. What ``on_done`` raises, that later call raises. Calls that come faster than the coordinator answers
        share one request, and its outcome.
        """
        self._runtime.group("commit_soon()").commit_soon(offsets, on_done)

    async def committed(
        self, *partitions: TopicPartition, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed for these (none given: for all assigned); None where it has nothing."""
        wanted = checked_partitions(partitions) or list(self._runtime.subscription.assigned)
        return await self._runtime.committed(wanted, timeout=self._seconds(timeout_ms))

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group, for a producer that commits what it returned within a transaction.

        Where the group has gone on without it, or has taken what the last call returned, that is who it was then: so
        the producer is refused. Before the first assignment, and after assign(), generation_id is -1 and member_id "".
        Raises UsageError without a group_id.
        """
        return self._runtime.group("group_metadata()").coordinator.group_metadata

    # Looking at itself

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie between the position and the end that isolation_level lets be read.

        As of the last fetch, and without a request; None before that, or without a position. Raises UsageError where
        ``partition`` is not assigned.
        """
        return self._runtime.current_lag(checked_partition(partition))

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark: the offset behind the last record that all in-sync replicas have.

        Like the next two it asks nobody, is None before the first answer to a Fetch of ``partition``, and raises
        UsageError where that is not assigned. ``end_offsets()`` asks the leader.
        """
        return self._runtime.subscription[checked_partition(partition)].high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The offset up to which all transactions are over: where ``isolation_level="read_committed"`` ends.

        None where brokers do not tell it: up to Kafka 0.10, and to a consumer that reads uncommitted records.
        """
        return self._runtime.subscription[checked_partition(partition)].last_stable_offset

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When a broker was last heard of about ``partition``, in ms since the epoch: highwater() is as of then.

        Also where there was nothing new. While nothing is fetched (it is paused, or enough is buffered) it stands.
        When this consumer was last polled says ``health().last_poll_age_ms``.
        """
        return self._runtime.last_poll_timestamp(checked_partition(partition))

    def health(self) -> Health:
        """Whether it is well, at this moment: for a liveness probe, or a log line. Never raises, asks nobody."""
        return self._runtime.health()

    def metrics(self) -> Metrics:
        """What it has done since it was made, and the lag of each partition. Asks nobody."""
        self._poll.run.count()
        return self._runtime.metrics()

    # Looking at the cluster

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset that is still in the log of each partition. Positions stay as they are.

        Like the next two, it raises UnknownTopic where one does not exist, after ``timeout_ms``: it may be about to
        appear.
        """
        return await self._runtime.edges(checked_partitions(partitions), EARLIEST, timeout=self._seconds(timeout_ms))

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last record that isolation_level lets be read. Positions stay as they are."""
        return await self._runtime.edges(checked_partitions(partitions), LATEST, timeout=self._seconds(timeout_ms))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset whose timestamp is at or after each of these (ms); None where there is none."""
        wanted = checked_timestamps(timestamps)
        if any(timestamp < 0 for timestamp in wanted.values()):
            raise ConfigError("offsets_for_times takes timestamps in ms since the epoch, not negative ones")
        return await self._runtime.list_offsets(wanted, timeout=self._seconds(timeout_ms))

    async def partitions_for_topic(self, topic: str, *, timeout_ms: int | None = None) -> frozenset[int]:
        """Return the partition numbers of ``topic``. Raises UnknownTopic."""
        self._runtime.check()
        topics = await self._runtime.cluster_client.topics(checked_topics([topic]), timeout=self._seconds(timeout_ms))
        return frozenset(topics[topic].partitions)

    async def list_topics(self, *, timeout_ms: int | None = None) -> dict[str, TopicInfo]:
        """Return all topics that this principal may see, internal ones too."""
        self._runtime.check()
        return await self._runtime.cluster_client.topics(None, timeout=self._seconds(timeout_ms))

    def _seconds(self, timeout_ms: int | None) -> float:
        return checked_seconds(self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)


def _seconds_or_none(timeout_ms: int | None) -> float | None:
    return None if timeout_ms is None else checked_seconds(timeout_ms)
