"""Transactions of aiokc and of Java in a row: Java's copier reads what aiokc wrote, and aiokc what that wrote."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer, ConsumerRecords, Producer, TransactionalLoop
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.jars import run_tool
from tests.comparison.rows import read_by_confluent
from tests.suite.peers.java_programs import QUICK_JVM

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(180)]


async def write(kafka: LocalKafka, topic: str) -> list[bytes]:
    """Transactions of which every third one is aborted; return what is committed."""
    kept: list[bytes] = []
    async with Producer(bootstrap_servers=kafka.bootstrap, transactional_id=topic) as producer:
        for number in range(30):
            values = [b"%d.%d" % (number, part) for part in range(17)]
            await producer.begin_transaction()
            await producer.send_many(topic, values)
            await producer.flush()
            if number % 3 == 1:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                kept += values
    return kept


def java_copies(bootstrap: str, source: str, target: str) -> None:
    """Copy in transactions of ten records, and abort some at random."""
    run_tool(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--consumer-group", source, "--transactional-id", f"java-{source}", "--transaction-size", "10"),
        *("--enable-random-aborts", "--use-group-metadata"),
        jvm=QUICK_JVM,
        timeout=120,
    )


async def aiokc_copies(kafka: LocalKafka, source: str, target: str, count: int) -> None:
    """Copy until ``count`` records have been copied."""
    async with (
        Producer(bootstrap_servers=kafka.bootstrap, transactional_id=f"aiokc-{source}") as producer,
        Consumer(
            source,
            bootstrap_servers=kafka.bootstrap,
            group_id=source,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=23,
        ) as consumer,
    ):
        loop: TransactionalLoop[Any, Any] = TransactionalLoop(consumer, producer)
        copied = 0

        async def process(batch: ConsumerRecords[Any, Any]) -> None:
            nonlocal copied
            values = [record.value for records in batch.values() for record in records]
            await producer.send_many(target, values)
            copied += len(values)
            if copied >= count:
                loop.stop()

        await loop.run(process)


async def test_each_reads_what_the_other_has_committed(kafka: LocalKafka, topic_name: str) -> None:
    first, second, third = (f"{topic_name}-{number}" for number in (1, 2, 3))
    for topic in (first, second, third):
        kafka.create_topic(topic)
    expected = await write(kafka, first)
    await asyncio.to_thread(java_copies, kafka.bootstrap, first, second)
    await aiokc_copies(kafka, second, third, len(expected))
    topics = {second: 1, third: 1}
    found = await asyncio.to_thread(read_by_confluent, kafka.bootstrap, topics, "read_committed")
    assert {topic: [row[5] for row in rows] for topic, rows in found.items()} == {second: expected, third: expected}
