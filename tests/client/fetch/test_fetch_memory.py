"""fetch_buffer_bytes bounds frames in flight, buffered and decompressed bytes together, with a slow application."""

from __future__ import annotations

import asyncio
import gc
import sysconfig
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from aiokc import Client, Consumer, RawRecord, TopicPartition
from aiokc.client.fetch.fetcher import Fetcher
from aiokc.core.fetch.partition.batch_queue import BatchQueue
from aiokc.core.fetch.session import FetchTarget
from aiokc.core.subscription.position import PartitionPosition
from aiokc.native import NATIVE
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from aiokc.types import PartitionInfo
from aiokc.wire.messages.fetch import FetchRequest

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

KIB = 1 << 10


@pytest.mark.parametrize("codec", [0, 3], ids=["none", "lz4"])
@pytest.mark.parametrize("brokers", [1, 3])
async def test_a_slow_user_does_not_make_it_grow(brokers: int, codec: int) -> None:
    """40 partitions of 60 kB, of which the application takes 2 records at a time, and reads all of them to the end."""
    async with Cluster(brokers=brokers, topics={"t": 40}) as cluster:
        for partition in range(40):
            for number in range(6):
                value = (b"%d-%d " % (partition, number)).ljust(10 * KIB, b".")
                cluster.append("t", NewRecord(value), partition=partition, codec=codec)
        budget, one_batch = 200 * KIB, 11 * KIB
        options: dict[str, Any] = {"fetch_buffer_bytes": budget, "max_partition_fetch_bytes": one_batch}
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50, **options
        )
        consumer.assign(TopicPartition("t", number) for number in range(40))
        most = 0
        async with consumer:
            fetcher = consumer._runtime.fetcher
            got: set[bytes] = set()
            async with asyncio.timeout(50):
                while len(got) < 240:
                    for records in (await consumer.getmany(max_records=2)).values():
                        got |= {(record.value or b"").rstrip(b".") for record in records}
                    await asyncio.sleep(0.001)
                    most = max(most, fetcher._buffer.bytes)
        assert most <= budget + brokers * one_batch + 2 * one_batch, "and what is open of the batch in hand"


def really_kept(fetcher: Fetcher) -> int:
    """Return how many bytes the buffers have that can be reached from the partitions, or wait for the next frames.

    This does not ask the client's own count, on which its limit depends.
    """
    memory, found = fetcher._buffer._memory, list[Any]()
    for partition in fetcher._buffer._partitions.values():
        queue = partition._kept
        found += [held.view.obj for held in (*queue.unread, *queue._passed)]
    found += [*memory.buffers._spare, *memory.unpacking._spare]
    return sum(memoryview(one).nbytes for one in {id(one): one for one in found}.values())


@pytest.mark.parametrize("codec", [0, 3], ids=["none", "lz4"])
async def test_the_limit_holds_for_what_is_really_kept(codec: int) -> None:
    async with Cluster(topics={"t": 8}) as cluster:
        for partition in range(8):
            for _ in range(20):
                cluster.append("t", NewRecord(bytes(4 * KIB)), partition=partition, codec=codec)
        budget, one_batch = 100 * KIB, 5 * KIB
        options: dict[str, Any] = {"fetch_buffer_bytes": budget, "max_partition_fetch_bytes": 4 * one_batch}
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
        consumer.assign(TopicPartition("t", number) for number in range(8))
        kept, counted, got = list[int](), list[int](), 0
        async with consumer, asyncio.timeout(50):
            fetcher = consumer._runtime.fetcher
            while got < 160:
                got += sum(map(len, (await consumer.getmany(max_records=3)).values()))
                await asyncio.sleep(0.001)
                kept.append(really_kept(fetcher))
                counted.append(fetcher._buffer.bytes)
        assert all(there <= count for there, count in zip(kept, counted, strict=True)), "something is not counted"
        assert budget * 3 // 4 < max(kept) <= max(counted) <= budget + 2 * one_batch


async def test_a_batch_that_is_held_takes_no_room_from_others() -> None:
    """The application holds all that it was given: sequences, and iterators that it has begun."""
    async with Cluster(topics={"t": 4}) as cluster:
        for partition in range(4):
            for number in range(100):
                cluster.append("t", NewRecord(b"%4d" % number * KIB), partition=partition)
        options: dict[str, Any] = {"fetch_buffer_bytes": 100 * KIB, "max_partition_fetch_bytes": 20 * KIB}
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
        consumer.assign(TopicPartition("t", number) for number in range(4))
        held: list[tuple[TopicPartition, Sequence[RawRecord], Iterator[RawRecord]]] = []
        most = 0
        async with consumer, asyncio.timeout(50):
            while sum(len(records) for _, records, _ in held) < 400:
                batch = await consumer.getmany(max_records=7)
                held += [(tp, records, iter(records)) for tp, records in batch.items()]
                assert all(next(half).offset == records[0].offset for _, records, half in held[-len(batch) :])
                most = max(most, consumer._runtime.fetcher._buffer.bytes)
        assert most <= 100 * KIB + 20 * KIB
        assert consumer._runtime.fetcher._buffer.bytes <= 100 * KIB // 4, "spare buffers only"
        for number in range(4):
            mine = [(records, half) for tp, records, half in held if tp.partition == number]
            assert [one.offset for records, _ in mine for one in records] == list(range(100))
            assert all([*records[:1], *half] == records for records, half in mine)
            assert all(one.value == b"%4d" % one.offset * KIB for records, _ in mine for one in records)


@pytest.mark.parametrize("call", ["getmany", "getone", "columns"])
async def test_no_more_batches_are_open_than_there_is_room_for(call: str) -> None:
    """40 partitions whose batches grow 50 times. To take a little of each would need one decompressed batch of each."""
    async with Cluster(topics={"t": 40}) as cluster:
        for partition in range(40):
            for _ in range(3):
                cluster.append("t", *[NewRecord(bytes(KIB))] * 20, partition=partition, codec=3)
        budget, open_batch = 200 * KIB, 21 * KIB
        options: dict[str, Any] = {"fetch_buffer_bytes": budget, "max_partition_fetch_bytes": KIB}
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50, **options
        )
        consumer.assign(TopicPartition("t", number) for number in range(40))
        got: dict[TopicPartition, list[int]] = {}
        most = 0
        async with consumer, asyncio.timeout(50):
            while sum(map(len, got.values())) < 40 * 60:
                if call == "columns":
                    table = pa.record_batch(await consumer.getmany_columns(max_records=2))
                    columns = (table.column(name).to_pylist() for name in ("partition", "offset"))
                    found = list(zip(*columns, strict=True))
                elif call == "getone":
                    await asyncio.sleep(0)  # between any two calls other tasks run, as with a handler that waits
                    record = await consumer.getone()
                    found = [(record.partition, record.offset)]
                else:
                    batch = await consumer.getmany(max_records=2)
                    found = [(each.partition, each.offset) for part in batch.values() for each in part]
                for partition, offset in found:
                    got.setdefault(TopicPartition("t", partition), []).append(offset)
                most = max(most, consumer._runtime.fetcher._buffer.bytes)
        assert all(offsets == list(range(60)) for offsets in got.values())
        assert most <= budget + 2 * open_batch


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the fetch buffer held each time that batches were about to be freed, since all of them was decoded."""
    sizes: list[int] = []
    forget_passed = BatchQueue.forget_passed

    def forget_passed_later(queue: BatchQueue) -> None:
        sizes.append(queue._memory.bytes + queue._memory.spare_bytes)
        forget_passed(queue)

    monkeypatch.setattr(BatchQueue, "forget_passed", forget_passed_later)
    return sizes


async def all_read(
    cluster: Cluster, call: str, partitions: Sequence[TopicPartition], until: int, budget: int
) -> AsyncIterator[list[tuple[int, int]]]:
    """Yield partition and offset of what each call returns, until all partitions are read up to ``until``."""
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap, "fetch_buffer_bytes": budget}
    names, ranges = ("partition", "offset"), dict.fromkeys(partitions, (0, until))
    if call == "read":
        async with Client(**options) as client:
            async for part in client.read(ranges):
                yield [(part.partition.partition, record.offset) for record in part.records]
        return
    if call == "read_columns":
        async with Client(**options) as client:
            async for rows in client.read_columns(ranges, columns=names):
                yield [(row["partition"], row["offset"]) for row in pa.record_batch(rows).to_pylist()]
        return
    if call == "getmany with a deserializer":
        options["value_deserializer"] = len
    left = until * len(partitions)
    async with Consumer(auto_offset_reset="earliest", **options) as consumer:
        consumer.assign(partitions)
        while left:
            if call == "getmany_columns":
                rows = await consumer.getmany_columns(columns=names)
                found = [(row["partition"], row["offset"]) for row in pa.record_batch(rows).to_pylist()]
            else:
                only = partitions if call == "getmany of partitions" else ()
                batch = await consumer.getmany(*only, max_records=2000)
                found = [(record.partition, record.offset) for part in batch.values() for record in part]
            left -= len(found)
            yield found


@pytest.mark.parametrize(
    "call",
    [
        "getmany",
        "getmany of partitions",
        "getmany with a deserializer",
        "getmany_columns",
        "read",
        "read_columns",
    ],
)
@pytest.mark.parametrize(
    ("partitions", "batches", "records", "value", "budget"),
    [(40, 3, 20, KIB, 200 * KIB), (1, 100, 1, 300 * KIB, 1024 * KIB)],
    ids=["partitions", "batches"],
)
async def test_a_call_that_wants_much_decompresses_no_more_than_there_is_room_for(
    call: str, partitions: int, batches: int, records: int, value: int, budget: int, held: list[int]
) -> None:
    """The backlog is many times the budget, decompressed. Calls return less than they want, and something each."""
    async with Cluster(topics={"t": partitions}) as cluster:
        for partition in range(partitions):
            for _ in range(batches):
                cluster.append("t", *[NewRecord(bytes(value))] * records, partition=partition, codec=3)
        tps = [TopicPartition("t", number) for number in range(partitions)]
        got: dict[int, list[int]] = {tp.partition: [] for tp in tps}
        async with asyncio.timeout(50):
            async for found in all_read(cluster, call, tps, batches * records, budget):
                assert found
                for partition, offset in found:
                    got[partition].append(offset)
        assert all(offsets == list(range(batches * records)) for offsets in got.values())
        assert max(held) <= budget + 2 * (records * value + KIB)


async def test_a_fetch_asks_for_less_as_the_buffer_fills() -> None:
    """The first Fetch asks for a quarter of the buffer. The broker has more; each next one asks for what is free."""
    async with Cluster(topics={"t": 1}) as cluster:
        for _ in range(60):
            cluster.append("t", NewRecord(bytes(5 * KIB)))
        sizes: list[int] = []
        cluster.intercept(FetchRequest, lambda exchange: sizes.append(exchange.request.max_bytes))
        budget = 200 * KIB
        options: dict[str, Any] = {"fetch_buffer_bytes": budget, "max_partition_fetch_bytes": 300 * KIB}
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
        consumer.assign([TopicPartition("t", 0)])
        async with consumer, asyncio.timeout(20):
            fetcher = consumer._runtime.fetcher
            while fetcher._planner._reading_ahead:
                await fetcher.arrived.wait()
            assert budget * 5 // 8 <= fetcher._buffer.bytes <= budget
            first, *others = sizes
            assert first == budget // 4
            assert others == sorted(others, reverse=True)
            assert others[0] == budget // 4 + budget * 3 // 8
            got = 0
            while got < 60:
                got += sum(map(len, (await consumer.getmany()).values()))


async def test_a_full_buffer_of_paused_partitions_starves_no_other_partition() -> None:
    """Nor does a buffer that is full of partitions that the call does not ask for."""
    async with Cluster(topics={"t": 3}) as cluster:
        for partition in (0, 1):
            for _ in range(10):
                cluster.append("t", NewRecord(bytes(10 * KIB)), partition=partition)
        zero, one, two = (TopicPartition("t", number) for number in range(3))
        options: dict[str, Any] = {"fetch_buffer_bytes": 60 * KIB, "max_partition_fetch_bytes": 11 * KIB}
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50, **options
        )
        consumer.assign([zero, one, two])
        async with consumer, asyncio.timeout(30):
            fetcher = consumer._runtime.fetcher
            while fetcher._planner._reading_ahead:
                await fetcher.arrived.wait()
            for number in range(5):
                cluster.append("t", b"%d" % number, partition=2)
                records = (await consumer.getmany(two))[two]
                assert [record.value for record in records] == [b"%d" % number]
            consumer.pause(zero, one)
            for number in range(5):
                cluster.append("t", b"%d" % number, partition=2)
                assert (await consumer.getone()).value == b"%d" % number
            consumer.resume(zero, one)
            got = 0
            while got < 20:
                got += sum(map(len, (await consumer.getmany(zero, one)).values()))


@pytest.mark.skipif(
    not NATIVE or bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="there the collector looks at everything"
)
def test_the_collector_looks_at_nothing_that_stays_for_each_partition() -> None:
    """A full pass holds the event loop: with ten thousand partitions assigned it must not be tens of milliseconds."""

    async def story(cluster: Cluster) -> None:
        partitions = [TopicPartition("many", partition) for partition in range(300)]
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            cluster.append("many", b"1", partition=299)
            assert (await consumer.getone()).value == b"1"
            await asyncio.sleep(1)
            kinds = PartitionInfo, PartitionPosition, FetchTarget
            found = [object for object in gc.get_objects() if isinstance(object, kinds)]
            assert len(found) < 30, "what was read since is asked for again"

    virtually(story, topics={"many": 300})
