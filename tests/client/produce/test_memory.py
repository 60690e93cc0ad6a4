"""Who waits for memory: room that was given to a call which does not take it goes to the next one.

And what a producer keeps no memory for.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Generator
from typing import Any

import pytest

from aiokc import Producer
from aiokc.client.produce.memory import MemoryWaiters
from aiokc.core.cluster.snapshot import Cluster as Snapshot
from aiokc.net.connection import Connection
from aiokc.testing import Cluster
from tests.client.virtually import virtually
from tests.core.produce.one_partition import Produced

pytestmark = pytest.mark.timeout(30)


async def test_room_of_a_call_whose_coroutine_was_closed_goes_to_the_next() -> None:
    """By GeneratorExit, as where a coroutine is garbage-collected: no CancelledError is raised then."""
    world = Produced(buffer_memory=10_000)
    accumulator = world.accumulator
    memory = MemoryWaiters(accumulator, lambda: None)
    accumulator.used = 9_000
    closed: Generator[Any, None, bool] = memory.wait(4_000, 10.0).__await__()
    next(closed)
    other = asyncio.create_task(memory.wait(4_000, 10.0))
    await asyncio.sleep(0)
    assert len(memory) == 2
    accumulator.used = 0
    memory.grant()
    assert accumulator.used > 4_000
    closed.close()
    assert await other
    assert (accumulator.used, memory.is_idle) == (0, True)


async def test_a_record_that_would_fit_waits_behind_those_that_came_before_it() -> None:
    """Also behind one that has room already, and has not come back to append."""
    world = Produced(buffer_memory=10_000)
    memory = MemoryWaiters(world.accumulator, lambda: None)
    world.accumulator.used = 7_000
    first = asyncio.create_task(memory.wait(4_000, 10.0))
    await asyncio.sleep(0)
    assert world.accumulator.has_room(100)
    assert not memory.has_room(100)
    world.accumulator.used = 0
    memory.grant()
    assert (len(memory), memory.has_room(100)) == (0, False)
    assert await first
    assert memory.has_room(100)


@pytest.mark.parametrize("refreshed", [True, False])
def test_partitions_at_rest_keep_no_connection_that_has_ended_and_no_metadata_of_its_time(refreshed: bool) -> None:
    """A connection has a buffer of 64 KiB, and the metadata of thousands of partitions are more than that."""

    def snapshots() -> int:
        gc.collect()
        return sum(isinstance(one, Snapshot) for one in gc.get_objects())

    async def story(cluster: Cluster) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            metadata, before = producer._runtime.cluster_client.metadata, snapshots()
            connections: list[weakref.ref[Connection]] = []
            for partition in range(10):
                await producer.send_and_wait("t", b"", partition=partition)
                (channel,) = producer._runtime.sender._channels.values()
                assert channel.connection is not None
                connections.append(weakref.ref(channel.connection))
                cluster.disconnect(1)
                if refreshed:
                    metadata.request_update()
                    assert await metadata.changed.wait(10)
            await producer.send_and_wait("t", b"", partition=0)
            assert snapshots() <= before + 3
            assert sum(one() is not None for one in connections) <= 1

    virtually(story, brokers=1, topics={"t": 10})
