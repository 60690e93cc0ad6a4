"""aiokc: Producer.send() and send_soon(), a call for each record, and send_many(), 10,000 values at a time."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final

from aiokc.errors import BufferFull

from ..measuring.stopwatch import Stopwatch
from .job import ProduceJob
from .options import aiokc_producer

# An application of one task that never waits would let no request out.
_SOON_AT_ONCE: Final = 500
_MANY_AT_ONCE: Final = 10_000


async def send(job: ProduceJob, stopwatch: Stopwatch) -> None:
    values = job.values()
    async with aiokc_producer(job) as producer:
        await producer.partitions_for(job.topic)
        stopwatch.start()
        for value in values:
            await producer.send(job.topic, value)
        await producer.flush()
        stopwatch.stop()


async def send_soon(job: ProduceJob, stopwatch: Stopwatch) -> None:
    """It is no coroutine: where the memory is full, send() waits for some."""
    values = job.values()
    async with aiokc_producer(job) as producer:
        await producer.partitions_for(job.topic)
        stopwatch.start()
        for number, value in enumerate(values):
            try:
                producer.send_soon(job.topic, value)
            except BufferFull:
                await producer.send(job.topic, value)
            if number % _SOON_AT_ONCE == 0:
                await asyncio.sleep(0)
        await producer.flush()
        stopwatch.stop()


async def send_many(job: ProduceJob, stopwatch: Stopwatch) -> None:
    values = job.values()
    async with aiokc_producer(job) as producer:
        await producer.partitions_for(job.topic)
        stopwatch.start()
        while some := list(islice(values, _MANY_AT_ONCE)):
            await producer.send_many(job.topic, some)
        await producer.flush()
        stopwatch.stop()
