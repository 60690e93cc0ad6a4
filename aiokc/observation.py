"""The values that health() and metrics() return: a consumer's state at one moment, and its counters so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import KafkaError
from .types import TopicPartition


@dataclass(frozen=True, slots=True)
class Latency:
    """How often something was done (``count``), and how long it took, in ms.

    ``last_ms`` is None where it was never done.
    """

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    last_ms: float | None = None

    @property
    def mean_ms(self) -> float | None:
        """The mean duration in ms; None where it was never done."""
        return self.total_ms / self.count if self.count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of a consumer at one moment. Ages are in ms, and None where the event never happened or can't happen.

    running                 the consumer was started and not stopped, and nothing has ended its background
    error                   what its calls raise from now on: make another consumer. An error that the coordinator
                            refused this member with is raised once; it stands here until another call for records has
                            led to an assignment, or until unsubscribe()
    last_error              what goes wrong at the moment, and is retried: a broker or the coordinator that can't be
                            reached or refuses this member, an auto-commit that failed, an assignment that the consumer
                            can't take over
    assigned                the partitions that it reads
    generation, member_id   its membership in the group: -1 and "" outside of any
    rebalancing             it gives up partitions, joins, or waits for its assignment
    last_heartbeat_age_ms   since the coordinator last answered a heartbeat of the event loop. Heartbeats of the
                            watchdog thread do not count; while a JoinGroup waits, a member sends no heartbeats. None
                            without a group
    last_poll_age_ms        since the last call for records ended; 0 while a call waits for records
    """

    running: bool
    error: Exception | None
    last_error: KafkaError | None
    assigned: frozenset[TopicPartition]
    generation: int
    member_id: str
    rebalancing: bool
    last_heartbeat_age_ms: float | None
    last_poll_age_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What a consumer has done since it was made. Counters only grow: for a rate, take two values and subtract.

    polls                   calls of getmany, getmany_columns, getone, wait_assigned and the iterator
    records                 how many records these calls handed out, those that interceptors left out included
    bytes                   how many bytes of record batches were fetched, compressed as they came
    fetches                 answered Fetch requests; their time includes the broker's wait for data
    failed_fetches          Fetch requests without an answer
    joins, syncs            answered JoinGroup and SyncGroup requests; a JoinGroup waits for the other members
    failed_joins            JoinGroup and SyncGroup requests that were refused, or without an answer
    rebalances              finished rebalances, each from its first step until the assignment
    heartbeats              answered heartbeats
    failed_heartbeats       heartbeats that were refused, or without an answer; "the group is rebalancing" is an answer
    commits                 answered OffsetCommit requests, auto-commits among them
    failed_commits          OffsetCommit requests that were refused for one partition at least, or without an answer
    lag                     for each assigned partition the offsets between the position and the end that
                            isolation_level lets the consumer read; None before the first fetch, or without a position
    """

    polls: int
    records: int
    bytes: int
    fetches: Latency
    failed_fetches: int
    joins: Latency
    syncs: Latency
    failed_joins: int
    rebalances: Latency
    heartbeats: Latency
    failed_heartbeats: int
    commits: Latency
    failed_commits: int
    lag: Mapping[TopicPartition, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMetrics:
    """What a Client has fetched for ``read`` and ``read_columns`` since it was made. Counters only grow.

    bytes                   how many bytes of record batches were fetched, compressed as they came
    fetches                 answered Fetch requests; their time includes the broker's wait for data
    failed_fetches          Fetch requests without an answer
    """

    bytes: int
    fetches: Latency
    failed_fetches: int
