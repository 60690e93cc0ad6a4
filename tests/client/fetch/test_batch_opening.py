"""Large batches wait for a thread of the loop's default executor; nothing else does, whatever call asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from aiokc import Client, Consumer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.core.fetch.partition.batch_queue import Opened
from aiokc.core.fetch.partition.frame_memory import Unread
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.errors import ConsumerClosed, RequestTimedOut
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from tests.net.scripted import ticks

from ..aio.full_pool import full_pool

pytestmark = pytest.mark.timeout(60)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
LARGE = NewRecord(bytes(300 << 10))


def reading(cluster: Cluster, *partitions: TopicPartition) -> ConsumerType:
    consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    consumer.assign(partitions)
    return consumer


async def all_buffered(consumer: ConsumerType, *partitions: TopicPartition) -> None:
    fetcher = consumer._runtime.fetcher
    while not all(map(fetcher.collector.buffer.holds, partitions)):
        await fetcher.arrived.wait()


async def iterated(consumer: ConsumerType) -> int:
    async for _ in consumer:
        return 1
    return 0


async def rows(consumer: ConsumerType) -> int:
    return len(pa.record_batch(await consumer.getmany_columns()))


async def records(consumer: ConsumerType) -> int:
    return sum(map(len, (await consumer.getmany()).values()))


Call: TypeAlias = Callable[[ConsumerType], Coroutine[Any, Any, int]]
CALLS = pytest.mark.parametrize("call", [records, rows, iterated])


@CALLS
async def test_other_partitions_are_served_while_a_batch_waits_for_a_thread(
    call: Call,
) -> None:
    """The job that keeps the thread busy may wait for just these records."""
    async with Cluster(topics={"t": 2}) as cluster, asyncio.timeout(20):
        cluster.append("t", LARGE)
        cluster.append("t", b"small", partition=1)
        async with reading(cluster, ZERO, ONE) as consumer:
            with full_pool() as over:
                await all_buffered(consumer, ZERO, ONE)
                assert await call(consumer) == 1
                assert [consumer._runtime.subscription[tp].position for tp in (ZERO, ONE)] == [0, 1]
                over.set()
                assert await call(consumer) == 1
                assert await consumer.position(ZERO) == 1


@CALLS
async def test_stop_ends_a_call_that_waits_for_a_thread(
    call: Call,
) -> None:
    async with Cluster(topics={"t": 1}) as cluster, asyncio.timeout(20):
        cluster.append("t", LARGE)
        consumer = reading(cluster, ZERO)
        await consumer.start()
        with full_pool():
            await all_buffered(consumer, ZERO)
            waiting = asyncio.create_task(call(consumer))
            await ticks(5)
            assert not waiting.done()
            await consumer.stop()
            if call is iterated:
                assert await waiting == 0
            else:
                with pytest.raises(ConsumerClosed):
                    await waiting


async def test_a_call_ends_by_its_timeout_while_a_batch_waits_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the call waits, and looks at nothing again and again. Calls without time get the batch in the end."""
    opened: list[int] = []
    right = PartitionBuffer.open

    def opens(self: PartitionBuffer, unread: Unread) -> Opened | None:
        opened.append(unread.header.base_offset)
        return right(self, unread)

    monkeypatch.setattr(PartitionBuffer, "open", opens)
    async with Cluster(topics={"t": 1}) as cluster, asyncio.timeout(20):
        cluster.append("t", LARGE)
        async with reading(cluster, ZERO) as consumer:
            with full_pool() as over:
                await all_buffered(consumer, ZERO)
                looks = 0
                take = consumer._runtime.collector.take

                def counted(*arguments: Any) -> Any:
                    nonlocal looks
                    looks += 1
                    return take(*arguments)

                monkeypatch.setattr(consumer._runtime.collector, "take", counted)
                assert not await consumer.getmany(timeout_ms=100)
                assert looks <= 10
                assert not await consumer.getmany_columns(timeout_ms=100)
                over.set()
                while not (batch := await consumer.getmany(timeout_ms=0)):
                    pass
                assert len(batch[ZERO]) == 1
                assert opened == [0]


@pytest.mark.parametrize("columns", [False, True])
async def test_a_read_of_ranges_times_out_while_a_batch_waits_for_a_thread(columns: bool) -> None:
    async with Cluster(topics={"t": 2}) as cluster, Client(bootstrap_servers=cluster.bootstrap) as client:
        cluster.append("t", LARGE)
        cluster.append("t", b"small", partition=1)
        found = 0

        async def read() -> None:
            nonlocal found
            ranges = {ZERO: (0, 1), ONE: (0, 1)}
            if columns:
                async for batch in client.read_columns(ranges, timeout_ms=200):
                    found += len(pa.record_batch(batch))
            else:
                async for part in client.read(ranges, timeout_ms=200):
                    found += len(part.records)

        with full_pool():
            async with asyncio.timeout(20):
                with pytest.raises(RequestTimedOut, match=r"t-0 at offset 0 .*waits for a thread"):
                    await read()
        assert found == 1


async def test_what_else_than_its_contents_keeps_a_batch_from_being_opened_is_raised_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = PartitionBuffer.open

    def has_no_memory(self: PartitionBuffer, unread: Unread) -> Opened | None:
        monkeypatch.setattr(PartitionBuffer, "open", right)
        raise MemoryError

    monkeypatch.setattr(PartitionBuffer, "open", has_no_memory)
    async with Cluster(topics={"t": 1}) as cluster, reading(cluster, ZERO) as consumer, asyncio.timeout(20):
        cluster.append("t", LARGE)
        with pytest.raises(MemoryError):
            await consumer.getmany()
        assert len((await consumer.getmany())[ZERO]) == 1


async def test_a_batch_waits_for_no_thread_that_is_to_open_one_which_is_not_wanted_any_more() -> None:
    async with Cluster(topics={"t": 2}) as cluster, asyncio.timeout(20):
        cluster.append("t", LARGE)
        cluster.append("t", LARGE, partition=1)
        async with reading(cluster, ZERO, ONE) as consumer:
            with full_pool():
                await all_buffered(consumer, ZERO, ONE)
                assert not await consumer.getmany(timeout_ms=0)
                with full_pool() as over:  # in the place of the one that is stuck
                    over.set()
                    consumer.assign([ONE])
                    assert list(await consumer.getmany()) == [ONE]
