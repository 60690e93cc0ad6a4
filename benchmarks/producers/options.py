"""How the producers are configured: idempotent, acks=all, and Java's defaults for the sizes and times of batches."""

from __future__ import annotations

from typing import cast

from aiokafka import AIOKafkaProducer

from aiokc import Producer
from aiokc.config.producer import CompressionType

from .job import (
    BATCH_SIZE,
    BUFFER_MEMORY,
    LINGER_MS,
    MAX_IN_FLIGHT,
    MAX_REQUEST_SIZE,
    PRODUCE_SETTINGS,
    ProduceJob,
    ProduceSettings,
)


def aiokc_producer(job: ProduceJob, *, linger_ms: int = LINGER_MS) -> Producer[bytes, bytes]:
    """Return a producer, for ``async with``."""
    settings: ProduceSettings = {**PRODUCE_SETTINGS, "linger_ms": linger_ms}
    return Producer(
        bootstrap_servers=job.bootstrap, compression_type=cast(CompressionType, job.compression), **settings
    )


def aiokafka_producer(job: ProduceJob, *, linger_ms: int = LINGER_MS) -> AIOKafkaProducer:
    """Return a producer, for ``async with``. It knows no limit for its memory, nor for requests in flight (it has one).

    It waits in send() as long as the batch of the record's partition is full.
    """
    return AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        enable_idempotence=True,
        acks="all",
        compression_type=None if job.compression == "none" else job.compression,
        max_batch_size=BATCH_SIZE,
        max_request_size=MAX_REQUEST_SIZE,
        linger_ms=linger_ms,
    )


def librdkafka_settings(job: ProduceJob, *, linger_ms: int = LINGER_MS) -> dict[str, str | int | bool]:
    """Return the settings by their names in librdkafka. It limits its queue by bytes, so not by messages as well."""
    return {
        "bootstrap.servers": job.bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": job.compression,
        "batch.size": BATCH_SIZE,
        "queue.buffering.max.kbytes": BUFFER_MEMORY // 1024,
        "queue.buffering.max.messages": 0,
        "message.max.bytes": MAX_REQUEST_SIZE,
        "linger.ms": linger_ms,
        "max.in.flight": MAX_IN_FLIGHT,
        "log_level": 4,
    }
