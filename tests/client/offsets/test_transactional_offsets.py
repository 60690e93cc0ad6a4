"""Offsets in the transactions of another library's producer (kafka-python), on a real Apache Kafka (KIP-447)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any

import pytest

from aiokc import Client, Consumer, ConsumerRecords, GroupMetadata, TopicPartition
from aiokc.errors import RequestTimedOut
from aiokc.testing.kafka import LocalKafka
from tests.more_time import raised_by
from tests.producing import produce
from tests.suite.peers.kafka_python import kafka as kafka_python

pytestmark = [pytest.mark.timeout(180), pytest.mark.kafka, pytest.mark.every_kafka]


@contextmanager
def transactional_producer(bootstrap: str, name: str) -> Iterator[Any]:
    producer = kafka_python.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    try:
        producer.init_transactions()
        yield producer
    finally:
        producer.close(timeout=10)


def send(producer: Any, topic: str, batch: ConsumerRecords[Any, Any], group: GroupMetadata) -> None:
    """Send, within the transaction, the results of a batch and the offsets behind it."""
    for records in batch.values():
        for record in records:
            producer.send(topic, record.value).get(timeout=20)
    offsets = {
        kafka_python.TopicPartition(*tp): kafka_python.OffsetAndMetadata(
            offset.offset, offset.metadata, offset.leader_epoch
        )
        for tp, offset in batch.next_offsets.items()
    }
    producer.send_offsets_to_transaction(offsets, kafka_python.structs.ConsumerGroupMetadata(*astuple(group)))


CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 100, "partition_assignment_strategy": ("range",)}
PROTOCOLS = [
    pytest.param(CLASSIC, id="classic"),
    pytest.param({"group_protocol": "consumer"}, id="consumer", marks=pytest.mark.every_kafka(since="4.3")),
]


def member(kafka: LocalKafka, topic: str, protocol: dict[str, Any] = CLASSIC, **options: Any) -> Consumer:
    return Consumer(
        topic,
        bootstrap_servers=kafka.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **protocol,
        **options,
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_offset_of_an_open_transaction_is_waited_for(
    kafka: LocalKafka, topic_name: str, protocol: dict[str, Any]
) -> None:
    """OffsetFetch always asks for stable offsets: it gets neither the old one nor one that may be aborted."""
    kafka.create_topic(topic_name)
    kafka.create_topic(f"{topic_name}-out")
    produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(10)])
    tp = TopicPartition(topic_name, 0)
    async with (
        member(kafka, topic_name, protocol) as consumer,
        Client(bootstrap_servers=kafka.bootstrap) as client,
    ):
        with transactional_producer(kafka.bootstrap, topic_name) as producer:
            batch = await consumer.getmany(max_records=4)
            for end, commits, expected in ((4, True, 4), (8, False, 4)):
                await asyncio.to_thread(producer.begin_transaction)
                await asyncio.to_thread(send, producer, f"{topic_name}-out", batch, consumer.group_metadata())
                assert batch.next_offsets[tp].offset == end
                await raised_by(
                    lambda timeout_ms: consumer.committed(tp, timeout_ms=timeout_ms),
                    RequestTimedOut,
                    "UNSTABLE_OFFSET_COMMIT",
                    timeouts_ms=(1_500, 20_000),
                )
                waiting = asyncio.ensure_future(client.committed(topic_name, [tp]))
                await asyncio.to_thread(producer.commit_transaction if commits else producer.abort_transaction)
                found = (await waiting)[tp]
                assert found is not None
                assert found.offset == expected
                batch = await consumer.getmany(max_records=4)


async def test_a_member_that_the_group_has_gone_on_without_cannot_commit_in_a_transaction(
    kafka: LocalKafka, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=2)
    produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(10)])
    async with member(kafka, topic_name) as first:
        batch = await first.getmany()
        before = first.group_metadata()
        async with member(kafka, topic_name) as second, asyncio.timeout(40):
            polls = [asyncio.ensure_future(one.getmany(timeout_ms=30_000)) for one in (first, second)]
            while first.group_metadata().generation_id == before.generation_id or not second.assignment():
                await second._runtime.changed.wait(0.1)
            with transactional_producer(kafka.bootstrap, topic_name) as producer:
                await asyncio.to_thread(producer.begin_transaction)
                with pytest.raises(kafka_python.errors.CommitFailedError):
                    await asyncio.to_thread(send, producer, topic_name, batch, before)
            for poll in polls:
                poll.cancel()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_member_that_was_not_polled_cannot_commit_in_a_transaction_either(
    kafka: LocalKafka, topic_name: str, protocol: dict[str, Any]
) -> None:
    """It asks for its group metadata when it is out already. Without a member id and generation in them, its commit
    would be allowed to overwrite what the other member has committed.
    """
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(10)])
    async with member(kafka, topic_name, protocol, max_poll_interval_ms=500) as first, asyncio.timeout(60):
        batch = await first.getmany(max_records=4)
        while first.health().generation >= 0:
            await first._runtime.changed.wait(0.1)
        async with member(kafka, topic_name, protocol) as second:
            await second.getmany()
            with transactional_producer(kafka.bootstrap, topic_name) as producer:
                await asyncio.to_thread(producer.begin_transaction)
                with pytest.raises(kafka_python.errors.CommitFailedError):
                    await asyncio.to_thread(send, producer, topic_name, batch, first.group_metadata())
