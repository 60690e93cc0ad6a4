"""aiokc: Client.read_columns(); pyarrow sums up its batches."""

from __future__ import annotations

from aiokc import TopicPartition

from ..measuring.column_tally import ColumnTally
from ..measuring.job import Job
from ..measuring.stopwatch import Stopwatch
from ..measuring.tally import Tally
from .options.aiokc import client


async def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    tally = ColumnTally(job.takes)
    ends: dict[TopicPartition, int] = {}
    counts = [len(range(number, job.records, job.partitions)) for number in range(job.partitions)]
    async with client(job) as reader:
        await reader.list_topics([job.topic])
        stopwatch.start()
        ranges = {TopicPartition(job.topic, number): (0, count) for number, count in enumerate(counts)}
        async for batch in reader.read_columns(ranges, columns=tally.columns):
            tally.add_columns(batch)
            ends |= {partition: end.offset for partition, end in batch.next_offsets.items()}
        stopwatch.stop()
    tally.ended_at(ends.values())
    return tally
