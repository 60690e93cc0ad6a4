"""Large batches are opened by a thread of their own; no other records wait for it, whatever call asks for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias
from unittest.mock import patch

import pyarrow as pa
import pytest

from aiokc import Client, Consumer, Producer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.core.fetch.partition.batch_queue import Opened
from aiokc.core.fetch.partition.frame_memory import Unread
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.errors import ConsumerClosed, RequestTimedOut, UsageError
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from tests.more_time import raised_by
from tests.net.scripted import ticks

from ..aio.full_pool import full_pool

pytestmark = pytest.mark.timeout(60)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
LARGE = NewRecord(bytes(300 << 10))


@contextmanager
def busy_thread() -> Iterator[threading.Event]:
    """No batch is opened by a thread until the event is set, or this context ends."""
    over, right = threading.Event(), PartitionBuffer.open

    def opens(self: PartitionBuffer, unread: Unread) -> Opened | None:
        over.wait()
        return right(self, unread)

    with patch.object(PartitionBuffer, "open", opens):
        try:
            yield over
        finally:
            over.set()


def reading(cluster: Cluster, *partitions: TopicPartition, **options: Any) -> ConsumerType:
    consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
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


async def rows(consumer: ConsumerType, *partitions: TopicPartition) -> int:
    return len(pa.record_batch(await consumer.getmany_columns(*partitions)))


async def records(consumer: ConsumerType, *partitions: TopicPartition) -> int:
    return sum(map(len, (await consumer.getmany(*partitions)).values()))


Call: TypeAlias = Callable[[ConsumerType], Coroutine[Any, Any, int]]
CallOf: TypeAlias = Callable[..., Coroutine[Any, Any, int]]
CALLS = pytest.mark.parametrize("call", [records, rows, iterated])


@CALLS
async def test_other_partitions_are_served_while_a_batch_waits_for_a_thread(
    call: Call,
) -> None:
    async with Cluster(topics={"t": 2}) as cluster, asyncio.timeout(20):
        cluster.append("t", LARGE)
        cluster.append("t", b"small", partition=1)
        async with reading(cluster, ZERO, ONE) as consumer:
            with busy_thread() as over:
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
        with busy_thread():
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
            with busy_thread() as over:
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

        async def read(timeout_ms: int) -> None:
            nonlocal found
            found = 0
            ranges = {ZERO: (0, 1), ONE: (0, 1)}
            if columns:
                async for batch in client.read_columns(ranges, timeout_ms=timeout_ms):
                    found += len(pa.record_batch(batch))
            else:
                async for part in client.read(ranges, timeout_ms=timeout_ms):
                    found += len(part.records)

        with busy_thread():
            async with asyncio.timeout(50):
                text = r"t-0 at offset 0 .*a thread is to open its next batch"
                await raised_by(read, RequestTimedOut, text, timeouts_ms=(2_000, 15_000))
        assert found == 1


@pytest.mark.parametrize("step", ["open", "opened"], ids=["in the thread", "behind it"])
async def test_what_else_than_its_contents_keeps_a_batch_from_being_opened_is_raised_once(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(PartitionBuffer, step)

    def has_no_memory(*arguments: Any) -> None:
        monkeypatch.setattr(PartitionBuffer, step, right)
        raise MemoryError

    monkeypatch.setattr(PartitionBuffer, step, has_no_memory)
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
            with busy_thread() as over:
                await all_buffered(consumer, ZERO, ONE)
                assert not await consumer.getmany(timeout_ms=0)
                consumer.assign([ONE])
                assert not await consumer.getmany(timeout_ms=100)
                over.set()
                assert list(await consumer.getmany()) == [ONE]


@CALLS
async def test_a_large_batch_waits_for_no_job_of_the_application(call: Call) -> None:
    """The jobs in the loop's default executor may wait for just these records, or for those behind a full buffer."""
    async with Cluster(topics={"t": 2}) as cluster, asyncio.timeout(20):
        cluster.append("t", *[LARGE] * 3)
        async with reading(cluster, ZERO, ONE, fetch_buffer_bytes=600_000) as consumer:
            with full_pool():
                await all_buffered(consumer, ZERO)
                cluster.append("t", b"small", partition=1)
                found = 0
                while found < 4:
                    found += await call(consumer)


async def test_a_batch_of_an_aborted_transaction_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A thread has found that it is hidden. 2. The records before it are read again, now as columns. 3. It has no
    bytes any more, and a thread that was given it again and again would not find what to do with it.
    """
    opened: list[int] = []
    right = PartitionBuffer.open

    def opens(self: PartitionBuffer, unread: Unread) -> Opened | None:
        opened.append(unread.header.base_offset)
        return right(self, unread)

    async with Cluster(topics={"t": 1}) as cluster, asyncio.timeout(20):
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "transactional_id": "id", "linger_ms": 1_000}
        async with Producer(**options) as producer:
            async with producer.transaction():
                for _ in range(10):
                    await producer.send("t", b"0", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait("t", bytes(300 << 10), partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"1", partition=0)
        monkeypatch.setattr(PartitionBuffer, "open", opens)
        async with reading(cluster, ZERO, isolation_level="read_committed") as consumer:
            await all_buffered(consumer, ZERO)
            assert (await consumer.getone()).offset == 0
            while consumer._runtime.collector.opening._is_under_way or not opened:
                await consumer._runtime.fetcher.arrived.wait()
            values: list[Any] = []
            while len(values) < 10:
                values += pa.record_batch(await consumer.getmany_columns()).column("value").to_pylist()
            assert values == [b"0"] * 9 + [b"1"]
            assert len(opened) == 1


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@CALLS
async def test_other_partitions_are_read_where_no_thread_can_be_had(call: Call) -> None:
    """Each call returns their records, or says why the large batch is not there."""
    async with Cluster(topics={"t": 2}) as cluster, asyncio.timeout(20):
        cluster.append("t", b"0", b"1")
        cluster.append("t", LARGE, partition=1)
        async with reading(cluster, ZERO, ONE) as consumer:
            await all_buffered(consumer, ZERO, ONE)
            found, refused = 0, 0
            with patch.object(threading.Thread, "start", no_thread):
                while found < 2 or not refused:
                    try:
                        found += await call(consumer)
                    except UsageError as error:
                        refused += "no thread opens the batch at offset 0" in str(error)
                cluster.append("t", b"2")
                while found < 3:
                    with suppress(UsageError):
                        found += await call(consumer)
            while found < 4:
                with suppress(UsageError):
                    found += await call(consumer)


async def test_that_no_thread_can_be_had_is_told_though_other_partitions_always_have_records() -> None:
    async with Cluster(topics={"t": 2}) as cluster, asyncio.timeout(20):
        cluster.append("t", *[b"x"] * 50)
        cluster.append("t", LARGE, partition=1)
        async with reading(cluster, ZERO, ONE, max_poll_records=1) as consumer:
            await all_buffered(consumer, ZERO, ONE)

            async def read_on() -> None:
                for _ in range(40):
                    assert await consumer.getmany()

            with patch.object(threading.Thread, "start", no_thread), pytest.raises(UsageError, match="no thread opens"):
                await read_on()


@pytest.mark.parametrize("call", [records, rows])
@pytest.mark.parametrize("value", [b"small", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("pauses", [False, True])
async def test_that_no_thread_can_be_had_is_told_by_a_call_for_that_partition_alone(
    call: CallOf, value: bytes | NewRecord, pauses: bool
) -> None:
    async with Cluster(topics={"t": 2}) as cluster, asyncio.timeout(20):
        cluster.append("t", LARGE)
        cluster.append("t", b"first", partition=1)
        async with reading(cluster, ZERO, ONE) as consumer:
            await all_buffered(consumer, ZERO, ONE)
            with patch.object(threading.Thread, "start", no_thread):
                assert await call(consumer) == 1
            cluster.append("t", value, partition=1)
            if pauses:
                consumer.pause(ZERO)
                assert await call(consumer) == 1
                consumer.resume(ZERO)
            else:
                assert await call(consumer, ONE) == 1
            with pytest.raises(UsageError, match="t-0: no thread opens the batch at offset 0"):
                await call(consumer)
            assert await call(consumer) == 1
            assert await consumer.position(ZERO) == 1


@pytest.mark.parametrize("pauses", [False, True])
async def test_that_no_thread_can_be_had_is_told_of_each_partition(pauses: bool) -> None:
    """1. There is none for A's batch, and the call returns records of C. 2. The next call does not ask for A, or A is
    paused, and it returns records of D. 3. There is none for B's batch, either. Calls for A still have to be told.
    """
    a, b, c, d = (TopicPartition("t", number) for number in range(4))
    async with Cluster(topics={"t": 4}) as cluster, asyncio.timeout(20):
        for tp in (a, b):
            cluster.append("t", LARGE, partition=tp.partition)
        for tp in (c, d):
            cluster.append("t", *[b"x"] * 50, partition=tp.partition)
        async with reading(cluster, a, b, c, d, max_poll_records=1) as consumer:
            await all_buffered(consumer, a, b, c, d)
            told: set[str] = set()
            with patch.object(threading.Thread, "start", no_thread):
                for number in range(20):
                    asks_for = [a, c] if number % 2 else [b, d]
                    if pauses:
                        consumer.resume(a, b)
                        consumer.pause(b if number % 2 else a)
                        asks_for = [a, b, c, d]
                    try:
                        assert await records(consumer, *asks_for) == 1
                    except UsageError as error:
                        told.add(str(error).split(":")[0])
            assert told == {"t-0", "t-1"}


async def test_what_failed_of_a_paused_partition_is_raised_once_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile a call without records waits, and looks at nothing again and again."""
    async with Cluster(topics={"t": 2}) as cluster, asyncio.timeout(20):
        cluster.append("t", LARGE)
        cluster.append("t", b"first", partition=1)
        async with reading(cluster, ZERO, ONE) as consumer:
            await all_buffered(consumer, ZERO, ONE)
            with patch.object(threading.Thread, "start", no_thread):
                assert await records(consumer) == 1
            consumer.pause(ZERO)
            looks = 0
            take = consumer._runtime.collector.take

            def counted(*arguments: Any) -> Any:
                nonlocal looks
                looks += 1
                return take(*arguments)

            monkeypatch.setattr(consumer._runtime.collector, "take", counted)
            assert not await consumer.getmany(timeout_ms=100)
            waiting = asyncio.create_task(consumer.getmany())
            await ticks(5)
            assert looks <= 10
            consumer.resume(ZERO)
            with pytest.raises(UsageError, match="t-0: no thread opens the batch at offset 0"):
                await waiting
            assert await records(consumer) == 1


async def test_what_failed_of_a_partition_that_was_sought_is_not_raised() -> None:
    async with Cluster(topics={"t": 2}) as cluster, asyncio.timeout(20):
        cluster.append("t", LARGE, b"last")
        cluster.append("t", b"first", partition=1)
        async with reading(cluster, ZERO, ONE) as consumer:
            await all_buffered(consumer, ZERO, ONE)
            with patch.object(threading.Thread, "start", no_thread):
                assert await records(consumer) == 1
            consumer.seek(ZERO, 1)
            assert await records(consumer) == 1
            assert not consumer._runtime.collector.opening._failed


async def test_rows_that_come_before_the_error_have_their_ends() -> None:
    """Whoever goes on there would get them twice."""
    async with Cluster(topics={"t": 2}) as cluster, Client(bootstrap_servers=cluster.bootstrap) as client:
        cluster.append("t", b"0", b"1")
        cluster.append("t", LARGE, partition=1)
        ends: dict[TopicPartition, int] = {}

        async def read() -> None:
            async for batch in client.read_columns({ZERO: (0, 2), ONE: (0, 1)}, timeout_ms=20_000):
                assert len(batch) == 2
                ends.update((tp, end.offset) for tp, end in batch.next_offsets.items())

        with patch.object(threading.Thread, "start", no_thread), pytest.raises(UsageError, match="no thread opens"):
            await read()
        assert ends == {ZERO: 2}


async def test_a_call_that_goes_on_once_the_consumer_is_closed_starts_no_thread() -> None:
    async with Cluster(topics={"t": 1}) as cluster, asyncio.timeout(20):
        cluster.append("t", LARGE)
        async with reading(cluster, ZERO) as consumer:
            await all_buffered(consumer, ZERO)
            fetcher = consumer._runtime.fetcher
            fetcher.close()
            buffer = fetcher._buffer.of(ZERO)
            assert buffer is not None
            fetcher.collector.opening.begin(buffer)
            assert "aiokc large batches" not in [thread.name for thread in threading.enumerate()]
