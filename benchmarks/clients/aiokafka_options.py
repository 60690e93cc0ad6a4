"""aiokafka as it is measured: the options that all clients have, and all partitions from their beginning."""

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


def consumer(job: Job) -> AIOKafkaConsumer:
    """A consumer in no group, to be entered; nothing is assigned yet."""
    return AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap,
        fetch_max_bytes=FETCH_MAX_BYTES,
        max_partition_fetch_bytes=MAX_PARTITION_FETCH_BYTES,
        fetch_min_bytes=FETCH_MIN_BYTES,
        fetch_max_wait_ms=FETCH_MAX_WAIT_MS,
        check_crcs=CHECK_CRCS,
        enable_auto_commit=False,
    )


def assign_all(reader: AIOKafkaConsumer, job: Job) -> None:
    """All partitions of the topic, from offset 0."""
    partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]
    reader.assign(partitions)
    for partition in partitions:
        reader.seek(partition, 0)
