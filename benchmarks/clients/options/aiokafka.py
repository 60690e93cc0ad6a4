"""How aiokafka is configured for the measurements: the same options as all clients, all partitions from offset 0."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.helpers import create_ssl_context

from ...measuring.job import FETCH_SETTINGS, SASL_MECHANISM, Job


def consumer(job: Job) -> AIOKafkaConsumer:
    """Return a consumer without a group, for ``async with``; no partition is assigned yet."""
    return AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap,
        enable_auto_commit=False,
        **FETCH_SETTINGS,
        **_security(job),
    )


def _security(job: Job) -> dict[str, Any]:
    options: dict[str, Any] = {"security_protocol": job.security_protocol}
    if job.tls:
        options["ssl_context"] = create_ssl_context(cafile=job.ca)
    if job.sasl:
        options |= {
            "sasl_mechanism": SASL_MECHANISM,
            "sasl_plain_username": job.user,
            "sasl_plain_password": job.password,
        }
    return options


def partitions_of(job: Job) -> list[TopicPartition]:
    return [TopicPartition(job.topic, number) for number in range(job.partitions)]


async def know_topic(reader: AIOKafkaConsumer, job: Job) -> None:
    """Have it get the topic's metadata, by the connection that its Fetches will take.

    Its start asks for no topic, and closes that connection; no public method asks for one topic and keeps the answer.
    """
    await reader._client.set_topics([job.topic])


def assign_all(reader: AIOKafkaConsumer, job: Job) -> None:
    """Assign all partitions of the topic, from offset 0."""
    partitions = partitions_of(job)
    reader.assign(partitions)
    for partition in partitions:
        reader.seek(partition, 0)
