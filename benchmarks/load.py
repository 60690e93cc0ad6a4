"""Filling the topics, with confluent-kafka: someone else's producer."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .cases import DISTINCT_VALUES, PARTITIONS, Case, json_lines

_CHUNK: Final = 12_000
_SEED: Final = 20_110_111
_QUIET: Final = {"log_level": 4}
_SETTINGS: Final[dict[str, str | int | float | bool]] = {
    "acks": "all",
    "batch.size": 65_536,
    "linger.ms": 50,
    "queue.buffering.max.kbytes": 262_144,
}


class LoadFailed(Exception):
    """A topic does not hold what it must hold; str() says which and why."""


def load(bootstrap: str, case: Case) -> bool:
    """Make the case's topic be there with exactly its records; False if it was already.

    Raises LoadFailed where records are not delivered, or a topic of that name has other contents.
    """
    if _create(bootstrap, case):
        _produce(bootstrap, case)
        _check(bootstrap, case)
        return True
    _check(bootstrap, case)
    return False


def _create(bootstrap: str, case: Case) -> bool:
    """Create the topic; False if it exists."""
    admin = AdminClient({**_QUIET, "bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(case.topic, PARTITIONS, 1, config={"retention.ms": "-1"})])
    try:
        created[case.topic].result(timeout=30)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise LoadFailed(f"topic {case.topic} cannot be created: {error}") from error
    return True


def _produce(bootstrap: str, case: Case) -> None:
    values = json_lines(case.value_size, DISTINCT_VALUES, Random(_SEED))
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            **_QUIET,
            **_SETTINGS,
            "bootstrap.servers": bootstrap,
            "compression.type": case.compression,
            "on_delivery": delivered,
        }
    )
    for start in range(0, case.records, _CHUNK):
        until = min(start + _CHUNK, case.records)
        for partition in range(PARTITIONS):
            # _CHUNK is a multiple of PARTITIONS, so record i goes to partition i % PARTITIONS.
            _hand_over(producer, case.topic, partition, range(start + partition, until, PARTITIONS), values)
    left = producer.flush(60)
    if left or failures:
        raise LoadFailed(f"{case.topic}: {left} records undelivered, {len(failures)} failed: {failures[:1]}")


def _hand_over(producer: Producer, topic: str, partition: int, numbers: range, values: Sequence[bytes]) -> None:
    messages = [{"key": b"%08d" % number, "value": values[number % len(values)]} for number in numbers]
    while messages:
        producer.produce_batch(topic, messages, partition=partition)
        # The queue was full for those that are marked: wait until some are delivered.
        messages = [{"key": message["key"], "value": message["value"]} for message in messages if "_error" in message]
        producer.poll(0.1 if messages else 0)


def _check(bootstrap: str, case: Case) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark"})
    try:
        found = [
            consumer.get_watermark_offsets(TopicPartition(case.topic, partition), timeout=30)
            for partition in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    wanted = [(0, count) for count in case.partition_records]
    if found != wanted:
        raise LoadFailed(f"topic {case.topic} holds offsets {found}, not {wanted}: delete it and run again")
