"""Consumers of one group of the consumer protocol, which poll all the time, and the brokers that they have."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from aiokc import Consumer, RebalanceListener, TopicPartition
from tests.producing import Message, produce

PARTITIONS = 4
WITHIN = 60.0


class Broker(Protocol):
    """What the Cluster and a real Kafka both have."""

    @property
    def bootstrap(self) -> str: ...
    def create_topic(self, name: str, partitions: int = 1) -> None: ...


def write(broker: Broker, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    """Write records, in turn to each of the topic's partitions."""
    messages = [Message(b"%d" % number, partition=number % partitions) for number in range(count)]
    produce(broker.bootstrap, topic, messages)


class Heard(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self.calls.append(("revoked", len(revoked)))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.calls.append(("assigned", len(assigned)))

    async def on_partitions_lost(self, lost: Any) -> None:
        self.calls.append(("lost", len(lost)))


class Reader:
    """A consumer that polls all the time, and counts the records that it got."""

    def __init__(self, consumer: Consumer[Any, Any], heard: Heard) -> None:
        self.consumer, self.heard = consumer, heard
        self.got: Counter[tuple[TopicPartition, int]] = Counter()
        self._turned = asyncio.Condition()
        self._turns = 0
        self._free = asyncio.Event()
        self._free.set()

    async def read(self) -> None:
        while True:
            batch = await self.consumer.getmany(timeout_ms=100)
            for tp, records in batch.items():
                self.got.update((tp, record.offset) for record in records)
            async with self._turned:
                self._turns += 1
                self._turned.notify_all()
            if batch:
                await self._free.wait()

    def keeps_its_batch(self) -> None:
        """From the next batch on, do not poll until ``goes_on``."""
        self._free.clear()

    def goes_on(self) -> None:
        self._free.set()

    async def holds(self, count: int) -> frozenset[TopicPartition]:
        async with asyncio.timeout(WITHIN), self._turned:
            await self._turned.wait_for(lambda: len(self.consumer.assignment()) == count)
        return self.consumer.assignment()

    async def has_heard(self) -> None:
        """Return when the listener was called."""
        async with asyncio.timeout(WITHIN), self._turned:
            await self._turned.wait_for(lambda: bool(self.heard.calls))

    async def subscribes_to(self, *topics: str) -> None:
        async with asyncio.timeout(WITHIN), self._turned:
            await self._turned.wait_for(lambda: self.consumer.subscription() == set(topics))

    async def has_polled(self, times: int) -> None:
        async with asyncio.timeout(WITHIN), self._turned:
            until = self._turns + times
            await self._turned.wait_for(lambda: self._turns >= until)

    async def has_read(self, count: int) -> None:
        async with asyncio.timeout(WITHIN), self._turned:
            await self._turned.wait_for(lambda: len(self.got) >= count)


@asynccontextmanager
async def reading(broker: Broker, group: str, topics: Any, **options: Any) -> AsyncIterator[Reader]:
    heard = Heard()
    defaults: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": group,
        "group_protocol": "consumer",
        "auto_offset_reset": "earliest",
        "metadata_max_age_ms": 500,
    }
    consumer: Consumer[Any, Any] = Consumer(**{**defaults, **options})
    consumer.subscribe(topics, listener=heard)
    async with consumer:
        reader = Reader(consumer, heard)
        task = asyncio.get_running_loop().create_task(reader.read())
        try:
            yield reader
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
