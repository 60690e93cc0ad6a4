"""A rebalance listener that notes what it is told, and does what the test tells it to do then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.client.signal import Signal
from aiokc.testing import Cluster

WITHIN = 20.0
Action = Callable[[frozenset[TopicPartition]], Awaitable[None]]


class Noting(RebalanceListener):
    """``told`` is what it was told, in order. ``on["assigned"]`` and so on is called before the callback is done."""

    def __init__(self, **on: Action) -> None:
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
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
        """Return when ``condition`` holds; looked at when a callback begins or ends."""
        async with asyncio.timeout(WITHIN):
            while not condition():
                await self.changed.wait()

    async def heard(self, *calls: str) -> None:
        """Return when exactly these callbacks have been made and are done."""
        await self.until(lambda: self.calls[: len(calls)] == list(calls) and self.done >= len(calls))
        assert self.calls == list(calls)


def partitions(topic: str, count: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in range(count))


def listening(cluster: Cluster, *topics: Any, group: str | None = "g", **options: Any) -> Consumer:
    """A consumer in a hurry."""
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
