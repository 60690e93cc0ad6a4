"""Groups partitions by topic, for Kafka's requests, which name each topic once."""

from __future__ import annotations

from collections.abc import Iterable

from ..types import TopicPartition


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers of each topic; topics and numbers are in ascending order."""
    grouped: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        grouped.setdefault(tp.topic, []).append(tp.partition)
    return grouped
