"""A name that leads to another broker for a while, as that of a pod whose address a DNS cache has kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import pytest

from aiokc import LATEST, Client, Consumer, Producer, TopicPartition
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop
from tests.client.virtually import Asked, port_of, virtually

T0 = TopicPartition("t", 0)


def misled(cluster: Cluster, node_id: int) -> dict[str, Any]:
    """Options of a client for which the name of this broker leads to another one, which denies, for three seconds.

    It bootstraps from the third broker.
    """
    ports = {at: port_of(cluster, at) for at in (1, 2, 3)}
    other, third = (at for at in ports if at != node_id)
    loop = asyncio.get_running_loop()
    wrong_until = loop.time() + 3

    async def resolve(host: str, port: int) -> list[tuple[str, int]]:
        is_wrong = port == ports[node_id] and loop.time() < wrong_until
        return [(host, ports[other] if is_wrong else port)]

    return {"bootstrap_servers": cluster.bootstrap.split(",")[third - 1], "resolve": resolve}


async def _produce(cluster: Cluster, options: dict[str, Any]) -> None:
    async with Producer(**options) as producer:
        await producer.send_and_wait("t", b"v", partition=0)


async def _consume(cluster: Cluster, options: dict[str, Any]) -> None:
    cluster.append("t", b"v")
    consumer = Consumer(auto_offset_reset="earliest", **options)
    consumer.assign([T0])
    async with consumer:
        assert (await consumer.getone()).value == b"v"


async def _look_up(cluster: Cluster, options: dict[str, Any]) -> None:
    async with Client(**options) as client:
        assert await client.list_offsets({T0: LATEST}, timeout_ms=30_000)


@pytest.mark.parametrize("use", [_produce, _consume, _look_up])
def test_a_leader_whose_name_led_elsewhere_is_reached_once_it_leads_there(
    use: Callable[[Cluster, dict[str, Any]], Any],
) -> None:
    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t")
        assert leader is not None
        async with asyncio.timeout(20):
            await use(cluster, misled(cluster, leader))

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_coordinator_whose_name_led_elsewhere_is_reached_once_it_leads_there(
    protocol: Literal["classic", "consumer"],
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        options = misled(cluster, cluster.coordinator("g"))
        consumer = Consumer("t", group_id="g", group_protocol=protocol, auto_offset_reset="earliest", **options)
        async with consumer, asyncio.timeout(20):
            assert (await consumer.getone()).value == b"v"

    virtually(story, topics={"t": 1})


def test_a_transaction_whose_coordinators_name_led_elsewhere_goes_on() -> None:
    async def story(cluster: Cluster) -> None:
        options = misled(cluster, cluster.coordinator("x"))
        producer = Producer(transactional_id="x", **options)
        async with asyncio.timeout(20), producer, producer.transaction():
            await producer.send_and_wait("t", b"v", partition=0)

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize("version", ["3.5", "4.2"])
def test_a_broker_that_is_drained_keeps_its_connections(version: str) -> None:
    """It denies each partition that has moved, once, until the metadata are read: for minutes, one after the other."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        asked, drained = Asked(cluster, loop), port_of(cluster, 1)
        for partition in range(20):
            cluster.move_leader("t", partition, to=1)
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for partition in range(20):
                await producer.send_and_wait("t", b"v", partition=partition)
            connects = sum(asked.connects_per_second(0.0)[drained])
            assert connects, "the connections that are kept"
            for moved in range(19):
                cluster.move_leader("t", moved, to=2)
                for partition in range(20):
                    await producer.send_and_wait("t", b"v", partition=partition)
                await asyncio.sleep(2)
        assert sum(asked.connects_per_second(0.0)[drained]) == connects

    virtually(story, topics={"t": 20}, as_version=version)
