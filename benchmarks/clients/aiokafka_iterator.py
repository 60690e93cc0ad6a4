"""aiokafka: the consumer as an asynchronous iterator, a record at a time."""

from __future__ import annotations

from ..measuring.job import Job
from ..measuring.stopwatch import Stopwatch
from ..measuring.tally import Tally
from .options.aiokafka import assign_all, consumer, know_topic


async def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    tally = Tally()
    async with consumer(job) as reader:
        await know_topic(reader, job)
        stopwatch.start()
        assign_all(reader, job)
        await tally.add_each(reader, job.records)
        stopwatch.stop()
    return tally
