"""aiokafka: AIOKafkaConsumer.getmany()."""

from __future__ import annotations

from ..measuring.job import Job
from ..measuring.stopwatch import Stopwatch
from ..measuring.tally import Tally
from .options.aiokafka import assign_all, consumer, know_topic, partitions_of


async def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    tally = Tally(takes=job.takes)
    async with consumer(job) as reader:
        await know_topic(reader, job)
        stopwatch.start()
        assign_all(reader, job)
        while tally.records < job.records:
            batches = await reader.getmany(timeout_ms=1_000, max_records=job.max_records)
            for records in batches.values():
                tally.add_records(records)
        stopwatch.stop()
        tally.ended_at([await reader.position(partition) for partition in partitions_of(job)])
    return tally
