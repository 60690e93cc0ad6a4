"""Filling the topics, with the producer of confluent-kafka: they must not depend on what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from .cases import DISTINCT_VALUES, PARTITIONS, Case, json_lines

_CHUNK: Final = 12_000
_MOST_AT_ONCE: Final = 4_000  # partitions: a controller takes no more than 10,000 changes in one batch
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
    """Create the case's topic with exactly its records; return False if it exists already.

    Raises LoadFailed if records are not delivered, or if a topic of that name has other contents.
    """
    is_new = create_topic(bootstrap, case.topic, PARTITIONS)
    if is_new:
        _produce(bootstrap, case)
    _check(bootstrap, case.topic, [(0, count) for count in case.partition_records])
    return is_new


def load_spread(bootstrap: str, topic: str, partitions: int, records: int, value_size: int) -> None:
    """Create a topic with the same number of records in each partition, unless it exists. Raises LoadFailed.

    That is also raised if a topic of that name has other contents, as where loading it was broken off.
    """
    wanted = [(0, records // partitions)] * partitions
    if not create_topic(bootstrap, topic, partitions):
        _check(bootstrap, topic, wanted)
        return
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    values = json_lines(value_size, DISTINCT_VALUES, Random(_SEED))
    producer = Producer({**_QUIET, **_SETTINGS, "bootstrap.servers": bootstrap, "on_delivery": delivered})
    each = records // partitions
    for partition in range(partitions):
        _hand_over(producer, topic, partition, range(partition * each, (partition + 1) * each), values)
    left = producer.flush(120)
    if left or failures:
        raise LoadFailed(f"{topic}: {left} records undelivered, {len(failures)} failed: {failures[:1]}")


def create_topic(bootstrap: str, topic: str, partitions: int) -> bool:
    """Create a topic; return False if it exists. Raises LoadFailed."""
    admin = AdminClient({**_QUIET, "bootstrap.servers": bootstrap})
    new = NewTopic(topic, min(partitions, _MOST_AT_ONCE), 1, config={"retention.ms": "-1"})
    created = admin.create_topics([new], operation_timeout=60, request_timeout=60)
    try:
        created[topic].result(timeout=90)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise LoadFailed(f"topic {topic} cannot be created: {error}") from error
    for count in range(2 * _MOST_AT_ONCE, partitions + _MOST_AT_ONCE, _MOST_AT_ONCE):
        more = admin.create_partitions([NewPartitions(topic, min(count, partitions))], operation_timeout=60)
        try:
            more[topic].result(timeout=90)
        except KafkaException as error:
            raise LoadFailed(f"topic {topic} cannot get {count} partitions: {error}") from error
    return True


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic, if it is there. Raises LoadFailed."""
    admin = AdminClient({**_QUIET, "bootstrap.servers": bootstrap})  # it must outlive the wait for its answer
    deleted = admin.delete_topics([topic], operation_timeout=60)
    try:
        deleted[topic].result(timeout=90)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise LoadFailed(f"topic {topic} cannot be deleted: {error}") from error


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
        # The queue had no room for the records that are marked: wait until some are delivered.
        messages = [{"key": message["key"], "value": message["value"]} for message in messages if "_error" in message]
        producer.poll(0.1 if messages else 0)


def _check(bootstrap: str, topic: str, wanted: Sequence[tuple[int, int]]) -> None:
    """Raise LoadFailed unless the partitions begin and end at these offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark"})
    try:
        found = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            for partition in range(len(wanted))
        ]
    except KafkaException as error:
        raise LoadFailed(f"the offsets of topic {topic} cannot be found: {error}") from error
    finally:
        consumer.close()
    other = [number for number, offsets in enumerate(found) if offsets != wanted[number]]
    if other:
        first = other[0]
        raise LoadFailed(
            f"topic {topic} holds offsets {found[first]} and not {wanted[first]} in partition {first}, and others in "
            f"{len(other)} of {len(wanted)} partitions: delete it and run again"
        )
