"""A consumer whose long answers a thread receives, on brokers that die, fall silent or talk nonsense within them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any, Final

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.errors import ConsumerClosed
from aiokc.native import extension
from aiokc.net.reader_thread import ReaderThread
from aiokc.records import Codec, NewRecord, UnpackingAhead
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import garble, half_frame
from aiokc.wire.messages.fetch import FetchRequest

from ..._native.reading.seen_by_linux import reader_threads

pytestmark = [
    pytest.mark.any_loop,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not hasattr(extension, "ReaderThread"), reason="no reader thread without the extension"),
]

KIB: Final = 1 << 10
PARTITIONS: Final = 4
RECORDS: Final = 400  # of each partition
BUDGET: Final = 2048 * KIB


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=2, topics={"t": PARTITIONS}) as cluster:
        for partition in range(PARTITIONS):
            for number in range(RECORDS):
                value = (b"%d-%d " % (partition, number)).ljust(10 * KIB, b".")
                cluster.append("t", NewRecord(value), partition=partition)
        yield cluster
    await no_thread_left()


def reader(cluster: Cluster, **options: Any) -> ConsumerType:
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        reader_thread=True,
        fetch_buffer_bytes=BUDGET,
        max_partition_fetch_bytes=256 * KIB,
        **options,
    )
    consumer.assign(TopicPartition("t", number) for number in range(PARTITIONS))
    return consumer


async def no_thread_left() -> None:
    async with asyncio.timeout(20):
        while reader_threads():  # noqa: ASYNC110 (nobody is told when a thread has ended)
            await asyncio.sleep(0.001)


async def half_and_no_more(exchange: Exchange) -> None:
    response = await exchange.handle()
    if response is not None:
        frame = exchange.frame(response)
        await exchange.answer_bytes(frame[: len(frame) // 2])


async def test_no_record_is_lost_repeated_or_changed_whatever_becomes_of_answers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls are cancelled at random, too. Memory stays within the bound."""
    reads, chance, read = 0, Random(5), ReaderThread.read

    def counted(*arguments: Any) -> int:
        nonlocal reads
        reads += 1
        return read(*arguments)

    monkeypatch.setattr(ReaderThread, "read", counted)

    faults = [half_frame(), garble(), half_frame(), half_and_no_more, half_frame()]

    async def trouble(exchange: Exchange) -> Any:
        if chance.random() < 0.25 and faults:
            return await faults.pop()(exchange)  # type: ignore[operator, misc]
        return None

    cluster.intercept(FetchRequest, trouble)
    got: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    most = 0
    async with reader(cluster, request_timeout_ms=5_000, fetch_max_wait_ms=100) as consumer, asyncio.timeout(200):
        while sum(map(len, got.values())) < PARTITIONS * RECORDS:
            call = asyncio.ensure_future(consumer.getmany(max_records=20))
            for _ in range(chance.randrange(8)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                call.cancel()
            await asyncio.wait((call,))
            if call.cancelled():
                continue
            for tp, records in call.result().items():
                got[tp.partition] += [(record.value or b"").rstrip(b".") for record in records]
            most = max(most, consumer._runtime.fetcher._buffer.bytes)
    assert faults == []
    assert got == {
        partition: [b"%d-%d " % (partition, number) for number in range(RECORDS)] for partition in range(PARTITIONS)
    }
    assert reads >= 10
    assert most <= BUDGET + 2 * 256 * KIB


async def test_stop_in_the_middle_of_an_answer(cluster: Cluster) -> None:
    halves = cluster.intercept(FetchRequest, half_and_no_more)
    consumer = reader(cluster)
    await consumer.start()
    call = asyncio.ensure_future(consumer.getmany(timeout_ms=60_000))
    async with asyncio.timeout(20):
        while halves.hits < 2 or not reader_threads():  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.001)
    async with asyncio.timeout(20):  # less than a request has
        await consumer.stop()
    with pytest.raises(ConsumerClosed):
        await call
    await no_thread_left()


@pytest.mark.parametrize("reader_thread", [True, False])
async def test_compressed_batches_are_unpacked_ahead_unless_threads_are_off(
    monkeypatch: pytest.MonkeyPatch, reader_thread: bool
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(UnpackingAhead, "begin", lambda *told, **_: begun.append(told))
    async with Cluster(topics={"t": 1}) as cluster:
        for number in range(20):
            cluster.append("t", *[NewRecord(b"%d" % number * KIB)] * 20, codec=Codec.ZSTD)
        async with Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", reader_thread=reader_thread
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            count = 0
            while count < 400:
                count += sum(map(len, (await consumer.getmany()).values()))
    assert bool(begun) == reader_thread
