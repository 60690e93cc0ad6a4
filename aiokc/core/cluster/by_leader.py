"""Groups partitions by leader, for the requests that go to leaders, and finds those that are led anew."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Final, TypeVar

from ...types import TopicPartition
from .snapshot import Cluster

A = TypeVar("A")

#: So many partitions are looked at in one step: that takes a millisecond.
_AT_ONCE: Final = 1_000


def group_by_leader(cluster: Cluster, asked: Mapping[TopicPartition, A]) -> dict[int, dict[TopicPartition, A]]:
    """Return what is asked about each partition, by leader. Partitions without a known leader are left out."""
    by_leader: dict[int, dict[TopicPartition, A]] = {}
    topics, brokers = cluster.topics, cluster.brokers
    for tp, one in asked.items():
        topic = topics.get(tp.topic)
        info = None if topic is None else topic.partitions.get(tp.partition)
        if info is not None and info.leader is not None and info.leader in brokers:
            led = by_leader.get(info.leader)
            if led is None:
                led = by_leader[info.leader] = {}
            led[tp] = one
    return by_leader


def former_leaders(
    before: Cluster, now: Cluster, partitions: Iterable[TopicPartition]
) -> Generator[None, None, set[int | None]]:
    """Return who led, by ``before``, those partitions that have another leader ``now``; None: nobody did.

    Yield after each thousand partitions, so that the loop is not blocked. Of a topic that is the same object no
    partition is looked at, as long as the brokers are the same: nothing has changed.
    """
    found: set[int | None] = set()
    topics: Mapping[str, object] = before.topics if before.brokers.keys() == now.brokers.keys() else {}
    changed = {name for name, topic in now.topics.items() if topics.get(name) is not topic}
    if not changed:
        return found
    for done, tp in enumerate(partitions, start=1):
        if tp.topic in changed and (leader := now.leader(tp)) is not None:
            former = before.leader(tp)
            if former is None or former.node_id != leader.node_id:
                found.add(None if former is None else former.node_id)
        if done % _AT_ONCE == 0:
            yield
    return found


def is_any_led(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Generator[None, None, bool]:
    """Return whether one of these has a leader. Yield after each thousand, so that the loop is not blocked."""
    for done, tp in enumerate(partitions, start=1):
        if cluster.leader(tp) is not None:
            return True
        if done % _AT_ONCE == 0:
            yield
    return False
