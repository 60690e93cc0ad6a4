"""Consumers in the tests of a secure Kafka: reading so many records within a time, and the committed offset."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokc import Consumer, TopicPartition
from aiokc.errors import KafkaError

SECONDS = 30.0


async def read(consumer: Consumer[Any, Any], count: int, *, seconds: float = SECONDS) -> list[Any]:
    """Return the values of the next `count` records, as they come."""
    values: list[bytes | None] = []
    async with asyncio.timeout(seconds):
        while len(values) < count:
            for records in (await consumer.getmany(max_records=count - len(values))).values():
                values += [record.value for record in records]
    return values


async def read_after(refusals: type[KafkaError], consumer: Consumer[Any, Any], count: int) -> list[Any]:
    """Read on; ignore what is refused until the brokers know of a change."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return await read(consumer, count)
            except refusals:
                pass


async def committed(consumer: Consumer[Any, Any], topic: str, partition: int = 0) -> int | None:
    """Return the offset that the consumer's group has committed."""
    found = (await consumer.committed(TopicPartition(topic, partition))).get(TopicPartition(topic, partition))
    return None if found is None else found.offset
