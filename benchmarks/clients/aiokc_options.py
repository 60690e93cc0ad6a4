"""aiokc as it is measured: the options that all clients have, and all partitions from their beginning."""

from __future__ import annotations

from aiokc import Client, Consumer, TopicPartition

from ..job import FETCH_SETTINGS, Job


def consumer(job: Job) -> Consumer[bytes, bytes]:
    """A consumer in no group, to be entered; nothing is assigned yet."""
    return Consumer(
        bootstrap_servers=job.bootstrap,
        enable_auto_commit=False,
        **FETCH_SETTINGS,
    )


def assign_all(reader: Consumer[bytes, bytes], job: Job) -> None:
    """All partitions of the topic, from offset 0."""
    partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]
    reader.assign(partitions)
    for partition in partitions:
        reader.seek(partition, 0)


def client(job: Job) -> Client:
    """A client that reads ranges, to be entered."""
    return Client(
        bootstrap_servers=job.bootstrap,
        **FETCH_SETTINGS,
    )
