"""aiokc: Consumer.getmany_columns(), all that is buffered at a time; pyarrow sums up its batches."""

from __future__ import annotations

from ..measuring.column_tally import ColumnTally
from ..measuring.job import Job
from ..measuring.stopwatch import Stopwatch
from ..measuring.tally import Tally
from .options.aiokc import assign_all, consumer, partitions_of


async def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    tally = ColumnTally(job.takes)
    async with consumer(job) as reader:
        await reader.partitions_for_topic(job.topic)
        stopwatch.start()
        assign_all(reader, job)
        while tally.records < job.records:
            tally.add_columns(await reader.getmany_columns(columns=tally.columns))
        stopwatch.stop()
        tally.ended_at([await reader.position(partition) for partition in partitions_of(job)])
    return tally
