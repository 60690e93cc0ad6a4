"""A Producer against a real Kafka: librdkafka reads what it wrote."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from aiokc import Producer
from aiokc.errors import MessageTooLarge
from aiokc.testing.kafka import LocalKafka

pytestmark = pytest.mark.timeout(60)


def read(bootstrap: str, topic: str, partition: int, count: int) -> list[Any]:
    """Return the first ``count`` messages of a partition, as librdkafka reads them, with their CRCs checked."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "auto.offset.reset": "earliest", "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        found: list[Any] = []
        while len(found) < count:
            some = consumer.consume(count - len(found), timeout=20)
            assert some, f"{len(found)} of {count}"
            assert not [one.error() for one in some if one.error()]
            found += some
        return found
    finally:
        consumer.close()


@pytest.mark.every_kafka(since="2.1")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_librdkafka_reads_what_is_sent(kafka: LocalKafka, topic_name: str, codec: Any) -> None:
    kafka.create_topic(topic_name, 2)
    async with Producer(bootstrap_servers=kafka.bootstrap, compression_type=codec) as producer:
        for number in range(1000):
            await producer.send(
                topic_name,
                None if number % 7 == 0 else b"value %d " % number * 10,
                None if number % 5 == 0 else b"%d" % number,
                partition=number % 2,
                timestamp_ms=1_700_000_000_000 + number,
                headers=[("name", b"%d" % number), ("name", None)] if number % 3 == 0 else (),
            )
        await producer.flush()
    for partition in range(2):
        found = await asyncio.to_thread(read, kafka.bootstrap, topic_name, partition, 500)
        for offset, message in enumerate(found):
            number = 2 * offset + partition
            assert message.offset() == offset
            assert message.value() == (None if number % 7 == 0 else b"value %d " % number * 10)
            assert message.key() == (None if number % 5 == 0 else b"%d" % number)
            assert message.timestamp()[1] == 1_700_000_000_000 + number
            expected = [("name", b"%d" % number), ("name", None)] if number % 3 == 0 else None
            assert message.headers() == expected


async def test_a_lone_record_that_is_too_large_does_not_harm_the_next(kafka: LocalKafka, topic_name: str) -> None:
    """Its sequence is lost with it, so the partition goes on in the next epoch."""
    kafka.create_topic(topic_name, 1, config={"max.message.bytes": "1000"})
    async with Producer(bootstrap_servers=kafka.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait(topic_name, b"0")
        with pytest.raises(MessageTooLarge) as refused:
            await producer.send_and_wait(topic_name, bytes(2000))
        assert refused.value.persisted == "no"
        assert (await producer.send_and_wait(topic_name, b"1")).offset == 1
        many = [await producer.send(topic_name, b"%d" % number + bytes(300)) for number in range(40)]
        await producer.flush()
        assert [(await one).offset for one in many] == list(range(2, 42))
        assert producer._runtime.accumulator.counters.splits > 0


async def test_a_batch_that_is_longer_than_a_segment_is_split(kafka: LocalKafka, topic_name: str) -> None:
    """What max.message.bytes allows may still be longer than a segment, to which a broker answers another code."""
    kafka.create_topic(topic_name, 1, config={"max.message.bytes": "4000000", "segment.bytes": "1048576"})
    async with Producer(
        bootstrap_servers=kafka.bootstrap, batch_size=3_000_000, max_request_size=3_500_000, linger_ms=60_000
    ) as producer:
        many = [await producer.send(topic_name, b"%d" % number + bytes(200_000)) for number in range(10)]
        await producer.flush()
        assert [(await one).offset for one in many] == list(range(10))
        assert producer._runtime.accumulator.counters.splits > 0
        await producer.send(topic_name, bytes(1_100_000))
        with pytest.raises(
            MessageTooLarge, match=r"raise segment\.bytes of the topic: RECORD_LIST_TOO_LARGE"
        ) as refused:
            await producer.flush()
        assert refused.value.persisted == "no"
