"""aiokc: Client.read_columns(), whose batches pyarrow adds up."""

from __future__ import annotations

import pyarrow
import pyarrow.compute

from aiokc import Client, TopicPartition

from ..job import (
    CHECK_CRCS,
    FETCH_MAX_BYTES,
    FETCH_MAX_WAIT_MS,
    FETCH_MIN_BYTES,
    MAX_PARTITION_FETCH_BYTES,
    Job,
)
from ..stopwatch import Stopwatch
from ..tally import Tally


async def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    records = data_bytes = offset_sum = 0
    counts = [len(range(number, job.records, job.partitions)) for number in range(job.partitions)]
    async with Client(
        bootstrap_servers=job.bootstrap,
        fetch_max_bytes=FETCH_MAX_BYTES,
        max_partition_fetch_bytes=MAX_PARTITION_FETCH_BYTES,
        fetch_min_bytes=FETCH_MIN_BYTES,
        fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
        check_crcs=CHECK_CRCS,
    ) as client:
        await client.topics([job.topic])
        stopwatch.start()
        ranges = {TopicPartition(job.topic, number): (0, count) for number, count in enumerate(counts)}
        async for batch in client.read_columns(ranges, columns=("key", "value", "offset")):
            table = pyarrow.record_batch(batch)
            records += table.num_rows
            for name in ("key", "value"):
                data_bytes += pyarrow.compute.sum(pyarrow.compute.binary_length(table.column(name))).as_py()
            offset_sum += pyarrow.compute.sum(table.column("offset")).as_py()
        stopwatch.stop()
    return Tally(records, data_bytes, offset_sum)
