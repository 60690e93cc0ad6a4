"""What a consumer tells about itself: is it well, and what has it done so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import KafkaError
from .types import TopicPartition


@dataclass(frozen=True, slots=True)
class Latency:
    """How often something was done, and how long it took, in ms."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    last_ms: float | None = None

    @property
    def mean_ms(self) -> float | None:
        """None where it was never done."""
        return self.total_ms / self.count if self.count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A consumer at one moment. Ages in ms; None where it never happened, and for what only members of groups have.

    running                 it was started and not stopped, and nothing has ended its background
    error                   what its calls raise from here on: make another consumer. What the coordinator refuses is
                            raised once, and stands here until another call for records has led to an assignment, or
                            until unsubscribe()
    last_error              what goes wrong at the moment, and is tried again: a broker or the coordinator that is not
                            reached or refuses this member, an auto-commit that failed, an assignment that cannot be
                            taken
    assigned                the partitions that it reads
    generation, member_id   its place in the group: -1 and "" outside of any
    rebalancing             it hands over partitions, joins, or waits for its assignment
    last_heartbeat_age_ms   since the coordinator last answered a heartbeat of the event loop; those of the thread do
                            not count, and there are none while a JoinGroup waits
    last_poll_age_ms        since it was last asked for records; 0 while somebody waits for them
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
    """What a consumer has done since it was made; counters only grow. Take two and subtract, for a rate.

    polls                   calls of getmany, getone and the iterator
    records                 what they returned
    bytes                   what was fetched, compressed as it came
    fetches                 answered Fetch requests; with what the broker waited for data
    failed_fetches          those without an answer
    joins, syncs            answered JoinGroup and SyncGroup requests; a JoinGroup waits for the other members
    failed_joins            JoinGroup and SyncGroup requests that were refused, or without an answer
    rebalances              from the first step of each until the assignment
    heartbeats              answered ones
    failed_heartbeats       refused, or without an answer; "the group is rebalancing" is an answer
    commits                 answered OffsetCommit requests, auto-commits among them
    failed_commits          those refused, for one partition at least, or without an answer
    lag                     of each assigned partition: records between the position and the end that isolation_level
                            lets be read; None before the first fetch, or without a position
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
    """What a client has fetched for ``read`` and ``read_columns`` since it was made; counters only grow.

    bytes                   what was fetched, compressed as it came
    fetches                 answered Fetch requests; with what the broker waited for data
    failed_fetches          those without an answer
    """

    bytes: int
    fetches: Latency
    failed_fetches: int
