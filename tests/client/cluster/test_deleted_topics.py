"""Client and deleted topics: it stops asking for them, and a call that waits for one sees it when it exists again."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from aiokc import EARLIEST, LATEST, Client, TopicPartition
from aiokc.errors import UnknownTopic
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop

from ..virtually import Asked, virtually

T0, LATE = TopicPartition("t", 0), TopicPartition("late", 0)


def requests_since(asked: Asked, start: float) -> Counter[str]:
    return Counter({kind: count for kind, count in asked.since(start).items() if kind != "connect"})


def loop_of_the_story() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


@pytest.mark.parametrize("is_heard_of", [False, True])
def test_a_deleted_topic_is_not_asked_for_for_ever(is_heard_of: bool) -> None:
    """An idle client learns of the deletion when it refreshes its metadata, which it does every five minutes."""

    async def story(cluster: Cluster) -> None:
        loop = loop_of_the_story()
        asked = Asked(cluster, loop)
        cluster.append("t", b"x", partition=0)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            assert [part.next_offset async for part in client.read({T0: (0, 1)})] == [1]
            assert await client.committed("g", [T0]) == {T0: None}
            cluster.delete_topic("t")
            if is_heard_of:
                with pytest.raises(UnknownTopic):
                    await client.list_offsets({T0: LATEST}, timeout_ms=3_000)
            began = loop.time()
            await asyncio.sleep(1_200)

        assert sum(requests_since(asked, began).values()) <= 10, asked.since(began)

    virtually(story)


def test_calls_that_end_leave_alone_what_others_wait_for() -> None:
    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            cluster.append("t", b"x", partition=0)
            offsets = asyncio.create_task(client.list_offsets({LATE: EARLIEST}))

            async def read() -> list[int]:
                return [record.offset async for part in client.read({LATE: (0, 1)}) for record in part.records]

            reading = asyncio.create_task(read())
            for _ in range(10):
                with pytest.raises(UnknownTopic):
                    await client.list_offsets({LATE: LATEST}, timeout_ms=500)
                assert await client.list_offsets({T0: LATEST})
            cluster.create_topic("late", 1)
            cluster.append("late", b"x", partition=0)
            began = asyncio.get_running_loop().time()

            assert (await offsets)[LATE] is not None
            assert await reading == [0]
            assert asyncio.get_running_loop().time() - began < 5

    virtually(story)


def test_a_recreated_topic_is_found_again() -> None:
    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            await client.list_offsets({T0: LATEST})
            cluster.delete_topic("t")
            await asyncio.sleep(1_200)
            cluster.create_topic("t", 1)
            cluster.append("t", b"x", partition=0)

            found = (await client.list_offsets({T0: LATEST}))[T0]
            assert found is not None
            assert found.offset == 1
            assert [part.next_offset async for part in client.read({T0: (0, 1)})] == [1]

    virtually(story)
