"""Beside VerifiableProducer and VerifiableConsumer, the clients of Kafka's own system tests: one topic, one group."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from aiokc import Consumer, Delivery, Producer
from aiokc.testing.kafka import LocalKafka

from .verifiable import VerifiableTool, verifiable

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

PARTITIONS: Final = 6
KEYS: Final = 50
COUNT: Final = 400
_WITHIN: Final = 60.0

#: A record as either side tells of it: its partition and its offset, its key and its value.
Place = tuple[int, int, str, str]


async def written_by_aiokc(kafka: LocalKafka, topic: str, name: str) -> list[Place]:
    """Write as VerifiableProducer does, with the same keys; return where each record is."""
    sent: list[tuple[str, str, Delivery]] = []
    async with Producer(bootstrap_servers=kafka.bootstrap, linger_ms=0) as producer:
        for number in range(COUNT):
            key, value = f"{number % KEYS}", f"{name}.{number}"
            sent.append((key, value, await producer.send(topic, value.encode(), key.encode())))
            if number % 20 == 0:
                await producer.flush()
    places = [(key, value, delivery.result()) for key, value, delivery in sent]
    return [(at.partition, -1 if at.offset is None else at.offset, key, value) for key, value, at in places]


async def written_by_java(kafka: LocalKafka, topic: str, log: Path) -> list[Place]:
    options = {"topic": topic, "max_messages": COUNT, "repeating_keys": KEYS, "value_prefix": 7}
    async with verifiable("VerifiableProducer", log, bootstrap_server=kafka.bootstrap, **options) as java:
        await java.until(lambda: bool(java.named("tool_data")))
        assert not java.named("producer_send_error")
        return [
            (event["partition"], event["offset"], event["key"], event["value"])
            for event in java.named("producer_send_success")
        ]


class AiokcMember:
    """An aiokc consumer that reads and commits, and keeps where it has read what."""

    def __init__(self, consumer: Consumer[bytes, bytes]) -> None:
        self.consumer = consumer
        self.read: list[Place] = []
        self._polled = asyncio.Condition()

    async def until(self, so_far: Callable[[], bool]) -> None:
        """Return once ``so_far()`` is true, which is asked after each poll."""
        async with asyncio.timeout(_WITHIN), self._polled:
            await self._polled.wait_for(so_far)

    async def run(self) -> None:
        while True:
            batch = await self.consumer.getmany(timeout_ms=200)
            self.read += [
                (tp.partition, record.offset, (record.key or b"").decode(), (record.value or b"").decode())
                for tp, records in batch.items()
                for record in records
            ]
            if batch:
                await self.consumer.commit()
            async with self._polled:
                self._polled.notify_all()


def read_by_java(java: VerifiableTool) -> list[Place]:
    return [(event["partition"], event["offset"], event["key"], event["value"]) for event in java.named("record_data")]


def holds_some(java: VerifiableTool) -> bool:
    assigned = java.named("partitions_assigned")
    return bool(assigned) and 0 < len(assigned[-1]["partitions"]) < PARTITIONS


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)])
async def test_the_clients_of_kafkas_system_tests_and_aiokc_share_a_topic_and_a_group(
    kafka: LocalKafka, topic_name: str, tmp_path: Path, protocol: str
) -> None:
    """Equal keys come to the same partition, each acknowledged record is read once by one of the two members, and what
    the one has committed the other goes on from."""
    kafka.create_topic(topic_name, PARTITIONS)
    group: dict[str, Any] = {"group_id": topic_name, "group_protocol": protocol}
    if protocol == "classic":
        group["partition_assignment_strategy"] = ["range"]
    async with AsyncExitStack() as running:
        consumer = Consumer[bytes, bytes](
            topic_name,
            bootstrap_servers=kafka.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **group,
        )
        member = AiokcMember(await running.enter_async_context(consumer))
        reading = asyncio.create_task(member.run())
        java = await running.enter_async_context(
            verifiable(
                "VerifiableConsumer",
                tmp_path / "consumer",
                bootstrap_server=kafka.bootstrap,
                topic=topic_name,
                group_id=topic_name,
                group_protocol=protocol,
                verbose="",
            )
        )
        await java.until(lambda: holds_some(java))
        written = await asyncio.gather(
            written_by_java(kafka, topic_name, tmp_path / "producer"), written_by_aiokc(kafka, topic_name, "8")
        )
        places = [place for one in written for place in one]
        await member.until(lambda: len(member.read) + len(read_by_java(java)) >= len(places))
        assert member.read
        assert read_by_java(java)
        java.stop()
        await java.until(lambda: bool(java.named("shutdown_complete")))
        await member.until(lambda: len(consumer.assignment()) == PARTITIONS)
        places += await written_by_aiokc(kafka, topic_name, "9")
        await member.until(lambda: len(member.read) + len(read_by_java(java)) >= len(places))
        reading.cancel()
        await asyncio.wait([reading])
        await consumer.commit()
        committed = {tp.partition: at.offset for tp, at in (await consumer.committed()).items() if at is not None}
    assert {event["success"] for event in java.named("offsets_committed")} == {True}
    assert Counter(member.read + read_by_java(java)) == Counter(places)
    assert len({(partition, key) for partition, _, key, _ in places}) == KEYS
    ends = Counter(partition for partition, *_ in places)  # nothing else was ever written to the topic
    assert {partition: offset for partition, offset in committed.items() if offset} == ends
