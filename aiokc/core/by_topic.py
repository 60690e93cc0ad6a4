"""Partitions in the order of Kafka's requests, which name each topic once."""

from __future__ import annotations

from collections.abc import Iterable

from ..types import TopicPartition


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers of each topic, both in order."""
    grouped: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        grouped.setdefault(tp.topic, []).append(tp.partition)
    return grouped
