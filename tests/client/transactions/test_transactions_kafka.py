"""Transactions on a real Kafka, of both kinds: librdkafka reads what is there at both isolation levels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import pytest
from confluent_kafka import Consumer as OtherConsumer
from confluent_kafka import TopicPartition as OtherPartition

from aiokc import Consumer, GroupMetadata, Producer, TopicPartition
from aiokc.errors import CommitFailed, ProducerFenced, RecordRefused, TransactionAbortable
from aiokc.testing.kafka import LocalKafka
from tests.features import change_feature

pytestmark = [pytest.mark.timeout(120), pytest.mark.kafka]

#: A coordinator looks for transactions that take too long, and for ids that nobody uses, this often (default: 10 s, 1
#: h), and forgets an id after a week.
_QUICK: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "transactional.id.expiration.ms": "3000",
}
Read: TypeAlias = Callable[..., list[bytes]]


@pytest.fixture(scope="module", params=[0, 1, 2], ids=["v0", "v1", "v2"])
def level(request: pytest.FixtureRequest) -> int:
    """The finalized level of transaction.version."""
    found: int = request.param
    return found


@pytest.fixture(scope="module")
def own(level: int) -> Iterator[LocalKafka]:
    """A broker of that level, which looks for what takes too long more often than others."""
    with LocalKafka(config=_QUICK, format_args=("--feature", f"transaction.version={level}")) as running:
        yield running


def producer(kafka: LocalKafka, transactional_id: str, **options: Any) -> Producer[bytes, bytes]:
    return Producer(bootstrap_servers=kafka.bootstrap, transactional_id=transactional_id, **options)


async def read(kafka: LocalKafka, topic: str, isolation_level: str = "read_committed") -> list[bytes]:
    """Return what librdkafka reads of a topic's only partition, up to its end at this isolation level."""
    return await asyncio.to_thread(_read, kafka, topic, isolation_level)


def _read(kafka: LocalKafka, topic: str, isolation_level: str) -> list[bytes]:
    consumer = OtherConsumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "none",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([OtherPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, "nothing comes, not even the end"
            if message.error() is not None:
                return values  # the end of the partition
            values.append(message.value())
    finally:
        consumer.close()


async def stories(kafka: LocalKafka, topic: str) -> None:
    """Commit, abort, offsets, and a twin."""
    kafka.create_topic(topic)
    partition = TopicPartition(topic, 0)
    async with (
        producer(kafka, topic) as elder,
        Consumer(
            topic,
            bootstrap_servers=kafka.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as member,
    ):
        async with elder.transaction() as transaction:
            await elder.send(topic, b"1")
            await elder.flush()
            assert await read(kafka, topic) == []
            assert await read(kafka, topic, "read_uncommitted") == [b"1"]
        async with elder.transaction():
            pass
        with pytest.raises(KeyError):
            async with elder.transaction():
                await elder.send_and_wait(topic, b"2")
                raise KeyError
        batch = await member.getmany(timeout_ms=20_000)
        known = member.group_metadata()
        async with elder.transaction() as transaction:
            await elder.send(topic, b"3")
            await transaction.send_offsets(batch, known)
        assert await member.committed(partition) == batch.next_offsets
        zombie = GroupMetadata(topic, known.generation_id + 1, known.member_id)
        with pytest.raises(CommitFailed):
            async with elder.transaction() as transaction:
                await elder.send(topic, b"4")
                await transaction.send_offsets({partition: 77}, zombie)
        assert await member.committed(partition) == batch.next_offsets
        await elder.begin_transaction()
        await elder.send_and_wait(topic, b"5")
        async with producer(kafka, topic) as twin:
            async with twin.transaction():
                await twin.send(topic, b"6")
            with pytest.raises((RecordRefused, ProducerFenced)):
                await elder.send_and_wait(topic, b"7")
            with pytest.raises(ProducerFenced):
                await elder.abort_transaction()
            async with twin.transaction():
                await twin.send(topic, b"8")
    assert await read(kafka, topic) == [b"1", b"3", b"6", b"8"]
    assert set(await read(kafka, topic, "read_uncommitted")) - {b"4"} == {b"1", b"2", b"3", b"5", b"6", b"8"}


@pytest.mark.every_kafka(since="2.8")
async def test_librdkafka_sees_what_is_committed(kafka: LocalKafka, topic_name: str) -> None:
    await stories(kafka, topic_name)


@pytest.mark.every_kafka(since="2.8")
async def test_many_transactions_of_many_partitions(kafka: LocalKafka, topic_name: str) -> None:
    """One after the other without a pause, so that each begins while the markers of the last one are written."""
    kafka.create_topic(topic_name)
    side = f"{topic_name}-side"
    kafka.create_topic(side, 5)
    async with producer(kafka, topic_name) as writer:
        for number in range(50):
            try:
                async with writer.transaction():
                    await writer.send(topic_name, b"%d" % number)
                    for partition in range(5):
                        await writer.send(side, b"%d" % number, partition=partition)
                    if number % 5 == 4:
                        await writer.flush()
                        raise KeyError
            except KeyError:
                continue
    assert await read(kafka, topic_name) == [b"%d" % number for number in range(50) if number % 5 != 4]
    assert await read(kafka, side) == [b"%d" % number for number in range(50) if number % 5 != 4]


async def test_a_cancelled_commit_goes_on(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    async with producer(kafka, topic_name) as writer:
        for number in range(5):
            await writer.begin_transaction()
            await writer.send(topic_name, b"%d" % number)
            commit = asyncio.create_task(writer.commit_transaction())
            for _ in range(number):
                await asyncio.sleep(0)
            commit.cancel()
            await asyncio.wait([commit])
            if writer._runtime.transactions is not None and writer._runtime.transactions.machine.error is None:
                await writer.commit_transaction()
    assert await read(kafka, topic_name) == [b"%d" % number for number in range(5)]


@pytest.mark.long
async def test_both_kinds(own: LocalKafka, topic_name: str) -> None:
    await stories(own, topic_name)


@pytest.mark.long
async def test_a_transaction_that_took_too_long(own: LocalKafka, topic_name: str, level: int) -> None:
    own.create_topic(topic_name)
    async with producer(own, topic_name, transaction_timeout_ms=1_000) as writer:
        await writer.begin_transaction()
        await writer.send_and_wait(topic_name, b"1")
        await asyncio.sleep(2.5)
        if level < 2:
            with pytest.raises(ProducerFenced):
                await writer.commit_transaction()
            with pytest.raises(ProducerFenced):
                await writer.begin_transaction()
            return
        with pytest.raises(TransactionAbortable):
            await writer.commit_transaction()
        await writer.abort_transaction()
        with pytest.raises(RecordRefused, match="INVALID_PRODUCER_EPOCH"):
            async with writer.transaction():
                await writer.send_and_wait(topic_name, b"2")
                await asyncio.sleep(2.5)
                await writer.send_and_wait(topic_name, b"3")
        async with writer.transaction():
            await writer.send(topic_name, b"4")
    assert await read(own, topic_name) == [b"4"]


@pytest.mark.long
async def test_an_id_that_the_coordinator_has_forgotten(own: LocalKafka, topic_name: str) -> None:
    own.create_topic(topic_name)
    async with producer(own, topic_name) as writer:
        async with writer.transaction():
            await writer.send(topic_name, b"1")
        await asyncio.sleep(6.0)
        with pytest.raises((TransactionAbortable, RecordRefused), match="INVALID_PRODUCER_ID_MAPPING"):
            async with writer.transaction():
                await writer.send(topic_name, b"2")
        async with writer.transaction():
            await writer.send(topic_name, b"3")
    assert await read(own, topic_name) == [b"1", b"3"]


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_the_level_of_transactions_changes_while_the_producer_runs(topic_name: str) -> None:
    """Up, down, and up again. Where it was lowered the broker refuses InitProducerId, also that of a new producer."""
    with LocalKafka(format_args=("--feature", "transaction.version=0")) as kafka:
        kafka.create_topic(topic_name)
        number = 0
        async with producer(kafka, topic_name) as writer:
            for change, level in ((None, 0), ("upgrade", 2), ("downgrade", 0), ("upgrade", 2)):
                if change is not None:
                    await change_feature(kafka, change, "transaction.version", level)
                await asyncio.sleep(2.0)
                for _ in range(2):
                    async with writer.transaction():
                        number += 1
                        await writer.send(topic_name, b"%d" % number)
                await writer.begin_transaction()
                await writer.send_and_wait(topic_name, b"aborted")
                await writer.abort_transaction()
                assert writer._runtime.transactions is not None
                assert writer._runtime.transactions.machine.uses_v2 == (level == 2)
        assert await read(kafka, topic_name) == [b"%d" % one for one in range(1, number + 1)]


@pytest.mark.long
async def test_the_coordinator_is_killed_in_the_middle(three_nodes: LocalKafka, topic_name: str) -> None:
    kafka = three_nodes
    kafka.create_topic(topic_name)
    async with producer(kafka, topic_name) as writer:
        async with writer.transaction():
            await writer.send(topic_name, b"0")
        assert writer._runtime.transactions is not None
        for number in range(1, 4):
            await writer.begin_transaction()
            await writer.send_and_wait(topic_name, b"%d" % number)
            coordinator = writer._runtime.transactions.requests.node_id
            assert coordinator is not None
            node = kafka.node(coordinator)
            await asyncio.to_thread(node.kill)
            await writer.commit_transaction()
            await asyncio.to_thread(kafka.heal)
    # A commit is decided once the coordinator has stored it; its markers are written when their leaders are back.
    while len(found := await read(kafka, topic_name)) < 4:
        pass
    assert found == [b"0", b"1", b"2", b"3"]
