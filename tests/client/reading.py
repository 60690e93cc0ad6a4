"""A consumer that reads partitions of a test cluster from their beginning, and the values that it reads."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokc import Consumer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.testing import Cluster


def reading(cluster: Cluster, *partitions: TopicPartition, **options: Any) -> ConsumerType:
    consumer = Consumer(
        **{"bootstrap_servers": cluster.bootstrap, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **options}
    )
    consumer.assign(partitions)
    return consumer


async def values(consumer: ConsumerType, count: int) -> list[bytes]:
    async with asyncio.timeout(20):
        return [(await consumer.getone()).value or b"" for _ in range(count)]
