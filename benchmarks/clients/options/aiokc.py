"""How aiokc is configured for the measurements: the same options as all clients, all partitions from offset 0."""

from __future__ import annotations

from aiokc import Client, Consumer, TopicPartition
from aiokc.config import SecurityOptions

from ...measuring.job import FETCH_SETTINGS, SASL_MECHANISM, Job


def consumer(job: Job) -> Consumer[bytes, bytes]:
    """Return a consumer without a group, for ``async with``; no partition is assigned yet."""
    return Consumer(
        bootstrap_servers=job.bootstrap,
        enable_auto_commit=False,
        **FETCH_SETTINGS,
        **_security(job),
    )


def partitions_of(job: Job) -> list[TopicPartition]:
    return [TopicPartition(job.topic, number) for number in range(job.partitions)]


def assign_all(reader: Consumer[bytes, bytes], job: Job) -> None:
    """Assign all partitions of the topic, from offset 0."""
    partitions = partitions_of(job)
    reader.assign(partitions)
    for partition in partitions:
        reader.seek(partition, 0)


def client(job: Job) -> Client:
    """Return a client that reads ranges, for ``async with``."""
    return Client(
        bootstrap_servers=job.bootstrap,
        **FETCH_SETTINGS,
        **_security(job),
    )


def _security(job: Job) -> SecurityOptions:
    options: SecurityOptions = {}
    if job.tls:
        options["ssl_truststore_location"] = job.ca
    if job.sasl:
        options |= {
            "sasl_mechanism": SASL_MECHANISM,
            "sasl_plain_username": job.user,
            "sasl_plain_password": job.password,
        }
    return options
