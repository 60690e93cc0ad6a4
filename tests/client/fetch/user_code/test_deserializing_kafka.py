"""Deserializers and interceptors on a real Apache Kafka, with records from the producer of another library."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aiokc import (
    AsyncDeserializer,
    Consumer,
    ConsumerInterceptor,
    ConsumerRecords,
    Headers,
    OffsetAndMetadata,
    TopicPartition,
)
from aiokc.errors import DeserializationFailed
from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, produce

pytestmark = [pytest.mark.any_loop, pytest.mark.every_kafka, pytest.mark.timeout(60)]


class Registry:
    """Decodes as clients of a schema registry do: a magic byte, the id of a schema, and a look-up for each new id."""

    SCHEMAS: Mapping[int, Callable[[bytes], Any]] = {1: json.loads, 2: bytes.decode}

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._known: dict[int, Callable[[bytes], Any]] = {}

    async def deserialize(self, topic: str, headers: Headers, data: bytes) -> Any:
        magic, schema = struct.unpack_from(">bI", data)
        if magic != 0:
            raise ValueError(f"{data!r} was written without a schema")
        if schema not in self._known:
            self.asked.append(schema)
            await asyncio.sleep(0.05)
            self._known[schema] = self.SCHEMAS[schema]
        return self._known[schema](data[5:])


class Counting(ConsumerInterceptor):
    def __init__(self) -> None:
        self.records = 0
        self.committed: dict[TopicPartition, int] = {}

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        self.records += sum(map(len, records.values()))
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.update((tp, offset.offset) for tp, offset in offsets.items())


def framed(schema: int, content: bytes) -> bytes:
    return struct.pack(">bI", 0, schema) + content


async def test_a_schema_registry_and_a_poison_record(kafka: LocalKafka, topic_name: str) -> None:
    """Everything but the record without a schema is read, in order. The application seeks past that, and commits behind
    it.
    """
    kafka.create_topic(topic_name)
    produce(
        kafka.bootstrap,
        topic_name,
        [
            Message(framed(1, b'{"a": 1}'), b"1"),
            Message(framed(2, b"two"), b"2"),
            Message(None, b"3"),
            Message(b"of nobody", b"4"),
            Message(framed(1, b"[5]"), None),
        ],
    )
    registry, counting = Registry(), Counting()
    tp = TopicPartition(topic_name, 0)
    read: list[tuple[int | None, Any]] = []
    poison: list[DeserializationFailed] = []
    async with Consumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap,
        group_id=topic_name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        key_deserializer=int,
        value_deserializer=AsyncDeserializer(registry),
        interceptors=[counting],
    ) as consumer:
        while len(read) < 4:
            try:
                batch = await consumer.getmany(timeout_ms=20_000)
            except DeserializationFailed as error:
                poison.append(error)
                consumer.seek(tp, error.offset + 1)
            else:
                assert batch
                read += [(record.key, record.value) for records in batch.values() for record in records]
            await consumer.commit()
        assert read == [(1, {"a": 1}), (2, "two"), (3, None), (None, [5])]
        committed = (await consumer.committed(tp))[tp]
        assert committed is not None
        assert committed.offset == 5
    assert [(error.offset, error.record.value, error.record.key) for error in poison] == [(3, b"of nobody", b"4")]
    assert "of nobody" not in str(poison)
    assert registry.asked == [1, 2]
    assert (counting.records, counting.committed) == (4, {tp: 5})


async def test_the_same_as_other_clients_make_of_the_bytes(kafka: LocalKafka, topic_name: str) -> None:
    """20,000 records of three partitions, in compressed batches: all come, in order, and none twice."""
    kafka.create_topic(topic_name, partitions=3)
    sent = [{"number": number, "text": "x" * (number % 50)} for number in range(20_000)]
    stored = produce(kafka.bootstrap, topic_name, [json.dumps(one).encode() for one in sent], codec="lz4")
    expected: dict[int, dict[int, Any]] = {}
    for place, one in zip(stored, sent, strict=True):
        expected.setdefault(place.partition, {})[place.offset] = one
    got: dict[int, dict[int, Any]] = {}
    count = 0
    async with Consumer(
        topic_name, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest", value_deserializer=json.loads
    ) as consumer:
        while count < len(sent):
            for tp, records in (await consumer.getmany(timeout_ms=20_000)).items():
                got.setdefault(tp.partition, {}).update((record.offset, record.value) for record in records)
                count += len(records)
        assert not await consumer.getmany(timeout_ms=0)
    assert count == len(sent)
    assert got == expected
    assert all(list(values) == sorted(values) for values in got.values())
