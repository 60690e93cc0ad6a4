"""Divides ranges of offsets into Spark tasks: large ranges are split, small ones share a task. Pure.

Ranges are split as in Spark's own source (KafkaOffsetRangeCalculator), so that `minPartitions` and
`maxRecordsPerPartition` give the same tasks. Sharing a task (`maxPartitions`) is new: that source does not have it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from aiokc import TopicPartition

from ..options.source_options import SourceOptions


class OffsetRange(NamedTuple):
    """Records of one partition from ``start`` on, before ``until``.

    ``from_earliest``: from the first record that exists when the task reads; it was at ``start`` when Spark planned.
    ``topic_id``: of which topic the offsets are; None if the cluster gives topics no ids.
    """

    partition: TopicPartition
    start: int
    until: int
    from_earliest: bool = False
    topic_id: UUID | None = None

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.until - self.start


#: What one task reads: ranges of different partitions concurrently, those of one partition one after the other.
Task = tuple[OffsetRange, ...]

_NO_IDS: Final[Mapping[str, UUID | None]] = MappingProxyType({})


def tasks(
    ranges: Mapping[TopicPartition, tuple[int, int]],
    options: SourceOptions,
    *,
    from_earliest: Set[TopicPartition] = frozenset(),
    topic_ids: Mapping[str, UUID | None] = _NO_IDS,
) -> list[Task]:
    """Return what each task reads; none of the ``ranges`` may be empty."""
    parts = [
        OffsetRange(tp, start, until, tp in from_earliest, topic_ids.get(tp.topic))
        for tp, (start, until) in sorted(ranges.items())
    ]
    if (most := options.max_records_per_partition) is not None:
        parts = [piece for part in parts for piece in split(part, math.ceil(part.size / most))]
    if (least := options.min_partitions) is not None and len(parts) < least:
        parts = _at_least(parts, least)
    if (limit := options.max_partitions) is not None and len(parts) > limit:
        return _shared(parts, limit)
    return [(part,) for part in parts]


def split(part: OffsetRange, count: int) -> Iterable[OffsetRange]:
    """Yield ``part`` in ``count`` pieces of almost equal size, without empty ones.

    Only the first piece keeps ``from_earliest``: the records before any other piece belong to the piece before it.
    """
    start, count = part.start, min(count, part.size)
    for index in range(count):
        size = (part.until - start) // (count - index)
        is_from_earliest = part.from_earliest and start == part.start
        yield part._replace(start=start, until=start + size, from_earliest=is_from_earliest)
        start += size


def _at_least(parts: Sequence[OffsetRange], least: int) -> list[OffsetRange]:
    total = sum(part.size for part in parts)
    # Ranges that are too small to be split are left out when the shares of the others are computed.
    small = {part for part in parts if _share(part.size, total, least) == 1}
    large_total = total - sum(part.size for part in small)
    large_count = max(least - len(small), 1)
    return [
        piece
        for part in parts
        for piece in split(part, 1 if part in small else _share(part.size, large_total, large_count))
    ]


def _share(size: int, total: int, count: int) -> int:
    return max(math.floor(size / total * count + 0.5), 1)  # as Java's Math.round does


def _shared(parts: Sequence[OffsetRange], limit: int) -> list[Task]:
    """Put each range, the largest first, into the task that has the fewest offsets to read."""
    loads = [(0, index) for index in range(limit)]
    members: list[list[OffsetRange]] = [[] for _ in range(limit)]
    for part in sorted(parts, key=lambda part: (-part.size, part)):
        load, index = heapq.heappop(loads)
        members[index].append(part)
        heapq.heappush(loads, (load + part.size, index))
    return [tuple(sorted(task)) for task in members if task]
