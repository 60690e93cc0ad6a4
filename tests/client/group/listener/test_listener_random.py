"""Groups whose members join, leave, expire and resubscribe at random: each listener's calls are always consistent.

`Noting` fails if a partition is assigned twice, or is revoked or lost without having been assigned. The failure ends
the polling task of its consumer.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from aiokc import Consumer
from aiokc.client.aio.signal import Signal
from aiokc.testing import Cluster

from ...listening import Noting, Polling, listening, partitions

pytestmark = pytest.mark.timeout(60)

_STEPS = 14


class Group:
    """A group on ``cluster`` whose members are polled all the time."""

    def __init__(self, cluster: Cluster, random: Random, strategy: str) -> None:
        self._cluster = cluster
        self._random = random
        self._strategy = strategy
        self._members: list[tuple[Consumer, Noting, AsyncExitStack]] = []
        self._partitions = 3
        self._changed = Signal()

    async def join(self) -> None:
        if len(self._members) == 4:
            return
        listener = Noting(assigned=self._dawdle, revoked=self._dawdle, lost=self._dawdle)
        listener.changed.followed_by(self._changed)
        stack = AsyncExitStack()
        consumer = listening(
            self._cluster,
            "t",
            listener=listener,
            partition_assignment_strategy=[self._strategy],
            # A member that unsubscribes while its first JoinGroup is under way knows no member id to send a LeaveGroup
            # for. So the group waits for it for the session timeout, as for any silent member.
            session_timeout_ms=2_000,
        )
        await stack.enter_async_context(consumer)
        await stack.enter_async_context(Polling(consumer))
        self._members.append((consumer, listener, stack))

    async def _dawdle(self, _: object) -> None:
        await asyncio.sleep(self._random.choice([0, 0, 0.005, 0.03]))

    async def leave(self) -> None:
        if len(self._members) > 1:
            await self._stop(self._random.randrange(len(self._members)))

    async def forget(self) -> None:
        if members := self._cluster.members("g"):
            self._cluster.expire_member("g", self._random.choice(members))

    async def grow(self) -> None:
        self._partitions += 1
        self._cluster.add_partitions("t", self._partitions)
        for consumer, _, _ in self._members:
            consumer._runtime.cluster_client.metadata.request_update()

    async def change_minds(self) -> None:
        consumer, listener, _ = self._random.choice(self._members)
        if self._random.random() < 0.5:
            consumer.unsubscribe()
        consumer.subscribe(["t", "u"] if self._random.random() < 0.5 else ["t"], listener=listener)

    async def step(self) -> None:
        await self._random.choice([self.join, self.join, self.leave, self.forget, self.grow, self.change_minds])()
        await asyncio.sleep(self._random.choice([0, 0.01, 0.06]))

    async def settle(self) -> None:
        """Return when the members share all partitions, and their listeners know it."""
        for consumer, listener, _ in self._members:
            consumer.subscribe(["t"], listener=listener)
            consumer._runtime.cluster_client.metadata.request_update()
        async with asyncio.timeout(25):
            while not self._is_settled():
                await self._changed.wait(1.0)

    def _is_settled(self) -> bool:
        held = [tp for _, listener, _ in self._members for tp in listener.holds]
        agree = all(consumer.assignment() == listener.holds for consumer, listener, _ in self._members)
        return agree and len(held) == self._partitions and set(held) == partitions("t", self._partitions)

    async def stop(self) -> None:
        """All leave, one after the other; each listener hears that all of its partitions go."""
        while self._members:
            await self._stop(-1)

    async def _stop(self, place: int) -> None:
        _, listener, stack = self._members.pop(place)
        await stack.aclose()
        assert not listener.holds, f"stopped, and was not told that all went: {listener.told}"


async def play(strategy: str, seed: int) -> None:
    async with Cluster(topics={"t": 3, "u": 2}, group_min_session_timeout_ms=1_000) as cluster:
        group = Group(cluster, Random(seed), strategy)
        try:
            await group.join()
            for _ in range(_STEPS):
                await group.step()
            await group.settle()
        finally:
            await group.stop()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_partition_that_comes_goes_once(strategy: str, seed: int) -> None:
    await play(strategy, seed)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("seed", range(10, 20))
async def test_every_partition_that_comes_goes_once_for_long(strategy: str, seed: int) -> None:
    await play(strategy, seed)
