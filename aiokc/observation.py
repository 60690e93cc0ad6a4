"""The values that health() and metrics() return: a client's state at one moment, and its counters so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .errors import KafkaError
from .types import Broker, TopicPartition


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
class NodeMetrics:
    """What a client has exchanged with one broker since it was made. Counters only grow.

    connected               whether a connection is open that accepts requests
    connects                connections that were made, each with TLS and login as far as wanted
    requests                answered requests of all kinds, with the time that the broker held a Fetch or a JoinGroup
    throttle                answers by which the broker throttled this client, and for how long (KIP-219)
    """

    connected: bool
    connects: int
    requests: Latency
    throttle: Latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of a consumer at one moment. Ages are in ms, and None where the event never happened or can't happen.

    running                 the consumer was started and not stopped, and nothing has ended its background
    error                   what its calls raise from now on: make another consumer. An error that the coordinator
                            refused this member with is raised once; it stands here until another call for records has
                            led to an assignment, or until unsubscribe()
    last_error              what goes wrong at the moment, and is retried: a broker or the coordinator that can't be
                            reached or refuses this member, an auto-commit that failed, an assignment that the consumer
                            can't take over, partitions that have no leader, a broker that refuses to send records. A
                            broker that nothing tries to reach any more is forgotten after half a minute
    assigned                the partitions that it reads
    group_protocol          the group protocol that it speaks, "classic" or "consumer" (KIP-848); None without a group,
                            and with "auto" until the coordinator has answered the first join
    group_protocol_reason   why that one, in words: the option, and what "auto" has found; "" without a group
    generation, member_id   its membership in the group: -1 and "" outside of any
    rebalancing             it gives up partitions, joins, or waits for its assignment
    last_heartbeat_age_ms   since the coordinator last answered a heartbeat of the event loop. Heartbeats of the
                            watchdog thread do not count; while a JoinGroup waits, a member sends no heartbeats. None
                            without a group, and once the consumer has unsubscribed or stopped
    last_poll_age_ms        since the last call for records ended; 0 while a call waits for records. A member of a group
                            that was never polled counts from when it began to join, as max_poll_interval_ms does.
                            None once it has stopped
    has_assignment          the group, the metadata or assign() have given it an assignment, maybe an empty one, and the
                            rebalance listener is done with it. False during a rebalance
    stalled                 the partitions that bring no records although there are some, and for how many ms, counted
                            from the first health() that found it so. The position stands still, the lag is not 0, the
                            application holds none of the partition's records, and its broker answers. Paused
                            partitions, those with records in memory, those that wait for their turn while the broker
                            sends all that an answer may bring, and those whose broker does not answer, or refuses them
                            by an error, are not stalled. A corrupt batch, or a record that a deserializer refuses,
                            stalls its partition
    missing_topics          the topics that it subscribes to by name, or was assigned, and that no broker knows: they
                            are misspelled, were deleted, or are not created yet. It goes on looking for them
    coordinator             the broker that coordinates the group, where that is known
    cluster_id              the cluster's id, where a broker has told it
    stopped                 stop() was called, or start() has failed: it never runs again
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
    has_assignment: bool = False
    stalled: Mapping[TopicPartition, float] = field(default_factory=dict)
    missing_topics: frozenset[str] = frozenset()
    coordinator: Broker | None = None
    cluster_id: str | None = None
    group_protocol: str | None = None
    group_protocol_reason: str = ""
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What a consumer has done since it was made. Counters only grow: for a rate, take two values and subtract.

    Mappings by partition have each assigned partition. With ``metrics(per_partition=False)`` they have one entry for
    each topic, whose partition is -1: the sum of its lags, and its smallest lead; positions and committed offsets,
    which mean nothing in sum, are left out.

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
    lead                    for each assigned partition the offsets between the start of its log and the position: near
                            0, retention is about to delete what was not read yet; None as for ``lag``
    position                for each assigned partition the offset of the next record to hand out; None without one
    committed               for each assigned partition the offset that the group has committed, as far as this consumer
                            knows: it has committed that itself, or looked it up. None otherwise
    poll_wait_ms            time inside calls for records, which wait, decode and deserialize
    user_ms                 time between two such calls: what the application does with the records. The share of
                            ``poll_wait_ms`` in the sum of both is Java's poll-idle-ratio
    buffered_bytes          memory in use for fetched batches, spare buffers included; fetch_buffer_bytes bounds it
    buffered_records        what is fetched and not handed out, counted by offsets
    nodes                   what was exchanged with each broker, by node id
    undecodable             how often a deserializer refused a record; each further attempt at the same record counts
    revoked, lost           partitions that were given up in order, and those that were taken away
    listener                calls of the rebalance listener
    loop_lag                how late the event loop ran a timer that is due every second: its delays hold up everything
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
    lead: Mapping[TopicPartition, int | None]
    position: Mapping[TopicPartition, int | None]
    committed: Mapping[TopicPartition, int | None]
    poll_wait_ms: float
    user_ms: float
    buffered_bytes: int
    buffered_records: int
    nodes: Mapping[int, NodeMetrics]
    undecodable: int
    revoked: int
    lost: int
    listener: Latency
    loop_lag: Latency


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTrouble:
    """What keeps the records of one partition from being stored at the moment. Times are in ms.

    error                   the last attempt's error, or why there was none: no leader, no producer id yet, a broker
                            that can't be reached
    batches                 how many of its batches are not acknowledged
    age_ms                  since the oldest of their records was appended
    retry_in_ms             when the next attempt may begin; None where something else has to happen first
    """

    error: str
    batches: int
    age_ms: float
    retry_in_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerHealth:
    """The state of a producer at one moment. Ages are in ms, and None where there is nothing to tell the age of.

    running                 the producer was started and not stopped, and nothing has ended its background
    error                   what its calls raise from now on: make another producer
    last_error              what goes wrong at the moment, and is retried: brokers that can't be reached, metadata, a
                            transaction that its coordinator refuses for now
    oldest_unanswered_age_ms   since the oldest record was appended that is not acknowledged; delivery_timeout_ms
                            bounds it
    buffered_bytes          what such records occupy, and those whose callbacks were not called yet; buffer_memory
                            bounds it
    memory_waiters          how many calls of send() wait for memory
    producer_id, epoch      who the producer is to brokers (KIP-98); -1 without idempotence, and before a broker gave it
    transaction_state       Kafka's name of the transaction's state, as "READY" or "IN_TRANSACTION"; None without
                            transactions
    troubled                the partitions whose records can't be stored at the moment, and why
    cluster_id              the cluster's id, where a broker has told it
    stopped                 stop() was called, or start() has failed: it never runs again
    """

    running: bool
    error: Exception | None
    last_error: KafkaError | None
    oldest_unanswered_age_ms: float | None
    buffered_bytes: int
    memory_waiters: int
    producer_id: int
    epoch: int
    transaction_state: str | None
    troubled: Mapping[TopicPartition, PartitionTrouble]
    cluster_id: str | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerMetrics:
    """What a producer has done since it was made. Counters only grow: for a rate, take two values and subtract.

    records                 records that were appended: those that were acknowledged, that failed, and that are buffered
    acknowledged            records that brokers have stored; with acks=0, that were written to a connection
    failed                  records that were not stored, or may not be, by the name of the error code; where no broker
                            has answered, EXPIRED, ABORTED, CLOSED, UNCLEAR (may be stored, and enable_renumbering is
                            off) or BROKEN (an error of the producer's background)
    unobserved_failures     those among them whose Delivery nobody awaited as they failed, and which have no callback
    batches, bytes          batches that were sent, and their bytes, each counted once however often it was sent
    batch_fill              the mean size of these batches as a share of batch_size; None before the first
    records_per_batch       how many records each of them had, on average
    compression_ratio       their bytes as a share of what they would be without compression
    linger                  from a batch's first record until it was sent for the first time
    retries                 attempts at batches beyond the first
    splits                  batches that a broker took for too large, and that were sent in parts
    expired                 batches that delivery_timeout_ms has ended
    renumbered              batches that were sent again in a new epoch although they may have been stored: only these
                            can be duplicates
    epoch_bumps             how often a partition went on in another epoch, because its sequences were lost (KIP-360)
    requests                answered Produce requests, from the write to the answer
    failed_requests         Produce requests without an answer
    buffered_bytes          what records occupy that have no outcome, or whose callbacks were not called yet;
                            buffer_memory bounds it
    buffered_records        how many records have no outcome
    memory_waiters          how many calls of send() wait for memory
    nodes                   what was exchanged with each broker, by node id
    """

    records: int
    acknowledged: int
    failed: Mapping[str, int]
    unobserved_failures: int
    batches: int
    bytes: int
    batch_fill: float | None
    records_per_batch: float | None
    compression_ratio: float | None
    linger: Latency
    retries: int
    splits: int
    expired: int
    renumbered: int
    epoch_bumps: int
    requests: Latency
    failed_requests: int
    buffered_bytes: int
    buffered_records: int
    memory_waiters: int
    nodes: Mapping[int, NodeMetrics]
