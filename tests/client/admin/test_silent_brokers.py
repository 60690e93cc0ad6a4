"""A broker that accepts and says nothing, as behind a firewall that drops: the others are asked in good time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiokc import Client
from aiokc.testing import Cluster

from ..virtually import virtually
from .scene import client_of

CALLS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "describe_cluster": Client.describe_cluster,
    "describe_topics": lambda client: client.describe_topics(["t"]),
    "topic_configs": lambda client: client.topic_configs(["t"]),
    "group_offsets": lambda client: client.group_offsets("g"),
    "list_topics": Client.list_topics,
}


async def seconds(call: Awaitable[object]) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await call
    return loop.time() - began


@pytest.mark.parametrize("silent", [1, 2, 3])
def test_a_client_starts_sooner_than_one_attempt_to_connect_may_take(silent: int) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.slow_link(silent, latency=1_000.0)
        for _ in range(8):  # whichever server comes first
            client = Client(bootstrap_servers=cluster.bootstrap, socket_connection_setup_timeout_ms=10_000)
            await client.start(timeout_ms=5_000)
            await client.stop()

    virtually(story)


def test_brokers_that_are_all_slow_are_waited_for() -> None:
    """Each needs longer than its share of the time: the first one is asked as soon as it is connected."""

    async def story(cluster: Cluster) -> None:
        for node_id in (1, 2, 3):
            cluster.slow_link(node_id, latency=0.8)
        client = Client(bootstrap_servers=cluster.bootstrap)
        assert await seconds(client.start(timeout_ms=5_000)) < 4.5
        await client.stop()

    virtually(story)


@pytest.mark.parametrize("name", CALLS)
def test_no_call_waits_for_a_broker_that_is_known_to_be_silent(name: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster, request_timeout_ms=2_000) as client:
            cluster.move_coordinator("g", to=1)
            cluster.slow_link(2, latency=1_000.0)
            waits = [await seconds(CALLS[name](client)) for _ in range(10)]
            assert sum(wait > 0.5 for wait in waits) <= 1, waits

    virtually(story)
