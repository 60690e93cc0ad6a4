"""A membership goes on while the application keeps all of the loop's threads busy with `asyncio.to_thread`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from aiokc import Consumer
from aiokc.client.group.classic.requests import _by_turns
from aiokc.core.group.events import Alive, Event, MemberToken, SendHeartbeat
from aiokc.testing import Cluster

from ..aio.full_pool import full_pool

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("members", "partitions"),
    [pytest.param(22, 22, id="many-members"), pytest.param(1, 200, id="many-partitions")],
)
async def test_a_large_group_forms_without_the_users_threads(members: int, partitions: int) -> None:
    async with Cluster(topics={"t": partitions}, group_initial_rebalance_delay_ms=200) as cluster:
        all_there = asyncio.Barrier(members)

        async def reads() -> None:
            async with Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g") as consumer:
                while len(consumer.assignment()) != partitions // members:
                    await consumer.getmany(timeout_ms=20)
                await all_there.wait()

        with full_pool():
            async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
                for _ in range(members):
                    tasks.create_task(reads())


async def test_others_run_while_a_leader_reads_what_many_members_said() -> None:
    rounds = 0

    def counts() -> None:
        nonlocal rounds
        rounds += 1
        loop.call_soon(counts)

    def decodes(members: int) -> Generator[int, None, Event]:
        for member in range(members):
            began = loop.time()
            while loop.time() < began + 0.001:
                pass
            yield member
        return done

    loop = asyncio.get_running_loop()
    done: Event = Alive(SendHeartbeat(1, MemberToken(1, "m")))
    loop.call_soon(counts)
    assert await _by_turns(decodes(20)) is done
    assert rounds >= 9, "each turn has two milliseconds"
