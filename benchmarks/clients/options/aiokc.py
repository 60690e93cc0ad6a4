"""How aiokc is configured for the measurements: the same options as all clients, all partitions from offset 0."""

from __future__ import annotations

from aiokc import Client, Consumer, TopicPartition

from ...measuring.job import FETCH_SETTINGS, Job


def consumer(job: Job) -> Consumer[bytes, bytes]:
    """Return a consumer without a group, for ``async with``; no partition is assigned yet."""
    return Consumer(
        bootstrap_servers=job.bootstrap,
        enable_auto_commit=False,
        **FETCH_SETTINGS,
    )


def assign_all(reader: Consumer[bytes, bytes], job: Job) -> None:
    """Assign all partitions of the topic, from offset 0."""
    partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]
    reader.assign(partitions)
    for partition in partitions:
        reader.seek(partition, 0)


def client(job: Job) -> Client:
    """Return a client that reads ranges, for ``async with``."""
    return Client(
        bootstrap_servers=job.bootstrap,
        **FETCH_SETTINGS,
    )
