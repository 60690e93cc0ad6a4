"""Builds what health() and metrics() return from what the consumer's parts know: no request, no await."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from ...config import ClusterConfig
from ...core.cluster.snapshot import Cluster
from ...core.counters import AssignmentCounters
from ...core.fetch.stall_watch import Turn
from ...core.subscription.position import PartitionPosition
from ...core.subscription.state import Subscription
from ...error_codes import ErrorCode
from ...errors import KafkaError, fresh
from ...observation import Health, Latency, Metrics
from ...types import TopicPartition
from ..cluster.cluster_client import ClusterClient
from ..cluster.leaderless import no_leader
from ..fetch.fetcher import Fetcher
from ..group.assignment_source import SourceReport

#: The partition number of an entry for a whole topic.
ALL_PARTITIONS: Final = -1

#: Adds what a record stream has handed out and not counted yet to the counters (records, polls) that a function reads.
Uncounted: TypeAlias = Callable[[Callable[[], tuple[int, int]]], tuple[int, int]]


class PollRecord:
    """Counts the application's calls for records, and how long these took, and the time between them (loop time).

    Other threads read it, so what belongs together is replaced at once. Else: 1. A thread of prometheus_client's reads
    that a call is under way. 2. The loop ends that call, and adds its time. 3. The thread adds it once more. At the
    next scrape the counter is smaller, which Prometheus takes for a restart.
    """

    def __init__(self) -> None:
        self.count = 0
        # The seconds inside calls, and between them; when the call under way began, and when the last one ended.
        self._state: tuple[float, float, float | None, float | None] = 0.0, 0.0, None, None
        self._final: tuple[float, float] | None = None

    def begins(self, now: float) -> None:
        self.count += 1
        waited, used, _, last = self._state
        self._state = waited, used if last is None else used + now - last, now, last

    def ends(self, now: float) -> None:
        waited, used, began, _ = self._state
        self._state = waited if began is None else waited + now - began, used, None, now

    def took(self, began: float, now: float) -> None:
        """A call has begun and ended, as ``begins`` and ``ends`` would say."""
        self.count += 1
        waited, used, _, last = self._state
        self._state = waited + now - began, used if last is None else used + began - last, None, now

    def stops(self, now: float) -> None:
        """The consumer has stopped: no time counts from here on."""
        self._final = self.times(now)

    def times(self, now: float) -> tuple[float, float]:
        """The seconds inside calls and between calls, up to ``now``."""
        if self._final is not None:
            return self._final
        waited, used, began, last = self._state
        if began is not None:
            return waited + now - began, used
        return waited, used if last is None else used + now - last

    def age_ms(self, now: float, since: float | None) -> float | None:
        """Return how long ago the last call ended. ``since``: what it counts from until there was a call.

        None once the consumer has stopped: else the age would grow for as long as the object is there.
        """
        if self._final is not None:
            return None
        _, _, began, last = self._state
        if began is not None:
            return 0.0
        last = since if last is None else last
        return None if last is None else (now - last) * 1e3


def health(
    cluster_client: ClusterClient[ClusterConfig],
    subscription: Subscription,
    polls: PollRecord,
    source: SourceReport,
    *,
    has_assignment: bool,
    stalled: Mapping[TopicPartition, float],
    refusal: KafkaError | None,
) -> Health:
    now = cluster_client.now()
    counters = source.group
    beat = None if cluster_client.stopped else counters.last_heartbeat
    error = cluster_client.background.error or source.error
    cluster = cluster_client.metadata.cluster
    wanted = (tp for tp, position in list(subscription.assigned.items()) if not position.paused)
    last_error = (
        source.last_error
        or cluster_client.metadata.error
        or no_leader(wanted, cluster)
        or refusal
        or cluster_client.pool.trouble(now)
    )
    return Health(
        running=cluster_client.running and cluster_client.background.alive,
        error=None if error is None else fresh(error),  # the caller may raise it
        last_error=None if last_error is None else fresh(last_error),
        assigned=frozenset(list(subscription.assigned)),
        group_protocol=None if source.protocol is None else source.protocol.name,
        group_protocol_reason="" if source.protocol is None else source.protocol.reason,
        generation=source.generation,
        member_id=source.member_id,
        rebalancing=counters.rebalancing_since is not None,
        last_heartbeat_age_ms=None if beat is None else (now - beat) * 1e3,
        last_poll_age_ms=polls.age_ms(now, source.polled_at),
        has_assignment=has_assignment,
        stalled=stalled,
        missing_topics=_missing_topics(cluster, subscription),
        coordinator=None if source.coordinator is None else cluster.brokers.get(source.coordinator),
        cluster_id=cluster.cluster_id,
        stopped=cluster_client.stopped,
    )


def _missing_topics(cluster: Cluster, subscription: Subscription) -> frozenset[str]:
    unknown = [topic for topic, code in cluster.errors.items() if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    if not unknown:
        return frozenset()
    return frozenset(unknown).intersection(subscription.topics or {tp.topic for tp in list(subscription.assigned)})


def standing_still(
    subscription: Subscription, fetcher: Fetcher, now: float, *, read_committed: bool
) -> list[tuple[TopicPartition, PartitionPosition, Turn]]:
    """The partitions that should bring records now and have none, and what they may wait for."""
    assigned = list(subscription.assigned.items())  # another thread than the loop's may ask
    return [
        (tp, position, turn)
        for tp, position in assigned
        if (turn := fetcher.standstill.of(tp, position, position.lag(read_committed), now)) is not None
    ]


def metrics(
    cluster_client: ClusterClient[ClusterConfig],
    subscription: Subscription,
    polls: PollRecord,
    fetcher: Fetcher,
    source: SourceReport,
    changes: AssignmentCounters,
    loop_lag: Latency,
    stream: Uncounted,
    *,
    read_committed: bool,
    per_partition: bool,
) -> Metrics:
    group, commits, fetched = source.group, source.commits, fetcher.counters
    handed_out, more_polls = stream(lambda: (fetched.records, polls.count))
    waited, used = polls.times(cluster_client.now())
    buffered_bytes, buffered_records = fetcher.buffered
    partitions = _Partitions(list(subscription.assigned.items()), read_committed)
    if not per_partition:
        partitions = partitions.by_topic()
    return Metrics(
        polls=more_polls,
        records=handed_out,
        bytes=fetched.bytes,
        fetches=fetched.fetches.answered.snapshot(),
        failed_fetches=fetched.fetches.failed,
        joins=group.joins.snapshot(),
        syncs=group.syncs.snapshot(),
        failed_joins=group.failed_joins,
        rebalances=group.rebalances.snapshot(),
        heartbeats=group.heartbeats.answered.snapshot(),
        failed_heartbeats=group.heartbeats.failed,
        commits=commits.answered.snapshot(),
        failed_commits=commits.failed,
        lag=partitions.lag,
        lead=partitions.lead,
        position=partitions.position,
        committed=partitions.committed,
        poll_wait_ms=waited * 1e3,
        user_ms=used * 1e3,
        buffered_bytes=buffered_bytes,
        buffered_records=buffered_records,
        nodes=cluster_client.pool.metrics,
        undecodable=fetched.undecodable,
        revoked=changes.revoked,
        lost=changes.lost,
        listener=changes.listener.snapshot(),
        loop_lag=loop_lag,
    )


class _Partitions:
    """The figures of Metrics that each partition has."""

    def __init__(self, assigned: Iterable[tuple[TopicPartition, PartitionPosition]], read_committed: bool) -> None:
        self.lag: dict[TopicPartition, int | None] = {}
        self.lead: dict[TopicPartition, int | None] = {}
        self.position: dict[TopicPartition, int | None] = {}
        self.committed: dict[TopicPartition, int | None] = {}
        for tp, position in assigned:
            self.lag[tp], self.lead[tp] = position.lag(read_committed), position.lead()
            self.position[tp] = position.position if position.has_position else None
            self.committed[tp] = position.committed

    def by_topic(self) -> _Partitions:
        """The sum of each topic's lags, and the smallest lead; None where no partition of the topic has one."""
        whole = _Partitions((), False)
        for tp, lag in self.lag.items():
            topic, lead = TopicPartition(tp.topic, ALL_PARTITIONS), self.lead[tp]
            so_far, least = whole.lag.get(topic), whole.lead.get(topic)
            whole.lag[topic] = so_far if lag is None else lag + (so_far or 0)
            whole.lead[topic] = least if lead is None else lead if least is None else min(lead, least)
        return whole
