"""A large group of the consumer protocol settles without a storm, whatever makes all of its members talk at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from tests.client.group.consumer.group_stories import consumer_of
from tests.client.virtually import virtually

PARTITIONS_EACH = 10
#: Heartbeats of one member in one second: while a coordinator loads its groups they go out with backoff.
MOST_IN_A_SECOND = 5
#: Seconds between two heartbeats of a member that has settled.
INTERVAL = 5.0
#: Seconds in which the group settles after a change: some heartbeats, 5 s apart.
SETTLES_WITHIN = 40.0


class Talk:
    """The requests of each member, by the second in which they came."""

    def __init__(self, cluster: Cluster) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.heartbeats: Counter[tuple[str, int]] = Counter()
        self.others: Counter[tuple[str, int]] = Counter()
        serve = cluster._serve

        async def noted(exchange: Exchange) -> None:
            kind = self.heartbeats if isinstance(exchange.request, ConsumerGroupHeartbeatRequest) else self.others
            kind[exchange.client_id, int(self._loop.time())] += 1
            await serve(exchange)

        for broker in cluster._brokers.values():
            broker.serve = noted

    def told(self, what: str, members: int) -> None:
        """Print the figures since the last call, and check those of the heartbeats."""
        seconds = self._loop.time() - self._began
        for name, kind in (("heartbeats", self.heartbeats), ("other requests", self.others)):
            total, most = kind.total(), max(kind.values(), default=0)
            by_second = Counter[int]()
            for (_, second), count in kind.items():
                by_second[second] += count
            print(
                f"{members} members, {what}, {seconds:.0f} s: {total / members / seconds:.2f} {name} per member and "
                f"second, {max(by_second.values(), default=0) / members:.1f} in the busiest second, at most {most} of "
                "one member in a second"
            )
        assert max(self.heartbeats.values()) <= MOST_IN_A_SECOND
        assert self.heartbeats.total() / members / max(seconds, INTERVAL) < 1.0
        self.heartbeats.clear()
        self.others.clear()
        self._began = self._loop.time()


class Members:
    """Consumers that poll all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lives: dict[Consumer, asyncio.Task[None]] = {}
        self._count = 0

    def join(self, count: int) -> None:
        for _ in range(count):
            self._count += 1
            name = f"m{self._count}"
            # Fetch long polls are none of this, but cost most of the time.
            consumer = consumer_of(self._cluster, client_id=name, fetch_max_wait_ms=25_000)
            self._lives[consumer] = asyncio.get_running_loop().create_task(self._live(consumer))

    async def _live(self, consumer: Consumer) -> None:
        async with consumer:
            while True:
                await consumer.getmany(timeout_ms=60_000)

    async def leave(self, count: int) -> None:
        going = [self._lives.pop(consumer) for consumer in list(self._lives)[:count]]
        for life in going:
            life.cancel()
        await asyncio.gather(*going, return_exceptions=True)

    async def settle(self, total: int) -> None:
        """Return when all partitions are owned, each by one member, in even shares. Fail after SETTLES_WITHIN."""
        async with asyncio.timeout(SETTLES_WITHIN):
            while not self._are_even(total):  # noqa: ASYNC110 (in virtual time, over all members)
                await asyncio.sleep(0.5)

    def _are_even(self, total: int) -> bool:
        shares = [consumer.assignment() for consumer in self._lives]
        sizes = [len(share) for share in shares]
        return max(sizes) - min(sizes) <= 1 and sum(sizes) == len(frozenset[Any]().union(*shares)) == total


# 500 members take a minute of one idle core, and 2 GB.
@pytest.mark.timeout(120)
@pytest.mark.parametrize("count", [40, pytest.param(500, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_a_large_group_settles_without_a_storm(count: int) -> None:
    total, some = count * PARTITIONS_EACH, count // 10

    async def story(cluster: Cluster) -> None:
        talk, members = Talk(cluster), Members(cluster)
        members.join(count)
        await members.settle(total)
        talk.told("all join at once", count)
        await members.leave(some)
        members.join(some)
        await members.settle(total)
        talk.told("a tenth leaves, as many join", count)
        cluster.move_coordinator("g", loading=10.0)
        await asyncio.sleep(20.0)
        await members.settle(total)
        talk.told("another coordinator, which loads for 10 s", count)
        await asyncio.sleep(30.0)
        talk.told("nothing happens", count)
        await members.leave(count)

    virtually(story, topics={"t": total}, group_consumer_assignment_interval_ms=1000)
