"""aiokafka: the consumer as an asynchronous iterator, a record at a time."""

from __future__ import annotations

from ..job import Job
from ..stopwatch import Stopwatch
from ..tally import Tally
from .aiokafka_options import assign_all, consumer


async def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    tally = Tally()
    async with consumer(job) as reader:
        stopwatch.start()
        assign_all(reader, job)
        await tally.add_each(reader, job.records)
        stopwatch.stop()
    return tally
