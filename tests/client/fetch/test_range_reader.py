"""Ranges that are read while the client is stopped, or while records outside of the ranges fill its buffer."""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Client, TopicPartition
from aiokc.errors import ConsumerClosed
from aiokc.testing import Cluster
from aiokc.wire.messages.fetch import FetchRequest

pytestmark = pytest.mark.timeout(30)

ZERO = TopicPartition("t", 0)


async def test_a_client_that_is_stopped_ends_its_readings() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        client = Client(bootstrap_servers=cluster.bootstrap)
        await client.start()
        reading = client.read({ZERO: (0, 5)})
        assert len((await anext(reading)).records) == 1
        waiting = asyncio.ensure_future(anext(reading))
        await cluster.intercept(FetchRequest, lambda exchange: None).caught()
        await client.stop()
        with pytest.raises(ConsumerClosed, match="stopped"):
            async with asyncio.timeout(5):
                await waiting


async def test_a_small_buffer_full_of_what_lies_behind_ranges_holds_up_no_other_range() -> None:
    async with Cluster(topics={"t": 4}) as cluster:
        for number in range(4):
            for _ in range(6):
                cluster.append("t", bytes(5000), bytes(5000), partition=number)
        ranges = {TopicPartition("t", number): (0, 3 + 2 * number) for number in range(4)}
        client = Client(
            bootstrap_servers=cluster.bootstrap, fetch_buffer_bytes=30_000, max_partition_fetch_bytes=11_000
        )
        async with client, asyncio.timeout(20):
            got = dict.fromkeys(ranges, 0)
            async for part in client.read(ranges):
                got[part.partition] += len(part.records)
            assert got == {tp: until for tp, (_, until) in ranges.items()}
