"""How long partitions of a killed member have no reader, in groups with members of both protocols: what brokers do.

A coordinator begins all sessions of a group anew when the group changes its protocol, and when another broker
coordinates it: so a dead member may keep its partitions for two sessions. And a group that becomes one of the consumer
protocol again while its members were about to join again keeps the assignment as it is. A Kafka 4.3.1 does both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.config.consumer import GroupProtocolName
from aiokc.testing import Cluster
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.virtual.loop import VirtualLoop

from ...member_process import member_process
from ...virtually import virtually

pytestmark = pytest.mark.timeout(120)

SESSION = 45.0
#: Seconds until the others have the partitions: the assignment's interval, and a heartbeat's.
_NOTICED = 7.0


@asynccontextmanager
async def reading(bootstrap: str, topic: str, protocol: GroupProtocolName, **options: Any) -> AsyncIterator[Consumer]:
    """A member that polls within the block."""
    settings: dict[str, Any] = {"group_id": topic, "auto_offset_reset": "earliest", **options}
    consumer = Consumer(topic, bootstrap_servers=bootstrap, group_protocol=protocol, **settings)
    async with consumer:

        async def poll() -> None:
            while True:
                await consumer.getmany(timeout_ms=100)

        polling = asyncio.create_task(poll())
        try:
            yield consumer
        finally:
            polling.cancel()
            await asyncio.wait([polling])


async def until(is_so: Callable[[], bool]) -> float:
    """Wait until it is so; return how many seconds that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(4 * SESSION):
        while not is_so():  # noqa: ASYNC110 - what it looks at tells nobody when it changes
            await asyncio.sleep(0.1)
    return loop.time() - began


async def shared(*consumers: Consumer, total: int) -> float:
    """Wait until these members have all partitions, evenly."""
    return await until(lambda: all(len(one.assignment()) == total // len(consumers) for one in consumers))


class Doomed:
    """A static member of the classic protocol on a host of its own, which dies with all its connections."""

    def __init__(self, cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self.assignment: frozenset[TopicPartition] = frozenset()
        loop.spawn_on("doomed", self._live(cluster.bootstrap))

    async def _live(self, bootstrap: str) -> None:
        async with reading(bootstrap, "t", "classic", group_instance_id="s") as consumer:
            while True:
                self.assignment = frozenset(consumer.assignment())
                await asyncio.sleep(0.1)

    async def has(self, count: int) -> None:
        await until(lambda: len(self.assignment) == count)

    def die(self) -> None:
        self._loop.freeze("doomed")
        self._loop.network.forsake("doomed", silently=False)


def test_a_dead_members_partitions_are_taken_over_when_its_session_ends() -> None:
    async def story(cluster: Cluster) -> None:
        doomed = Doomed(cluster)
        await doomed.has(4)
        async with reading(cluster.bootstrap, "t", "consumer") as other:
            await doomed.has(2)
            doomed.die()
            assert SESSION - 5 <= await shared(other, total=4) <= SESSION + _NOTICED

    virtually(story, topics={"t": 4})


@pytest.mark.parametrize("change", ["another coordinator", "the last member of the consumer protocol leaves"])
def test_a_dead_members_session_begins_anew_when_the_group_changes_hands(change: str) -> None:
    async def story(cluster: Cluster) -> None:
        doomed = Doomed(cluster)
        await doomed.has(6)
        async with reading(cluster.bootstrap, "t", "classic") as classic:
            await doomed.has(3)
            async with reading(cluster.bootstrap, "t", "consumer"):
                await doomed.has(2)
                doomed.die()
                await asyncio.sleep(SESSION - 8)
                if change == "another coordinator":
                    cluster.move_coordinator("t")
                    await asyncio.sleep(SESSION - 8)
            assert SESSION - 10 <= await shared(classic, total=6) <= SESSION + _NOTICED

    virtually(story, topics={"t": 6})


def test_a_group_that_changes_its_protocol_twice_keeps_partitions_without_a_reader() -> None:
    """Until a member joins or leaves. No heartbeat tells the members."""

    async def story(cluster: Cluster) -> None:
        doomed = Doomed(cluster)
        await doomed.has(4)
        async with reading(cluster.bootstrap, "t", "consumer"):
            await doomed.has(2)
            doomed.die()
        async with reading(cluster.bootstrap, "t", "consumer", group_instance_id="s") as again:
            await asyncio.sleep(60)
            assert again.assignment() == doomed.assignment
            async with reading(cluster.bootstrap, "t", "consumer") as another:
                await shared(again, another, total=4)

    virtually(story, topics={"t": 4})


@pytest.mark.kafka
@pytest.mark.long
async def test_a_group_of_kafka_that_changes_its_protocol_twice_keeps_partitions_without_a_reader(
    kafka: LocalKafka, topic_name: str
) -> None:
    """If this fails, Kafka assigns anew: then docs/guarantees.md and the Cluster's conversions have to follow."""
    kafka.create_topic(topic_name, 4)
    bootstrap = kafka.bootstrap
    async with member_process(bootstrap, topic_name, topic_name, group_instance_id="s") as doomed:
        await until(lambda: len(doomed.assigned) == 4)
        async with reading(bootstrap, topic_name, "consumer"):
            await until(lambda: len(doomed.assigned) == 2)
            await doomed.kill()
        async with reading(bootstrap, topic_name, "consumer", group_instance_id="s") as again:
            await asyncio.sleep(15)
            assert sorted(tp.partition for tp in again.assignment()) == doomed.assigned
            async with reading(bootstrap, topic_name, "consumer") as another:
                await shared(again, another, total=4)
