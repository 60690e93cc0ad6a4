"""Who is asked for what next: a plan from values, made anew whenever something changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ..config import ClientConfig
from ..types import TopicPartition
from ..wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from .cluster import Cluster
from .fetch_buffer import FetchBuffer
from .subscription import Subscription

_NO_ID = UUID(int=0)

#: The last Fetch version that names topics; from 13 on only their ids travel (KIP-516).
LAST_VERSION_WITH_NAMES = 12

# A Fetch that leaves partitions out for want of buffer room must not park on the broker for the whole
# fetch_max_wait_ms: the room may be there a moment later, and a broker serves one Fetch of ours at a time. Only while
# the user takes records, though: else it would be asked 50 times a second for as long as he is busy with something.
_SHORT_WAIT_MS = 20


class FetchTarget(NamedTuple):
    """One partition of a Fetch: the claim that asks (token), and from where."""

    tp: TopicPartition
    token: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """One Fetch request to one broker."""

    node_id: int
    targets: tuple[FetchTarget, ...]
    max_bytes: int
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class Planned:
    """What to send. ``without_leader``: nobody can be asked for these until the metadata say more.

    ``short_of_room``: there are partitions that would be read ahead if the buffer had room for them.
    """

    plans: list[FetchPlan]
    without_leader: list[TopicPartition]
    short_of_room: bool


def plan_fetches(
    cluster: Cluster,
    subscription: Subscription,
    buffer: FetchBuffer,
    *,
    busy: Mapping[int, int],
    hurried: bool = True,
    now: float,
    config: ClientConfig,
) -> Planned:
    """Plan at most one Fetch for each broker that is not ``busy`` (with a Fetch in flight for so many bytes).

    Brokers share the buffer's room evenly, what is in flight counts as if it were there already. ``hurried``: the user
    takes records at the moment, so a full buffer will soon have room again.

    A partition is read ahead while the buffer has room. One that has nothing buffered is always asked for, so that a
    full buffer of partitions which the user does not read now can't starve it.
    """
    room = config.fetch_buffer_bytes - buffer.bytes - sum(busy.values())
    leaders: set[int] = set()
    by_node: dict[int, list[FetchTarget]] = {}
    left_out: set[int] = set()
    without_leader: list[TopicPartition] = []
    for tp, position in subscription.assigned.items():
        if not position.fetchable or position.retry_at > now:
            continue
        info = cluster.partition(tp)
        leader = info.leader if info is not None else None
        if info is None or leader is None or leader not in cluster.brokers:
            without_leader.append(tp)
            continue
        leaders.add(leader)
        if leader in busy or buffer.failed(tp, position.token):
            continue
        offset = buffer.fetch_offset(tp, position)
        if position.until is not None and offset >= position.until:
            continue
        if room <= 0 and buffer.holds(tp):
            left_out.add(leader)
            continue
        epoch = -1 if info.leader_epoch is None else info.leader_epoch
        by_node.setdefault(leader, []).append(FetchTarget(tp, position.token, offset, epoch))
    share = min(config.fetch_max_bytes, room, config.fetch_buffer_bytes // max(1, len(leaders)))
    short_wait_ms = min(config.fetch_max_wait_ms, _SHORT_WAIT_MS)
    plans = [
        FetchPlan(
            node_id,
            tuple(targets),
            max_bytes=max(share, config.max_partition_fetch_bytes),
            max_wait_ms=short_wait_ms if hurried and node_id in left_out else config.fetch_max_wait_ms,
        )
        for node_id, targets in by_node.items()
    ]
    return Planned(plans, without_leader, bool(left_out))


def fetch_request(plan: FetchPlan, cluster: Cluster, config: ClientConfig) -> tuple[FetchRequest, int | None]:
    """Return the Fetch of ``plan`` without a fetch session, and the highest version that can carry it."""
    by_topic: dict[str, list[FetchPartition]] = {}
    for target in plan.targets:
        by_topic.setdefault(target.tp.topic, []).append(
            FetchPartition(
                partition=target.tp.partition,
                current_leader_epoch=target.leader_epoch,
                fetch_offset=target.offset,
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
        )
    ids = {topic: cluster.topic_id(topic) for topic in by_topic}
    request = FetchRequest(
        max_wait_ms=plan.max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=plan.max_bytes,
        isolation_level=1 if config.isolation_level == "read_committed" else 0,
        topics=[
            FetchTopic(topic=topic, topic_id=ids[topic] or _NO_ID, partitions=partitions)
            for topic, partitions in by_topic.items()
        ],
    )
    return request, LAST_VERSION_WITH_NAMES if None in ids.values() else None
