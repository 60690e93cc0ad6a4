"""aiokafka: AIOKafkaProducer.send(), a call for each record, and send_batch(), with batches that the application fills.

Both wait where the batch of the partition is full.
"""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import Any, Final

from ..measuring.stopwatch import Stopwatch
from .job import ProduceJob
from .options import aiokafka_producer

# The futures of so many records are kept, the last ones: without a record's future nobody hears that it has failed.
_FUTURES: Final = 1_000


async def send(job: ProduceJob, stopwatch: Stopwatch) -> None:
    values = job.values()
    async with aiokafka_producer(job) as producer:
        await producer.partitions_for(job.topic)
        stopwatch.start()
        last: dict[int, asyncio.Future[Any]] = {}
        for number, value in enumerate(values):
            last[number % _FUTURES] = await producer.send(job.topic, value)
        await producer.flush()
        await asyncio.gather(*last.values())
        stopwatch.stop()


async def send_batch(job: ProduceJob, stopwatch: Stopwatch) -> None:
    values = job.values()
    async with aiokafka_producer(job) as producer:
        await producer.partitions_for(job.topic)
        partitions = cycle(range(job.partitions))
        stopwatch.start()
        last: dict[int, asyncio.Future[Any]] = {}
        batch = producer.create_batch()
        for value in values:
            if batch.append(key=None, value=value, timestamp=None) is None:  # it is full
                partition = next(partitions)
                last[partition] = await producer.send_batch(batch, job.topic, partition=partition)
                batch = producer.create_batch()
                batch.append(key=None, value=value, timestamp=None)
        if batch.record_count():
            partition = next(partitions)
            last[partition] = await producer.send_batch(batch, job.topic, partition=partition)
        await producer.flush()
        await asyncio.gather(*last.values())
        stopwatch.stop()
