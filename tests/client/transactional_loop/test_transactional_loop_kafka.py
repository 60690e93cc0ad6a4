"""The loop on a real Kafka, with members that come, leave and die: librdkafka reads each result once."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from confluent_kafka import Consumer as OtherConsumer
from confluent_kafka import Producer as OtherProducer
from confluent_kafka import TopicPartition as OtherPartition

from aiokc import Consumer, ConsumerRecords, Producer, TransactionalLoop
from aiokc.testing.kafka import LocalKafka

pytestmark = [pytest.mark.timeout(180), pytest.mark.kafka]

PARTITIONS: Final = 4
PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "eager": {"partition_assignment_strategy": ["range"], "session_timeout_ms": 6_000, "heartbeat_interval_ms": 500},
    "cooperative": {
        "partition_assignment_strategy": ["cooperative-sticky"],
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 500,
    },
    "consumer": {"group_protocol": "consumer"},
}


class Worker:
    """Copies from topic to topic. ``copied`` counts the records that it has processed, committed or not."""

    def __init__(self, kafka: LocalKafka, topic: str, number: int, protocol: str) -> None:
        self.out = f"{topic}-out"
        self.copied = 0
        self.consumer: Consumer[Any, Any] = Consumer(
            topic,
            bootstrap_servers=kafka.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=10,
            **PROTOCOLS[protocol],
        )
        self.producer: Producer[Any, Any] = Producer(
            bootstrap_servers=kafka.bootstrap, transactional_id=f"{topic} {number}", transaction_timeout_ms=5_000
        )

    async def start(self) -> None:
        await self.producer.start()
        await self.consumer.start()
        self.loop = TransactionalLoop(self.consumer, self.producer)
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        while True:
            try:
                return await self.loop.run(self.process)
            except ArithmeticError:
                continue

    async def process(self, batch: ConsumerRecords[Any, Any]) -> None:
        for tp, records in batch.items():
            for record in records:
                await self.producer.send(self.out, record.value, partition=tp.partition)
                self.copied += 1
                if self.copied % 37 == 0:
                    raise ArithmeticError

    async def leaves(self) -> None:
        self.loop.stop()
        await self.task
        await self.consumer.stop()
        await self.producer.stop()

    async def dies(self) -> None:
        """As if its process were killed in the middle of a transaction."""
        self.task.cancel()
        await self.consumer._runtime.cluster_client.stop()
        await self.producer._runtime.cluster_client.stop()
        await asyncio.wait([self.task])


class Input:
    """Writes 0, 1, 2 and so on to the partitions of a topic in turn."""

    def __init__(self, kafka: LocalKafka, topic: str) -> None:
        self._producer = OtherProducer({"bootstrap.servers": kafka.bootstrap})
        self._topic = topic
        self.count = 0

    def give(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            self._producer.produce(self._topic, b"%d" % number, partition=number % PARTITIONS)
        self.count += count
        assert self._producer.flush(30) == 0


def results(kafka: LocalKafka, topic: str, count: int) -> dict[int, list[int]]:
    """Return what librdkafka reads with read_committed, by partition: ``count`` records, and what comes after them."""
    consumer = OtherConsumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    )
    consumer.assign([OtherPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    try:
        while True:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found[message.partition()].append(int(message.value()))
            elif sum(map(len, found.values())) >= count:
                return found
    finally:
        consumer.close()


async def copy(kafka: LocalKafka, topic: str, protocol: str, *, dies: bool) -> None:
    for name in (topic, f"{topic}-out"):
        kafka.create_topic(name, PARTITIONS)
    given = Input(kafka, topic)
    first, second, third = (Worker(kafka, topic, number, protocol) for number in range(3))
    given.give(200)
    await first.start()
    await second.start()
    while min(first.copied, second.copied) < 20:
        assert not first.task.done()
        assert not second.task.done()
        given.give(4)
        await asyncio.sleep(0.02)
    given.give(200)
    await (first.dies() if dies else first.leaves())
    await third.start()
    found = await asyncio.to_thread(results, kafka, f"{topic}-out", given.count)
    await second.leaves()
    await third.leaves()
    assert found == {number: list(range(number, given.count, PARTITIONS)) for number in range(PARTITIONS)}


@pytest.mark.parametrize(
    "protocol", ["consumer", *(pytest.param(name, marks=pytest.mark.long) for name in ("eager", "cooperative"))]
)
async def test_members_come_and_leave(kafka: LocalKafka, topic_name: str, protocol: str) -> None:
    await copy(kafka, topic_name, protocol, dies=False)


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_member_dies_in_a_transaction(kafka: LocalKafka, topic_name: str, protocol: str) -> None:
    await copy(kafka, topic_name, protocol, dies=True)


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_transactions_before_kip_890(topic_name: str, protocol: str) -> None:
    with LocalKafka(format_args=("--feature", "transaction.version=0")) as kafka:
        await copy(kafka, topic_name, protocol, dies=True)
