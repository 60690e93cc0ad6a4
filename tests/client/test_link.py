"""ClusterLink: what it leaves behind."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from aiokc import Consumer
from aiokc.testing import Cluster
from aiokc.testing.virtual_loop import VirtualLoop


@pytest.mark.parametrize("rounds", range(1, 12))
def test_a_stop_that_is_cancelled_closes_everything_all_the_same(rounds: int) -> None:
    loop = VirtualLoop(Random(rounds))

    async def client(bootstrap: str) -> None:
        consumer = Consumer("events", bootstrap_servers=bootstrap)
        await consumer.start()
        await consumer.getmany(timeout_ms=2000)
        stopping = loop.create_task(consumer.stop())
        for _ in range(rounds):
            await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait([stopping])

    async def main() -> None:
        async with Cluster(brokers=2, topics={"events": 2}) as cluster:
            await loop.spawn_on("client", client(cluster.bootstrap))
            await asyncio.sleep(1)
            assert loop.tasks_on("client") == []
            assert loop.network.transports_of("client") == []

    loop.run_until_complete(main())
    loop.end()
