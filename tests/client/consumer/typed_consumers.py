"""What a type checker infers of consumers and other clients. test_typing.py runs mypy on this; it is never run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, assert_type

from aiokc import (
    EARLIEST,
    LATEST,
    AsyncDeserializer,
    AsyncSerializer,
    Client,
    ClientConfig,
    ClientOptions,
    ClusterOptions,
    Consumer,
    ConsumerConfig,
    ConsumerOptions,
    ConsumerRecord,
    ConsumerRecords,
    Headers,
    OAuthToken,
    OffsetAndTimestamp,
    PartitionRecords,
    Producer,
    ProducerOptions,
    ProducerRecord,
    RawRecords,
    RecordColumns,
    Secret,
    TopicPartition,
    TransactionalLoop,
)


class Order:
    pass


def order(data: bytes) -> Order:
    return Order()


async def looked_up(data: bytes) -> Order:
    return Order()


def of_text(data: str) -> Order:
    return Order()


class ByHeaders:
    def deserialize(self, topic: str, headers: Headers, data: bytes) -> Order:
        return Order()


class FromRegistry:
    async def deserialize(self, topic: str, headers: Headers, data: bytes) -> Order:
        return Order()


class Unfinished:
    def deserialize(self, data: bytes) -> Order:
        return Order()


# Types follow the deserializers.
assert_type(Consumer("t"), Consumer[bytes | None, bytes | None])
assert_type(Consumer("t", config=ConsumerConfig(), group_id="g"), Consumer[bytes | None, bytes | None])
assert_type(Consumer("t", value_deserializer=json.loads), Consumer[bytes | None, Any])
assert_type(Consumer("t", value_deserializer=order, group_id="g"), Consumer[bytes | None, Order])
assert_type(Consumer("t", key_deserializer=bytes.decode), Consumer[str, bytes | None])
assert_type(Consumer("t", key_deserializer=int, value_deserializer=lambda data: data.hex()), Consumer[int, str])
assert_type(Consumer("t", value_deserializer=ByHeaders()), Consumer[bytes | None, Order])
assert_type(Consumer("t", value_deserializer=AsyncDeserializer(looked_up)), Consumer[bytes | None, Order])
assert_type(Consumer("t", value_deserializer=AsyncDeserializer(FromRegistry())), Consumer[bytes | None, Order])


# What is not specified is bytes.
async def raw(consumer: Consumer) -> None:
    assert_type(consumer, Consumer[bytes | None, bytes | None])
    assert_type(await consumer.getmany(), RawRecords)
    assert_type(await consumer.wait_assigned(timeout_ms=1_000), frozenset[TopicPartition])
    assert_type(consumer.highwater(TopicPartition("t", 0)), int | None)
    assert_type(consumer.last_stable_offset(TopicPartition("t", 0)), int | None)
    assert_type(consumer.last_poll_timestamp(TopicPartition("t", 0)), int | None)


# Null is always possible.
async def typed(consumer: Consumer[str, Order]) -> None:
    batch = await consumer.getmany()
    assert_type(batch, ConsumerRecords[str | None, Order | None])
    for records in batch.values():
        assert_type(records, Sequence[ConsumerRecord[str | None, Order | None]])
        assert_type(records[0], ConsumerRecord[str | None, Order | None])
        assert_type(list(records), list[ConsumerRecord[str | None, Order | None]])
        records.append(records[0])  # type: ignore[attr-defined]
    assert_type(await consumer.getone(), ConsumerRecord[str | None, Order | None])
    async for record in consumer:
        assert_type(record.key, str | None)
        assert_type(record.value, Order | None)
    async with consumer as same:
        assert_type(same, Consumer[str, Order])
    await consumer.commit(await consumer.getmany())


# The block's client is of the class that was given.
class OfOrders(Consumer[str, Order]): ...


class WithOrders(Producer[str, Order]): ...


class Looking(Client): ...


async def derived(reading: OfOrders, writing: WithOrders, looking: Looking) -> None:
    async with reading as consumer, writing as producer, looking as client:
        assert_type(consumer, OfOrders)
        assert_type(producer, WithOrders)
        assert_type(client, Looking)


# What becomes of a batch may be returned, and is not used.
async def count(batch: ConsumerRecords[str | None, Order | None]) -> int:
    return len(batch)


async def from_topic_to_topic(loop: TransactionalLoop[str, Order]) -> None:
    await loop.run(count)
    await loop.run(lambda batch: batch.next_offsets)


# A producer's types follow its serializers, and what it is sent may be without headers by name.
def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


async def stored(value: Order) -> bytes:
    return b""


class WithHeader:
    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Order) -> bytes:
        headers.append(("schema", b"1"))
        return b""


assert_type(Producer(), Producer[bytes | None, bytes | None])
assert_type(Producer(key_serializer=str.encode, value_serializer=encoded), Producer[str, object])
assert_type(Producer(value_serializer=AsyncSerializer(stored)), Producer[bytes | None, Order])
assert_type(Producer(value_serializer=WithHeader()), Producer[bytes | None, Order])


async def sent(producer: Producer, headers: Headers | None) -> None:
    await producer.send("t", b"v", headers=headers)
    await producer.send_and_wait("t", b"v", headers=headers, timeout_ms=0.5)
    await producer.send("t", b"v", headers={"name": b"content"}.items())
    await producer.send("t", b"v", headers=((name, b"content") for name in ("a", "b")))
    producer.send_soon("t", b"v", headers=headers)


# Records are made beforehand, or within the call; with keys or without.
async def sent_together(raw: Producer, typed: Producer[str, Order], headers: dict[str, bytes]) -> None:
    keyless = [ProducerRecord("t", b"v"), ProducerRecord("t", b"w", headers=headers.items())]
    await raw.send_many("t", keyless)
    await raw.send_many("t", [ProducerRecord("t", b"v", b"k"), ProducerRecord("t", b"w"), ProducerRecord("t"), None])
    values = [b"v", b"w"]
    await raw.send_many("t", values)
    orders = [ProducerRecord("t", Order(), "k")]
    await typed.send_many("t", orders)
    await typed.send_many("t", [Order(), None, ProducerRecord("t", Order())])
    await typed.send_many("t", (ProducerRecord("t", Order(), str(number)) for number in range(3)))
    await typed.send_many("t", keyless)  # type: ignore[arg-type]


# Each partition has a beginning and an end, and may have no record at or after a time.
async def offsets(client: Client, partitions: list[TopicPartition]) -> None:
    ends = await client.list_offsets(dict.fromkeys(partitions, LATEST))
    assert_type(ends, dict[TopicPartition, OffsetAndTimestamp])
    both = await client.list_offsets({partitions[0]: EARLIEST, partitions[1]: LATEST})
    assert_type(both, dict[TopicPartition, OffsetAndTimestamp])
    at = await client.list_offsets(dict.fromkeys(partitions, 1_767_225_600_000))
    assert_type(at, dict[TopicPartition, OffsetAndTimestamp | None])


# A loop that breaks off closes what it reads by aclosing().
async def some(client: Client, ranges: dict[TopicPartition, tuple[int, int]]) -> None:
    async with aclosing(client.read(ranges)) as parts:
        async for part in parts:
            assert_type(part, PartitionRecords)
    async with aclosing(client.read_columns(ranges, timeout_ms=1e3)) as batches:
        async for batch in batches:
            assert_type(batch, RecordColumns)


# Tokens come from an object that has a method for them.
class Tokens:
    async def token(self) -> str:
        return "token"


class PlainTokens:
    def token(self) -> OAuthToken:
        return OAuthToken("token")


Consumer(sasl_oauth_token_provider=Tokens())
ClientConfig(sasl_oauth_token_provider=PlainTokens())

# One dictionary of options for several clients.
connecting: ClusterOptions = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_password": Secret("a secret")}
Consumer("t", group_id="g", **connecting)
Producer(linger_ms=0, **connecting)
Client(**connecting)
reading: ConsumerOptions = {"group_id": "g", "auto_offset_reset": "earliest"}
Consumer("t", **reading)
looking: ClientOptions = {"isolation_level": "read_committed"}
Client(**looking)
writing: ProducerOptions = {"acks": "all"}
Producer(value_serializer=encoded, **writing)


# Wrong uses are errors: mypy warns of an ignore that ignores nothing.
Consumer("t", value_deserializer=of_text)  # type: ignore[arg-type]
Consumer("t", value_deserializer=Unfinished())  # type: ignore[arg-type]
Consumer("t", key_deserializer="utf-8")  # type: ignore[arg-type]
Consumer("t", max_poll_record=5)  # type: ignore[call-arg]
misspelled: ClusterOptions = {"sasl_mechanisms": "PLAIN"}  # type: ignore[typeddict-unknown-key]
Consumer("t", max_poll_records="5")  # type: ignore[arg-type]
Consumer("t", sasl_oauth_token_provider=Tokens)  # type: ignore[arg-type]
Consumer("t", sasl_oauth_token_provider=Tokens().token)  # type: ignore[arg-type]
of_int: Consumer[bytes | None, int] = Consumer("t", value_deserializer=order)  # type: ignore[arg-type]
not_awaited: Consumer[bytes | None, Order] = Consumer("t", value_deserializer=looked_up)  # type: ignore[arg-type]
