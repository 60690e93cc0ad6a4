"""Other clients, and aiokc, on the Cluster: each writes in every way it can, and all read it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

import aiokc
from aiokc.testing import Cluster
from tests.producing import Message, produce, produce_in_transaction
from tests.suite.peers.kafka_python import kafka

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 2
VALUES = [f"value {number} {'.' * 200}".encode() for number in range(50)]
_SECONDS = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, auto_create_topics_enable=False).in_thread() as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, PARTITIONS)
    return name


def _with_confluent(bootstrap: str, topic: str) -> list[bytes]:
    options = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**options, "enable.partition.eof": True, "isolation.level": "read_committed"})
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values, ended = [], 0
    try:
        while ended < PARTITIONS:
            message = consumer.poll(_SECONDS)
            assert message is not None, f"no end of {topic}"
            if message.error() is None:
                values.append(message.value())
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                ended += 1
    finally:
        consumer.close()
    return values


def _with_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level="read_committed", group_id=None
    )
    try:
        partitions = [kafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        values: list[bytes] = []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for records in consumer.poll(timeout_ms=1000).values():
                values += [record.value for record in records]
        return values
    finally:
        consumer.close()


async def _with_aiokafka(bootstrap: str, topic: str) -> list[bytes]:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level="read_committed", group_id=None
    )
    await consumer.start()
    try:
        partitions = [aiokafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        values: list[bytes] = []
        for partition in partitions:
            while await consumer.position(partition) < ends[partition]:
                for records in (await consumer.getmany(partition, timeout_ms=1000)).values():
                    values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


async def _with_aiokc(bootstrap: str, topic: str) -> list[bytes]:
    partitions = [aiokc.TopicPartition(topic, index) for index in range(PARTITIONS)]
    async with aiokc.Client(bootstrap_servers=bootstrap, isolation_level="read_committed") as client:
        ends = await client.list_offsets(dict.fromkeys(partitions, aiokc.LATEST))
        ranges = {partition: (0, end.offset) for partition, end in ends.items()}
        return [bytes(record.value or b"") async for some in client.read(ranges) for record in some.records]


def _assert_all_read(cluster: Cluster, topic: str, values: list[bytes]) -> None:
    assert sorted(_with_confluent(cluster.bootstrap, topic)) == sorted(values)
    assert sorted(_with_kafka_python(cluster.bootstrap, topic)) == sorted(values)
    assert sorted(asyncio.run(_with_aiokafka(cluster.bootstrap, topic))) == sorted(values)
    assert sorted(asyncio.run(_with_aiokc(cluster.bootstrap, topic))) == sorted(values)


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_writes_and_all_read(cluster: Cluster, topic: str, codec: str) -> None:
    produce(cluster.bootstrap, topic, VALUES, codec=codec, enable_idempotence=codec != "none")
    _assert_all_read(cluster, topic, VALUES)


@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka_writes(cluster: Cluster, topic: str, codec: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=codec != "none",
    )
    await producer.start()
    try:
        for value in VALUES:
            await producer.send(topic, value)
    finally:
        await producer.stop()
    assert sorted(await _with_aiokc(cluster.bootstrap, topic)) == sorted(VALUES)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_writes(cluster: Cluster, topic: str, codec: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=codec != "none",
    )
    try:
        for value in VALUES:
            producer.send(topic, value)
        producer.flush(_SECONDS)
    finally:
        producer.close()
    assert sorted(asyncio.run(_with_aiokc(cluster.bootstrap, topic))) == sorted(VALUES)


def test_confluent_kafka_in_transactions_and_all_read_what_was_committed(cluster: Cluster, topic: str) -> None:
    produce_in_transaction(cluster.bootstrap, topic, VALUES[:20])
    produce_in_transaction(cluster.bootstrap, topic, [b"aborted"] * 20, commit=False)
    produce_in_transaction(cluster.bootstrap, topic, VALUES[20:])
    assert sum(len(cluster.records(topic, index)) for index in range(PARTITIONS)) == len(VALUES) + 20
    _assert_all_read(cluster, topic, VALUES)


async def test_aiokafka_in_transactions(cluster: Cluster, topic: str) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=topic)
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"committed")
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted")
        await producer.abort_transaction()
    finally:
        await producer.stop()
    assert await _with_aiokc(cluster.bootstrap, topic) == [b"committed"]


def test_kafka_python_in_transactions(cluster: Cluster, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=topic)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"committed")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"aborted")
        producer.flush(_SECONDS)
        producer.abort_transaction()
    finally:
        producer.close()
    assert asyncio.run(_with_aiokc(cluster.bootstrap, topic)) == [b"committed"]


def test_records_keep_all_that_they_have(cluster: Cluster, topic: str) -> None:
    headers = [("a", b"1"), ("a", None)]
    produce(cluster.bootstrap, topic, [Message(None, b"key", headers, 1_700_000_000_000, 1)])
    (record,) = cluster.records(topic, 1)
    assert (record.key, record.value, record.headers, record.timestamp) == (
        b"key",
        None,
        tuple(headers),
        1_700_000_000_000,
    )


def test_a_broker_that_stamps_the_time_itself(cluster: Cluster, topic_name: str) -> None:
    cluster.create_topic(topic_name, config={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    produce(cluster.bootstrap, topic_name, [Message(b"a", timestamp=1)])
    (record,) = cluster.records(topic_name)  # opening it checks the CRC that the broker had to write anew
    assert record.timestamp_type == aiokc.LOG_APPEND_TIME
    assert before <= record.timestamp <= int(time.time() * 1000)


def test_too_few_replicas_refuse(topic_name: str) -> None:
    with Cluster(brokers=2).in_thread() as cluster:
        cluster.create_topic(topic_name, config={"min.insync.replicas": "2"})
        produce(cluster.bootstrap, topic_name, [b"a"])
        cluster.take_down(2)
        with pytest.raises(confluent_kafka.KafkaException, match="NOT_ENOUGH_REPLICAS"):
            produce(cluster.bootstrap, topic_name, [b"b"], retries=0)
        assert [record.value for record in cluster.records(topic_name)] == [b"a"]


def test_an_admin_client_makes_and_changes_topics(cluster: Cluster) -> None:
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap})
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 2, 2)])[name].result(_SECONDS)
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(name, 2, 2)])[name].result(_SECONDS)
    with pytest.raises(confluent_kafka.KafkaException, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topics([NewTopic("wide", 1, 4)])["wide"].result(_SECONDS)
    admin.create_partitions([NewPartitions(name, 5)])[name].result(_SECONDS)
    assert len(admin.list_topics(name, timeout=_SECONDS).topics[name].partitions) == 5
    cluster.append(name, *VALUES)
    place = confluent_kafka.TopicPartition(name, 0, 20)
    assert admin.delete_records([place])[place].result(_SECONDS).low_watermark == 20
    assert admin.list_offsets({place: OffsetSpec.earliest()})[place].result(_SECONDS).offset == 20
    admin.delete_topics([name])[name].result(_SECONDS)
    assert name not in admin.list_topics(timeout=_SECONDS).topics
    assert len(admin.describe_cluster().result(_SECONDS).nodes) == 3
