"""librdkafka and Java's console consumer read, at both isolation levels, what aiokc's producer has written."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import Any, Final

import pytest

from aiokc import CREATE_TIME, Producer, ProducerRecord
from aiokc.testing.kafka import LocalKafka
from tests.comparison.logs import CODECS, any_messages
from tests.comparison.rows import Row, read_by_confluent
from tests.producing import Message

from .console_consumer import read_by_console_consumer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

COUNT: Final = 150
#: Each partition is written in a way of its own: with a codec each, with acks=1, without acks, and in these ways.
MANY, IN_TRANSACTIONS = len(CODECS) + 2, len(CODECS) + 3
PARTITIONS: Final = IN_TRANSACTIONS + 1


class Writer:
    """Writes to one topic. ``committed`` and ``aborted`` are the rows that readers must see, or see only at times."""

    def __init__(self, kafka: LocalKafka, topic: str, random: Random) -> None:
        self.bootstrap, self.topic, self.random = kafka.bootstrap, topic, random
        self.committed: list[Row] = []
        self.aborted: list[Row] = []

    def rows(self, isolation_level: str) -> list[Row]:
        """Return what a reader of this level must read."""
        hidden = self.aborted if isolation_level == "read_uncommitted" else []
        return sorted(self.committed + hidden, key=lambda row: row[:2])

    async def write(self, producer: Producer[bytes, bytes], partition: int, count: int) -> list[Row]:
        """Write any records; return what they are in the log."""
        messages = any_messages(self.random, count, partition)
        deliveries = [
            await producer.send(
                self.topic, one.value, one.key, partition=partition, timestamp_ms=one.timestamp, headers=one.headers
            )
            for one in messages
        ]
        await producer.flush()
        offsets = [(await delivery).offset for delivery in deliveries]
        return [
            _row(one, number if at is None else at)
            for number, (one, at) in enumerate(zip(messages, offsets, strict=True))
        ]

    async def write_plainly(self) -> None:
        ways: list[dict[str, Any]] = [
            *({"compression_type": codec} for codec in CODECS),
            {"acks": 1, "enable_idempotence": False},
            {"acks": 0, "enable_idempotence": False},
        ]
        for partition, options in enumerate(ways):
            async with self.producer(batch_size=4_000, **options) as producer:
                self.committed += await self.write(producer, partition, COUNT)

    async def write_many(self) -> None:
        messages = any_messages(self.random, COUNT, MANY)
        async with self.producer(compression_type="zstd") as producer:
            await producer.send_many(
                self.topic,
                [
                    ProducerRecord(
                        self.topic,
                        one.value,
                        one.key,
                        partition=MANY,
                        timestamp_ms=one.timestamp,
                        headers=tuple(one.headers),
                    )
                    for one in messages
                ],
            )
            await producer.flush()
        self.committed += [_row(one, offset) for offset, one in enumerate(messages)]

    async def write_in_transactions(self) -> None:
        """Two producers in turn, one commits and the other aborts, and between their records those of a third one."""
        async with AsyncExitStack() as running:
            first, second, plain = [
                await running.enter_async_context(self.producer(**options))
                for options in (
                    {"transactional_id": f"{self.topic}-1", "compression_type": "lz4"},
                    {"transactional_id": f"{self.topic}-2", "compression_type": "gzip"},
                    {},
                )
            ]
            for kept in (True, False, True):
                await first.begin_transaction()
                await second.begin_transaction()
                of_first, of_second = self._sides(kept)
                for _ in range(3):
                    of_first += await self._some(first)
                    of_second += await self._some(second)
                    self.committed += await self._some(plain)
                await _end(first, kept)
                of_second += await self._some(second)
                self.committed += await self._some(plain)
                await _end(second, not kept)
            self.committed += await self._some(plain)  # so that whoever reads the last one has passed all markers

    def _sides(self, kept: bool) -> tuple[list[Row], list[Row]]:
        return (self.committed, self.aborted) if kept else (self.aborted, self.committed)

    async def _some(self, producer: Producer[bytes, bytes]) -> list[Row]:
        return await self.write(producer, IN_TRANSACTIONS, self.random.randint(1, 5))

    def producer(self, **options: Any) -> Producer[bytes, bytes]:
        return Producer(bootstrap_servers=self.bootstrap, **options)


async def _end(producer: Producer[bytes, bytes], kept: bool) -> None:
    await (producer.commit_transaction() if kept else producer.abort_transaction())


def _row(message: Message, offset: int) -> Row:
    assert message.partition is not None
    return (
        *(message.partition, offset, message.timestamp, CREATE_TIME, message.key, message.value),
        tuple(message.headers),
    )


async def test_others_read_what_was_sent(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, PARTITIONS)
    writer = Writer(kafka, topic_name, Random(21))
    await writer.write_plainly()
    await writer.write_many()
    await writer.write_in_transactions()
    assert writer.aborted
    await asyncio.gather(*(compare(writer, level) for level in ("read_uncommitted", "read_committed")))


async def compare(writer: Writer, isolation_level: str) -> None:
    expected = writer.rows(isolation_level)
    place = writer.bootstrap, writer.topic, isolation_level
    assert await asyncio.to_thread(read_by_console_consumer, *place, len(expected)) == expected
    found = await asyncio.to_thread(read_by_confluent, place[0], {writer.topic: PARTITIONS}, isolation_level)
    assert found[writer.topic] == expected
