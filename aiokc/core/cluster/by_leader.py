"""Groups partitions by leader, for the requests that go to leaders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ...types import TopicPartition
from .snapshot import Cluster

A = TypeVar("A")


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
