"""aiokc: Client.read_columns(); pyarrow sums up its batches."""

from __future__ import annotations

import pyarrow
import pyarrow.compute

from aiokc import TopicPartition

from ..measuring.job import Job
from ..measuring.stopwatch import Stopwatch
from ..measuring.tally import Tally
from .options.aiokc import client


async def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    columns = ("value",) if job.takes == "value" else ("key", "value", "offset")
    tally = Tally(takes=job.takes)
    ends: dict[TopicPartition, int] = {}
    offset_sum = 0
    # The first sum initialises pyarrow's functions, which holds the loop for 8 ms.
    pyarrow.compute.sum(pyarrow.compute.binary_length(pyarrow.array([b""])))
    counts = [len(range(number, job.records, job.partitions)) for number in range(job.partitions)]
    async with client(job) as reader:
        await reader.list_topics([job.topic])
        stopwatch.start()
        ranges = {TopicPartition(job.topic, number): (0, count) for number, count in enumerate(counts)}
        async for batch in reader.read_columns(ranges, columns=columns):
            table = pyarrow.record_batch(batch)
            tally.records += table.num_rows
            for name in columns:
                if name == "offset":
                    offset_sum += pyarrow.compute.sum(table.column(name)).as_py()
                else:
                    tally.data_bytes += pyarrow.compute.sum(pyarrow.compute.binary_length(table.column(name))).as_py()
            ends |= {partition: end.offset for partition, end in batch.next_offsets.items()}
        stopwatch.stop()
    tally.offset_sum = offset_sum
    tally.ended_at(ends.values())
    return tally
