"""librdkafka's settings, for both of confluent-kafka's consumers."""

from __future__ import annotations

from ..job import (
    CHECK_CRCS,
    FETCH_MAX_BYTES,
    FETCH_MAX_WAIT_MS,
    FETCH_MIN_BYTES,
    MAX_PARTITION_FETCH_BYTES,
    Job,
)


def settings(job: Job) -> dict[str, str | int | bool]:
    """The common fetch settings by their names in librdkafka; a group.id is demanded, no group is joined.

    fetch.queue.backoff.ms: with its default of 1000 a partition with 100,000 records in the queue is not fetched again
    for a second, and a quick reader of small records waits most of the time. Its users lower it, so it is lowered here.
    """
    return {
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
