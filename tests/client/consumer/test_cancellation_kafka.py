"""Calls for records, of every kind, that are cancelled at random moments while they read from a real Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from aiokc import Consumer, ConsumerRecord, ConsumerRecords, RecordColumns, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, produce

PARTITIONS: Final = 4
#: Where records are there already, most calls end within this many rounds of the loop.
MOST_ROUNDS: Final = 12


class Reader:
    """A reader whose calls are cancelled. It keeps the offsets of each partition, in the order of arrival."""

    def __init__(self, consumer: ConsumerType, topic: str, chance: Random) -> None:
        self.consumer = consumer
        self.topic = topic
        self.chance = chance
        self.got: dict[int, list[int]] = {}
        self.cancelled = 0

    async def read_all(self, ends: dict[int, int]) -> None:
        self.got = {partition: [] for partition in ends}
        while sum(map(len, self.got.values())) < sum(ends.values()):
            await self.try_once()
            if self.chance.random() < 0.01:
                await self.commit()
        assert self.got == {partition: list(range(end)) for partition, end in ends.items()}
        await self.commit()

    async def commit(self) -> None:
        """Commit, and check that exactly what was handed out is committed."""
        await self.consumer.commit()
        partitions = [TopicPartition(self.topic, number) for number in self.got]
        stored = await self.consumer.committed(*partitions)
        offsets = {tp.partition: 0 if offset is None else offset.offset for tp, offset in stored.items()}
        assert offsets == {number: len(offsets) for number, offsets in self.got.items()}

    async def try_once(self) -> None:
        call = asyncio.ensure_future(self.some_call())
        for _ in range(self.chance.randrange(MOST_ROUNDS)):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        if call.cancelled():
            self.cancelled += 1
        else:
            self.keep(call.result())

    def some_call(self) -> Coroutine[Any, Any, object]:
        match self.chance.randrange(4):
            case 0:
                return self.consumer.getone()
            case 1:
                return self.consumer.getmany(max_records=self.chance.randint(1, 50))
            case 2:
                return self.consumer.__anext__()
            case _:
                return self.consumer.getmany_columns(max_records=self.chance.randint(1, 100))

    def keep(self, result: object) -> None:
        if isinstance(result, RecordColumns):
            columns = pa.record_batch(result)
            for number, offset in zip(columns["partition"].to_pylist(), columns["offset"].to_pylist(), strict=True):
                self.got[number].append(offset)
            return
        assert isinstance(result, ConsumerRecord | ConsumerRecords)
        for record in [result] if isinstance(result, ConsumerRecord) else [r for part in result.values() for r in part]:
            self.got[record.partition].append(record.offset)


@pytest.mark.any_loop
@pytest.mark.timeout(900)
@pytest.mark.parametrize("reader_thread", [False, True])
@pytest.mark.parametrize("cancellations", [1_500, pytest.param(100_000, marks=pytest.mark.long)])
async def test_no_cancelled_call_loses_repeats_or_commits_a_record(
    kafka: LocalKafka, topic_name: str, cancellations: int, reader_thread: bool
) -> None:
    kafka.create_topic(topic_name, PARTITIONS)
    for codec in ("none", "lz4", "gzip"):
        messages = [Message(b"%d" % number, partition=number % PARTITIONS) for number in range(400)]
        produce(kafka.bootstrap, topic_name, messages, codec=codec)
    # Batches that are decoded in a thread.
    large = [Message(bytes(3_000), partition=number % PARTITIONS) for number in range(800)]
    produce(kafka.bootstrap, topic_name, large)
    async with Consumer(
        bootstrap_servers=kafka.bootstrap,
        group_id=topic_name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
        max_partition_fetch_bytes=131_072 if reader_thread else 8_192,
        reader_thread=reader_thread,
    ) as consumer:
        partitions = [TopicPartition(topic_name, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        reader = Reader(consumer, topic_name, Random(cancellations))
        ends = {tp.partition: end for tp, end in (await consumer.end_offsets(partitions)).items()}
        while reader.cancelled < cancellations:
            await consumer.seek_to_beginning(*partitions)
            await reader.read_all(ends)
