"""The settings of librdkafka, for both consumers of confluent-kafka."""

from __future__ import annotations

from ...measuring.job import (
    CHECK_CRCS,
    FETCH_MAX_BYTES,
    FETCH_MAX_WAIT_MS,
    FETCH_MIN_BYTES,
    MAX_PARTITION_FETCH_BYTES,
    SASL_MECHANISM,
    Job,
)


def settings(job: Job) -> dict[str, str | int | bool]:
    """Return the common fetch settings by their names in librdkafka. It demands a group.id, but joins no group.

    fetch.queue.backoff.ms: with its default of 1000, librdkafka does not fetch a partition with 100,000 records in the
    queue again for a second, and a fast reader of small records waits most of the time. Applications lower this
    setting, so it is lowered here too.
    """
    security: dict[str, str | int | bool] = {"security.protocol": job.security_protocol}
    if job.tls:
        security["ssl.ca.location"] = job.ca
    if job.sasl:
        security |= {"sasl.mechanism": SASL_MECHANISM, "sasl.username": job.user, "sasl.password": job.password}
    return security | {
        "bootstrap.servers": job.bootstrap,
        "group.id": "benchmark",
        "enable.auto.commit": False,
        "fetch.max.bytes": FETCH_MAX_BYTES,
        "max.partition.fetch.bytes": MAX_PARTITION_FETCH_BYTES,
        "fetch.min.bytes": FETCH_MIN_BYTES,
        "fetch.wait.max.ms": FETCH_MAX_WAIT_MS,
        "check.crcs": CHECK_CRCS,
        "fetch.queue.backoff.ms": 10,
    }
