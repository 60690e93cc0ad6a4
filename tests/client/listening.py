"""Listeners and readers for tests: a rebalance listener that notes its calls, and an application that polls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.client.aio.signal import Signal
from aiokc.errors import ConsumerClosed, KafkaError
from aiokc.testing import Cluster

WITHIN = 60.0
Action = Callable[[frozenset[TopicPartition]], Awaitable[None]]


class Noting(RebalanceListener):
    """``told`` lists its calls, in order. ``on["assigned"]`` and so on is called before the callback ends.

    Each partition must be revoked or lost exactly once before it is assigned again; else the callback fails.
    """

    def __init__(self, **on: Action) -> None:
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.holds: set[TopicPartition] = set()
        self.done = 0
        self.changed = Signal()
        self.on = on

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._note("revoked", partitions)

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        await self._note("assigned", partitions)

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        await self._note("lost", partitions)

    async def _note(self, what: str, partitions: frozenset[TopicPartition]) -> None:
        self.told.append((what, partitions))
        if what == "assigned":
            assert not partitions & self.holds, f"assigned twice: {self.told}"
            self.holds |= partitions
        else:
            assert partitions <= self.holds, f"was not assigned: {self.told}"
            self.holds -= partitions
        self.changed.notify()
        try:
            if what in self.on:
                await self.on[what](partitions)
        finally:
            self.done += 1
            self.changed.notify()

    @property
    def calls(self) -> list[str]:
        return [what for what, _ in self.told]

    def count(self, what: str) -> int:
        return self.calls.count(what)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when ``condition`` holds; it is checked when a callback begins or ends."""
        async with asyncio.timeout(WITHIN):
            while not condition():
                await self.changed.wait()

    async def heard(self, *calls: str) -> None:
        """Return when exactly these callbacks have been made and have ended."""
        await self.until(lambda: len(self.calls) >= len(calls) and self.done >= len(calls))
        assert self.calls == list(calls)


class Gate:
    """A callback that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, _: object) -> None:
        self.began.set()
        await self.go_on.wait()


class Polling:
    """An application that polls all the time and keeps the records. Leaving the block ends that."""

    def __init__(self, *consumers: Consumer) -> None:
        self.values: list[bytes | None] = []
        self.errors: list[Exception] = []
        self.changed = Signal()
        self._consumers = consumers
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Polling:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._poll(consumer)) for consumer in self._consumers]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _poll(self, consumer: Consumer) -> None:
        while True:
            try:
                batch = await consumer.getmany()
            except (KafkaError, ArithmeticError) as error:  # the latter is what listeners of tests raise
                self.errors.append(error)
                if isinstance(error, ConsumerClosed):
                    return
                continue
            self.values += [record.value for records in batch.values() for record in records]
            self.changed.notify()

    async def has(self, count: int) -> list[bytes | None]:
        """Return the values as soon as there are ``count`` of them."""
        async with asyncio.timeout(WITHIN):
            while len(self.values) < count:
                await self.changed.wait()
        return self.values


def partitions(topic: str, count: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in range(count))


def listening(cluster: Cluster, *topics: Any, group: str | None = "g", **options: Any) -> Consumer:
    """Return a consumer with short timeouts."""
    return Consumer(
        *topics,
        **{
            "bootstrap_servers": cluster.bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "allow_auto_create_topics": False,
            "heartbeat_interval_ms": 20,
            "retry_backoff_ms": 10,
            "retry_backoff_max_ms": 50,
            "reconnect_backoff_ms": 1,
            "reconnect_backoff_max_ms": 20,
            **options,
        },
    )
