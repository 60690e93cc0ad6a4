"""An answer about thousands of partitions holds the event loop for no longer than a part of it takes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from aiokc import Client, TopicPartition
from aiokc.client.cluster import list_offsets
from aiokc.testing import Cluster
from aiokc.types import LATEST


async def test_a_thousand_offsets_are_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, read_in = 0, Counter[int]()
    read_offsets = list_offsets.read_offsets

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    def noted(response: Any) -> Iterator[Any]:
        for one in read_offsets(response):
            read_in[rounds] += 1
            yield one

    monkeypatch.setattr(list_offsets, "read_offsets", noted)
    partitions = [TopicPartition("t", number) for number in range(1_000)]
    async with (
        Cluster(topics={"t": 1_000}) as cluster,
        Client(bootstrap_servers=cluster.bootstrap) as client,
        asyncio.TaskGroup() as tasks,
    ):
        counting = tasks.create_task(count())
        found = await client.list_offsets(dict.fromkeys(partitions, LATEST))
        counting.cancel()
    assert found.keys() == {*partitions}
    assert read_in.total() == 1_000
    assert max(read_in.values()) <= 250
