"""aiokc: the consumer as an asynchronous iterator, a record at a time."""

from __future__ import annotations

from ..measuring.job import Job
from ..measuring.stopwatch import Stopwatch
from ..measuring.tally import Tally
from .options.aiokc import assign_all, consumer


async def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    tally = Tally()
    async with consumer(job) as reader:
        await reader.partitions_for_topic(job.topic)
        stopwatch.start()
        assign_all(reader, job)
        await tally.add_each(reader, job.records)
        stopwatch.stop()
    return tally
