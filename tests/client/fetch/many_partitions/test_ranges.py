"""Ranges of many partitions: each step of a read looks at what it has moved, not at all that is still to be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import ClassVar
from uuid import UUID

import pytest

from aiokc import Client, TopicPartition
from aiokc.client.aio import time_slice
from aiokc.client.fetch import range_reader
from aiokc.core.subscription.assigned_partitions import BY_NAME
from aiokc.core.subscription.position import PartitionPosition
from aiokc.core.subscription.state import Subscription
from aiokc.testing import Cluster
from aiokc.types import BatchEnd

pytestmark = pytest.mark.timeout(60)

COUNT, RECORDS = 60, 3


class Counting(Subscription):
    """Counts the partitions that loops over the whole assignment, and replacements of it, look at."""

    looks: ClassVar[int] = 0

    @property
    def assigned(self) -> Mapping[TopicPartition, PartitionPosition]:
        return View(super().assigned)

    def replace(self, partitions: Iterable[TopicPartition], topic_ids: Mapping[TopicPartition, UUID] = BY_NAME) -> bool:
        Counting.looks += len(self._assigned)
        return super().replace(partitions, topic_ids)


class View(Mapping[TopicPartition, PartitionPosition]):
    def __init__(self, positions: Mapping[TopicPartition, PartitionPosition]) -> None:
        self._positions = positions

    def __getitem__(self, tp: TopicPartition) -> PartitionPosition:
        return self._positions[tp]

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[TopicPartition]:
        Counting.looks += len(self._positions)
        return iter(self._positions)


@pytest.mark.parametrize("columns", [False, True])
async def test_a_step_looks_at_what_it_has_moved(columns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(range_reader, "_RECORDS_AT_ONCE", RECORDS)
    monkeypatch.setattr(range_reader, "Subscription", Counting)
    monkeypatch.setattr(Counting, "looks", 0)
    ranges = {TopicPartition("t", index): (0, RECORDS) for index in range(COUNT)}
    async with Cluster(topics={"t": COUNT}) as cluster:
        for index in range(COUNT):
            cluster.append("t", *[b"x"] * RECORDS, partition=index)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            read = 0
            if columns:
                async for batch in client.read_columns(ranges):
                    read += len(batch)
            else:
                async for records in client.read(ranges):
                    read += len(records.records)
    assert read == COUNT * RECORDS
    assert Counting.looks <= 3 * COUNT


async def test_ranges_that_end_within_a_batch_are_dropped_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is buffered behind their ends is passed by each step for which they are still there."""
    left: list[int] = []

    class Noting(range_reader._RangeReading):
        def ends_of(self, taken: Collection[TopicPartition]) -> dict[TopicPartition, BatchEnd]:
            left.append(len(self._subscription.assigned))
            return super().ends_of(taken)

    monkeypatch.setattr(time_slice, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(range_reader, "_RangeReading", Noting)
    ranges = {TopicPartition("t", index): (0, RECORDS - 1) for index in range(COUNT)}
    async with Cluster(topics={"t": COUNT}) as cluster:
        for index in range(COUNT):
            cluster.append("t", *[b"x"] * RECORDS, partition=index)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            assert sum([len(batch) async for batch in client.read_columns(ranges)]) == COUNT * (RECORDS - 1)
    assert left[-1] < COUNT / 2
