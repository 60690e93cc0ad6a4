"""Reading ranges, where something else ends meanwhile."""

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
