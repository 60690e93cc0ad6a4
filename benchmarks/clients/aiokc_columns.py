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
    records = data_bytes = offset_sum = 0
    # The first sum initialises pyarrow's functions, which holds the loop for 8 ms.
    pyarrow.compute.sum(pyarrow.compute.binary_length(pyarrow.array([b""])))
    counts = [len(range(number, job.records, job.partitions)) for number in range(job.partitions)]
    async with client(job) as reader:
        await reader.list_topics([job.topic])
        stopwatch.start()
        ranges = {TopicPartition(job.topic, number): (0, count) for number, count in enumerate(counts)}
        async for batch in reader.read_columns(ranges, columns=("key", "value", "offset")):
            table = pyarrow.record_batch(batch)
            records += table.num_rows
            for name in ("key", "value"):
                data_bytes += pyarrow.compute.sum(pyarrow.compute.binary_length(table.column(name))).as_py()
            offset_sum += pyarrow.compute.sum(table.column("offset")).as_py()
        stopwatch.stop()
    return Tally(records, data_bytes, offset_sum)
