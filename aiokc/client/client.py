"""The public Client: looks at topics, offsets and commits, and reads ranges of offsets, without joining a group."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from random import Random
from types import TracebackType
from typing import Any, Literal, Self, Unpack, cast, overload
from uuid import UUID

from ..config import ClientConfig, ClientOptions, IsolationLevel, configured
from ..core.cluster.avoided_replicas import AvoidedReplicas
from ..core.counters import FetchCounters
from ..net.own_thread import OwnThread
from ..observation import ReadMetrics
from ..records import checked_columns, new_builder
from ..records.columns import TimestampUnit
from ..types import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionRecords,
    RecordColumns,
    TopicInfo,
    TopicPartition,
)
from .admin.arguments import checked_isolation, checked_names
from .admin.asking import Asking
from .admin.cluster_calls import ClusterCalls
from .admin.group_calls import GroupCalls
from .admin.loading import drivers_loaded
from .arguments import (
    checked_count,
    checked_group,
    checked_offsets,
    checked_partitions,
    checked_ranges,
    checked_seconds,
    checked_timestamps,
    checked_topics,
)
from .cluster.cluster_client import ClusterClient
from .cluster.followed_topics import FollowedTopics
from .cluster.list_offsets import OffsetLister
from .fetch.range_reader import read_column_ranges, read_ranges
from .in_use import InUse
from .offsets.offsets_of_groups import OffsetsOfGroups


class Client(ClusterCalls, GroupCalls):
    """Looks at a cluster, reads ranges of offsets from it, and looks after groups from outside; joins none.

        async with Client(bootstrap_servers="localhost:9092") as client:
            ends = await client.list_offsets({TopicPartition("events", 0): LATEST})
            async for part in client.read({TopicPartition("events", 0): (0, 1000)}):
                ...

    Options are those of ClientConfig, by keyword or as ``config``. Every call raises RequestTimedOut after its
    ``timeout_ms`` (default: default_api_timeout_ms), ClientClosed before start() and after stop(), and ConfigError
    for an invalid argument. A Client that is garbage-collected while it runs gives a ResourceWarning and is stopped, as
    a Consumer is.
    """

    def __init__(self, config: ClientConfig | None = None, **options: Unpack[ClientOptions]) -> None:
        self.config = configured(ClientConfig, config, cast(dict[str, Any], options))
        random = Random()
        self._cluster = cluster_client = ClusterClient(self.config, random)
        self._lister = OffsetLister(self.config, cluster_client.pool, cluster_client.metadata, random)
        self._in_use = InUse(
            cluster_client,
            f"a Client (bootstrap_servers={self.config.bootstrap_servers!r})",
            lambda listener: cluster_client.stop(),
            lambda: None,
        )
        self._followed = FollowedTopics(self.config, self._cluster.metadata)
        self._groups = OffsetsOfGroups(self.config, cluster_client)
        self._fetched = FetchCounters()
        self._avoided = AvoidedReplicas()

    async def start(self, *, timeout_ms: float | None = None) -> None:
        """Connect; return once a broker has answered. Raises NoBrokersAvailable after ``timeout_ms``."""
        await self._cluster.start([self._followed.run], timeout=self._seconds(timeout_ms))

    async def stop(self) -> None:
        """Close every connection; a second call does nothing. Raises UsageError in another loop than start()'s."""
        await self._cluster.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def list_topics(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, TopicInfo]:
        """Ask the cluster for these topics (None: all that this principal may see); return them by name.

        Raises UnknownTopic where one does not exist, AuthorizationFailed without permission for one. The latter goes
        first.
        """
        self._cluster.check()
        wanted = None if names is None else checked_names(names, checked_topics)
        return await self._cluster.topics(wanted, timeout=self._seconds(timeout_ms))

    @overload  # each partition has a beginning and an end
    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, Literal[-2, -1]],
        *,
        isolation_level: IsolationLevel | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]: ...
    @overload
    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...
    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: IsolationLevel | None = None,
        timeout_ms: float | None = None,
    ) -> Any:
        """Return the first offset with a timestamp at or after each given one; None where there is none.

        A timestamp is in ms since the epoch, or EARLIEST, or LATEST: the offset behind the last record that
        ``isolation_level`` (None: the client's) lets a consumer read. Neither of the two has None as its result.
        aiokc.admin has three more: MAX_TIMESTAMP, the first record with the highest timestamp; EARLIEST_LOCAL, the
        first offset on the leader's own disk; and LATEST_TIERED, the last one in tiered storage. Raises
        UnsupportedVersion where a leader is older than those (Kafka 3.0, 3.5 and 3.9), and UnknownTopic where a topic
        or partition does not exist, after ``timeout_ms``: until then it may appear.
        """
        self._cluster.check()
        wanted = checked_timestamps(timestamps)
        level = None if isolation_level is None else checked_isolation(isolation_level)
        timeout = self._seconds(timeout_ms)
        with self._cluster.call(), self._following(wanted):
            return await self._lister.list_offsets(wanted, timeout=timeout, isolation_level=level)

    async def committed(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what ``group_id`` has committed for each partition; None where it has committed nothing."""
        self._cluster.check()
        wanted = checked_partitions(partitions)
        group = self._groups.of(checked_group(group_id))
        with self._cluster.call(), self._following(wanted):
            return await group.fetch(wanted, timeout=self._seconds(timeout_ms), topic_ids=self._topic_id)

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Store offsets for ``group_id``, from outside the group: each the next offset to read.

        Raises CommitFailed while the group has members.
        """
        self._cluster.check()
        wanted = checked_offsets(offsets)
        group = self._groups.of(checked_group(group_id))
        metadata, called_at = self._cluster.metadata, self._cluster.metadata.refreshed_at

        def current_id(topic: str) -> UUID | None:  # An older snapshot may be stale about a topic not followed since.
            return metadata.cluster.topic_id(topic) if metadata.refreshed_at > called_at else None

        with self._cluster.call(), self._following(wanted):
            await group.commit(wanted, timeout=self._seconds(timeout_ms), current_id=current_id)

    def read(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], *, timeout_ms: float | None = None
    ) -> AsyncGenerator[PartitionRecords, None]:
        """Iterate over the records of ``{partition: (from, until)}``, in order within each partition.

        ``until`` is exclusive. The iteration ends when every range is passed, also where offsets at its end hold no
        record, and the records of the batch behind them are corrupt. Raises OffsetOutOfRange where the start of a range
        was deleted, and AuthorizationFailed where a topic may not be seen or read. Raises RequestTimedOut after
        ``timeout_ms`` without progress, or UnknownTopic where a topic or partition does not exist then. Raises
        LogTruncated where the log was cut under what was read, and where the topic turns out to be recreated since this
        client last heard of it: the offsets may be those of the former topic. The next call reads the new one.
        """
        self._cluster.check()
        wanted = checked_ranges(ranges)
        return read_ranges(
            self._cluster,
            wanted,
            timeout=self._seconds(timeout_ms),
            counters=self._fetched,
            avoided=self._avoided,
            following=self._following(wanted),
        )

    def read_columns(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        *,
        columns: Iterable[str] | None = None,
        timestamp_unit: TimestampUnit = "ms",
        batch_bytes: int = 4 << 20,
        timeout_ms: float | None = None,
    ) -> AsyncGenerator[RecordColumns, None]:
        """Iterate over the records of ``{partition: (from, until)}`` as Arrow columns, in batches of some MB.

        A batch is full with the record with which it reaches ``batch_bytes`` (64 KiB to 1 GiB, default 4 MiB); the last
        one may be smaller, and has no row if all offsets behind the batch before hold no record. A batch may hold rows
        of several partitions, in order within each. Its ``next_offsets`` name every partition that has moved since the
        batch before; one that has had no row so far only at the end of its range. ``columns`` and ``timestamp_unit``
        are those of Consumer.getmany_columns(). The iteration ends and raises as read() does; the rows before an error
        come first.
        """
        self._cluster.check()
        size = checked_count("batch_bytes", batch_bytes, least=64 << 10, most=1 << 30)
        builder = new_builder(checked_columns(columns), timestamp_unit)
        wanted = checked_ranges(ranges)
        return read_column_ranges(
            self._cluster,
            wanted,
            builder=builder,
            batch_bytes=size,
            timeout=self._seconds(timeout_ms),
            counters=self._fetched,
            avoided=self._avoided,
            following=self._following(wanted),
        )

    def metrics(self) -> ReadMetrics:
        """Return what this client has fetched for its reads since it was made. Sends no request."""
        fetches = self._fetched.fetches
        return ReadMetrics(
            bytes=self._fetched.bytes, fetches=fetches.answered.snapshot(), failed_fetches=fetches.failed
        )

    @contextmanager
    def _following(self, partitions: Iterable[TopicPartition]) -> Iterator[None]:
        """Keep these topics' metadata up to date. A read in progress holds this, and so keeps the Client alive."""
        with self._followed.following({tp.topic for tp in partitions}):
            yield

    @asynccontextmanager
    async def _asking(self, timeout_ms: float | None) -> AsyncIterator[Asking]:
        with self._cluster.call(), closing(OwnThread("aiokc administration")) as thread:
            asking = Asking(self._cluster, self._lister, self._seconds(timeout_ms), thread)
            await drivers_loaded(asking)
            yield asking

    def _topic_id(self, topic: str) -> Any:
        return self._cluster.metadata.cluster.topic_id(topic)

    def _seconds(self, timeout_ms: float | None) -> float:
        return checked_seconds(self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)
