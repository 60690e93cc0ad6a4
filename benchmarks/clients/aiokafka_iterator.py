"""aiokafka: the consumer as an asynchronous iterator, a record at a time."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, TopicPartition

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
    tally = Tally()
    partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]
    async with AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap,
        fetch_max_bytes=FETCH_MAX_BYTES,
        max_partition_fetch_bytes=MAX_PARTITION_FETCH_BYTES,
        fetch_min_bytes=FETCH_MIN_BYTES,
        fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
        check_crcs=CHECK_CRCS,
        enable_auto_commit=False,
    ) as consumer:
        stopwatch.start()
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        await tally.add_each(consumer, job.records)
        stopwatch.stop()
    return tally
