"""confluent-kafka: Producer.produce(), with a delivery callback, and AIOProducer.produce(), which returns a future."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from confluent_kafka import KafkaError, Producer
from confluent_kafka.aio import AIOProducer

from ..measuring.stopwatch import Stopwatch
from .job import ProduceJob
from .options import librdkafka_settings

# AIOProducer does not wait where its queue is full, and fails: so many of its records may be unacknowledged.
_MOST_UNDER_WAY: Final = 20_000


def produce(job: ProduceJob, stopwatch: Stopwatch) -> None:
    values = job.values()
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({**librdkafka_settings(job), "on_delivery": delivered})
    producer.list_topics(job.topic, timeout=10)
    stopwatch.start()
    for value in values:
        while True:
            try:
                producer.produce(job.topic, value)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(60)
    stopwatch.stop()
    if left or failures:
        raise RuntimeError(f"{left} records undelivered, {len(failures)} failed: {failures[:1]}")


async def aio_produce(job: ProduceJob, stopwatch: Stopwatch) -> None:
    values = job.values()
    producer = AIOProducer(librdkafka_settings(job))
    try:
        await producer.list_topics(job.topic, timeout=10)
        stopwatch.start()
        futures: list[asyncio.Future[Any]] = []
        for value in values:
            futures.append(await producer.produce(job.topic, value))
            if len(futures) == _MOST_UNDER_WAY:
                await producer.flush()
                await asyncio.gather(*futures)
                futures.clear()
        await producer.flush()
        await asyncio.gather(*futures)
        stopwatch.stop()
    finally:
        await producer.close()
