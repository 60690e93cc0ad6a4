"""The values of a record that are compared, whichever client has read it: all of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, TopicPartition

from aiokc import NO_TIMESTAMP, ConsumerRecord

#: Partition, offset, timestamp and its type, key, value, headers.
Row: TypeAlias = tuple[int, int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

_SECONDS = 60.0


def row(record: ConsumerRecord[bytes | None, bytes | None]) -> Row:
    return (
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
    )


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by partition; within a partition they keep their order, which is compared too."""
    return sorted(rows, key=lambda row: row[0])


def read_by_confluent(bootstrap: str, topics: Mapping[str, int], isolation_level: str) -> dict[str, list[Row]]:
    """Return what librdkafka reads from topics with these numbers of partitions, up to the given end of each."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,  # it joins none, but requires a name
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    wanted = {(topic, number) for topic, count in topics.items() for number in range(count)}
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in wanted])
    rows: dict[str, list[Row]] = {topic: [] for topic in topics}
    deadline = time.monotonic() + _SECONDS
    try:
        while wanted:
            assert time.monotonic() < deadline, f"confluent-kafka found no end of {wanted} in {_SECONDS} s"
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    rows[message.topic()].append(_row(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    wanted.discard((message.topic(), message.partition()))
                else:
                    raise AssertionError(error)
    finally:
        consumer.close()
    return {topic: in_order(found) for topic, found in rows.items()}


def _row(message: Any) -> Row:
    kind, timestamp = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        kind, timestamp = NO_TIMESTAMP + 1, NO_TIMESTAMP
    headers = tuple(message.headers() or ())
    return message.partition(), message.offset(), timestamp, kind - 1, message.key(), message.value(), headers
