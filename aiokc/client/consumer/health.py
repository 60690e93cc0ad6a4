"""Builds what health() and metrics() return from what the consumer's parts know: no request, no await."""

from __future__ import annotations

from ...core.subscription.state import Subscription
from ...errors import fresh
from ...observation import Health, Metrics
from ..cluster.cluster_client import ClusterClient
from ..fetch.fetcher import Fetcher
from ..group.assignment_source import SourceReport


class PollRecord:
    """Counts the application's calls for records, and keeps the time at which the last one ended (loop time)."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting = False
        self._last: float | None = None

    def begins(self) -> None:
        self.count += 1
        self._waiting = True

    def ends(self, now: float) -> None:
        self._waiting = False
        self._last = now

    def age_ms(self, now: float) -> float | None:
        if self._waiting:
            return 0.0
        return None if self._last is None else (now - self._last) * 1e3


def health(
    cluster_client: ClusterClient, subscription: Subscription, polls: PollRecord, source: SourceReport
) -> Health:
    now = cluster_client.now()
    counters = source.group
    beat = counters.last_heartbeat
    error = cluster_client.background.error or source.error
    last_error = source.last_error or cluster_client.metadata.error or cluster_client.pool.error
    return Health(
        running=cluster_client.running and cluster_client.background.alive,
        error=None if error is None else fresh(error),  # the caller may raise it
        last_error=None if last_error is None else fresh(last_error),
        assigned=frozenset(subscription.assigned),
        generation=source.generation,
        member_id=source.member_id,
        rebalancing=counters.rebalancing_since is not None,
        last_heartbeat_age_ms=None if beat is None else (now - beat) * 1e3,
        last_poll_age_ms=polls.age_ms(now),
    )


def metrics(
    subscription: Subscription,
    polls: PollRecord,
    fetcher: Fetcher,
    source: SourceReport,
    *,
    read_committed: bool,
) -> Metrics:
    group, commits = source.group, source.commits
    fetched = fetcher.counters
    return Metrics(
        polls=polls.count,
        records=fetched.records,
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
        lag={tp: position.lag(read_committed) for tp, position in subscription.assigned.items()},
    )
