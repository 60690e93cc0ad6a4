"""ClusterClient: what remains after it has stopped, and what a broker with bad answers cannot do to it."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.errors import ConsumerClosed
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse


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


@pytest.mark.parametrize(("host", "port"), [("kafka-1..svc", 9092), ("127.0.0.1", 70_000)])
async def test_a_broker_with_an_impossible_address_affects_no_other_broker(host: str, port: int) -> None:
    """For example, a template for advertised.listeners was filled in with nothing: no resolver and no socket takes
    that.
    """
    partitions = [TopicPartition("events", number) for number in range(2)]
    async with Cluster(brokers=2, topics={"events": 2}) as cluster:
        away = cluster.leader("events", 1)
        assert cluster.leader("events", 0) != away

        async def misled(exchange: Exchange) -> MetadataResponse:
            response = await exchange.handle()
            assert isinstance(response, MetadataResponse)
            for broker in response.brokers:
                if broker.node_id == away:
                    broker.host, broker.port = host, port
            return response

        wrong = cluster.intercept(MetadataRequest, misled)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=200)
        consumer.assign(partitions)
        async with asyncio.timeout(20), consumer:
            while consumer.health().last_error is None:
                await consumer.getmany(timeout_ms=10)
            cluster.append("events", b"here")
            assert (await consumer.getone()).value == b"here"
            wrong.cancel()
            cluster.append("events", b"there", partition=1)
            assert (await consumer.getone()).value == b"there"


async def test_start_waits_for_a_start_in_another_task() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        hold = Hold()
        held = cluster.intercept(MetadataRequest, hold, times=1)
        consumer = Consumer("events", bootstrap_servers=cluster.bootstrap)
        first, second, given_up = (asyncio.create_task(consumer.start()) for _ in range(3))
        await held.caught()
        given_up.cancel()
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        assert not first.done()
        assert not second.done()
        hold.release()
        await asyncio.gather(first, second)
        assert list(await consumer.list_topics()) == ["events"]
        await consumer.stop()


async def test_a_start_that_waits_for_a_cancelled_one_raises() -> None:
    async with Cluster() as cluster:
        hold = Hold()
        held = cluster.intercept(MetadataRequest, hold, times=1)
        consumer = Consumer("events", bootstrap_servers=cluster.bootstrap)
        first, second = asyncio.create_task(consumer.start()), asyncio.create_task(consumer.start())
        await held.caught()
        first.cancel()
        with pytest.raises(ConsumerClosed):
            await second
