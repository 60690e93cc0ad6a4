"""kafka-python: KafkaConsumer.poll()."""

from __future__ import annotations

from kafka import KafkaConsumer, TopicPartition

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


def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    tally = Tally()
    partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]
    consumer = KafkaConsumer(
        bootstrap_servers=job.bootstrap,
        fetch_max_bytes=FETCH_MAX_BYTES,
        max_partition_fetch_bytes=MAX_PARTITION_FETCH_BYTES,
        fetch_min_bytes=FETCH_MIN_BYTES,
        fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
        check_crcs=CHECK_CRCS,
        enable_auto_commit=False,
    )
    try:
        consumer.partitions_for_topic(job.topic)
        stopwatch.start()
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        while tally.records < job.records:
            batches = consumer.poll(timeout_ms=1_000, max_records=job.max_records)
            for records in batches.values():
                tally.add_records(records)
        stopwatch.stop()
    finally:
        consumer.close()
    return tally
