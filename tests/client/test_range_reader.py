"""Reading ranges, where something else ends meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Client, TopicPartition
from aiokc.errors import ConsumerClosed, OffsetOutOfRange
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


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
async def test_ranges_that_were_read_leave_no_fetch_sessions(columns: bool) -> None:
    """Until a broker notices that nobody uses them, they take the room of others'."""
    async with Cluster(brokers=2, topics={"t": 2}) as cluster:
        for partition in (0, 1):
            cluster.append("t", b"0", b"1", partition=partition)
        ranges = {TopicPartition("t", number): (0, 1) for number in range(2)}
        fetches = cluster.intercept(FetchRequest, lambda exchange: None)
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            async for _ in client.read_columns(ranges) if columns else client.read(ranges):
                pass
            assert fetches.hits == 4, "to each broker one that opens a session, and one that closes it"
            assert not any(node.sessions for node in cluster._state.nodes.values())


async def test_an_error_does_not_wait_for_fetch_sessions_to_be_closed() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1")
        cluster.trim("t", to=1)
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            with pytest.raises(OffsetOutOfRange):
                async for _ in client.read({ZERO: (0, 2)}):
                    pass
