"""getmany_columns: it promises for columns what getmany promises for records, and the two can be mixed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from aiokc import NO_TIMESTAMP, Consumer, RecordColumns, TopicPartition
from aiokc.client.aio import time_slice
from aiokc.client.consumer import consumer as consumer_module
from aiokc.client.fetch import collector, column_collector
from aiokc.errors import ConcurrentCall, ConfigError, CorruptRecord, RecordError, UsageError
from aiokc.records import COLUMNS, Codec, NewRecord, encode_batch, new_builder
from aiokc.testing import Cluster
from aiokc.types import RawRecord
from tests.records.old_formats.message_sets import Message, message_set

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def reading(cluster: Cluster, *partitions: TopicPartition, **options: Any) -> Consumer[bytes, bytes]:
    consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
    consumer.assign(partitions)
    return consumer


def offsets_of(batch: RecordColumns) -> dict[int, list[int]]:
    """Return the offsets of each partition's rows, in their order."""
    table = pa.record_batch(batch)
    table.validate(full=True)
    found: dict[int, list[int]] = {}
    for partition, offset in zip(
        table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True
    ):
        found.setdefault(partition, []).append(offset)
    return found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make decoding give way to other tasks after every few rows."""
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(column_collector, "_SLICE_ROWS", 3)
    monkeypatch.setattr(collector, "_SLICE_RECORDS", 3)


async def all_buffered(consumer: Consumer[bytes, bytes], *partitions: TopicPartition) -> None:
    """Wait until everything that is in the logs has been fetched."""
    ends = await consumer.end_offsets(partitions)
    fetcher, subscription = consumer._runtime.fetcher, consumer._runtime.subscription
    async with asyncio.timeout(20):
        for tp in partitions:
            while fetcher._buffer.frontier(tp, subscription[tp])[0] < ends[tp]:
                await fetcher.arrived.wait()


async def test_all_that_is_buffered_comes_at_once() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        for codec in Codec:
            for partition in (0, 1):
                cluster.append("t", *(NewRecord(b"v", b"k") for _ in range(700)), partition=partition, codec=codec)
        async with reading(cluster, ZERO, ONE) as consumer, asyncio.timeout(20):
            await all_buffered(consumer, ZERO, ONE)
            batch = await consumer.getmany_columns()
            assert offsets_of(batch) == {0: list(range(3500)), 1: list(range(3500))}
            assert pa.record_batch(batch).schema.names == list(COLUMNS)
            assert {tp: end.offset for tp, end in batch.next_offsets.items()} == {ZERO: 3500, ONE: 3500}
            assert [await consumer.position(tp) for tp in (ZERO, ONE)] == [3500, 3500]
            assert consumer.metrics().records == 7000


async def test_how_much_at_most() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", *[bytes(100)] * 50)
        async with reading(cluster, ZERO) as consumer, asyncio.timeout(20):
            first = await consumer.getmany_columns(max_records=7)
            assert (len(first), await consumer.position(ZERO)) == (7, 7)
            second = await consumer.getmany_columns(max_bytes=1000, columns=["value"])
            assert (len(second), await consumer.position(ZERO)) == (10, 17)  # 104 bytes each
            third = await consumer.getmany_columns(max_bytes=1, columns=["value", "timestamp"], timestamp_unit="us")
            assert (len(third), await consumer.position(ZERO)) == (1, 18)
            assert pa.record_batch(third).schema.field("timestamp").type == pa.timestamp("us", "UTC")


async def test_nothing_in_time_is_an_empty_batch() -> None:
    async with Cluster(topics={"t": 1}) as cluster, reading(cluster, ZERO) as consumer, asyncio.timeout(20):
        for timeout_ms in (0, 20):
            batch = await consumer.getmany_columns(timeout_ms=timeout_ms, columns=["offset", "headers"])
            assert not batch
            assert pa.record_batch(batch).schema.names == ["offset", "headers"]
            assert batch.next_offsets == {}


async def test_records_that_wait_for_getmany_come_as_columns() -> None:
    """And the other way round. Nothing is lost or repeated either way, whatever was decoded ahead."""
    async with Cluster(topics={"t": 2}) as cluster:
        chance = Random(5)
        for _ in range(12):
            for partition in (0, 1):
                cluster.append("t", *[b"v"] * chance.randint(1, 40), partition=partition)
        async with reading(cluster, ZERO, ONE) as consumer, asyncio.timeout(20):
            ends = await consumer.end_offsets([ZERO, ONE])
            got: dict[int, list[int]] = {0: [], 1: []}
            while sum(map(len, got.values())) < sum(ends.values()):
                match chance.randrange(3):
                    case 0:
                        record = await consumer.getone()
                        got[record.partition].append(record.offset)
                    case 1:
                        for tp, records in (await consumer.getmany(max_records=chance.randint(1, 9))).items():
                            got[tp.partition] += [record.offset for record in records]
                    case _:
                        batch = await consumer.getmany_columns(max_records=chance.randint(1, 30))
                        for number, offsets in offsets_of(batch).items():
                            got[number] += offsets
            assert got == {tp.partition: list(range(end)) for tp, end in ends.items()}


@pytest.mark.usefixtures("impatient")
async def test_a_cancelled_call_loses_nothing() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        for partition in (0, 1):
            for _ in range(8):
                cluster.append("t", *[b"v"] * 20, partition=partition)
            cluster.append("t", *[bytes(1000)] * 300, partition=partition, codec=Codec.GZIP)  # decoded in a thread
        async with reading(cluster, ZERO, ONE) as consumer, asyncio.timeout(40):
            await all_buffered(consumer, ZERO, ONE)
            got: dict[int, list[int]] = {0: [], 1: []}
            cancelled = 0
            for ticks in range(120):
                call: asyncio.Task[Any]
                if ticks % 3:
                    call = asyncio.ensure_future(consumer.getmany_columns(max_records=25, timeout_ms=0))
                else:
                    call = asyncio.ensure_future(consumer.getmany(max_records=7, timeout_ms=0))
                for _ in range(ticks % 23):
                    await asyncio.sleep(0)
                before = [await consumer.position(tp) for tp in (ZERO, ONE)]
                if not call.done():
                    call.cancel()
                    await asyncio.wait([call])
                    if call.cancelled():
                        cancelled += 1
                        assert before == [await consumer.position(tp) for tp in (ZERO, ONE)]
                        continue
                batch = call.result()
                if isinstance(batch, RecordColumns):
                    for number, offsets in offsets_of(batch).items():
                        got[number] += offsets
                else:
                    for tp, records in batch.items():
                        got[tp.partition] += [record.offset for record in records]
            assert cancelled > 20
            while len(got[0]) + len(got[1]) < 920:
                for number, offsets in offsets_of(await consumer.getmany_columns()).items():
                    got[number] += offsets
            assert got == {0: list(range(460)), 1: list(range(460))}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("change", ["seek", "pause", "assign"])
async def test_what_is_taken_away_while_columns_are_built_is_not_in_them(change: str) -> None:
    """Another task seeks, pauses or gives up a partition of which the builder has rows already."""
    async with Cluster(topics={"t": 2}) as cluster:
        for partition in (0, 1):
            cluster.append("t", *[b"v"] * 50, partition=partition)
        async with reading(cluster, ZERO, ONE) as consumer, asyncio.timeout(20):
            await all_buffered(consumer, ZERO, ONE)
            call = asyncio.ensure_future(consumer.getmany_columns())
            for _ in range(12):  # in some of its time slices
                await asyncio.sleep(0)
            assert not call.done()
            match change:
                case "seek":
                    consumer.seek(ZERO, 40)
                case "pause":
                    consumer.pause(ZERO)
                case _:
                    consumer.assign([ONE])
            batch = await call
            assert offsets_of(batch)[1] == list(range(50))
            if change == "seek":
                at_once = offsets_of(batch).get(0)
                assert (at_once or offsets_of(await consumer.getmany_columns())[0]) == list(range(40, 50))
            else:
                assert 0 not in offsets_of(batch)
                assert batch.next_offsets.keys() == {ONE}
            if change == "pause":
                consumer.resume(ZERO)
                assert offsets_of(await consumer.getmany_columns()) == {0: list(range(50))}


async def test_an_error_keeps_its_place() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0", b"1")
        good = encode_batch([NewRecord(b"2"), NewRecord(b"3")], base_offset=2)
        log = cluster._partition("t", 0)
        log.log.append(good[:-1] + b"\x7f", log.leader_epoch)
        cluster.append("t", b"x", partition=1)
        async with reading(cluster, ZERO, ONE, check_crcs=False, retry_backoff_ms=10) as consumer, asyncio.timeout(20):
            await all_buffered(consumer, ZERO, ONE)
            assert offsets_of(await consumer.getmany_columns()) == {0: [0, 1, 2], 1: [0]}
            for _ in range(2):  # until the application seeks
                with pytest.raises(CorruptRecord, match=r"t-0 at offset 3, from broker 1: .*seek\(\) to 4"):
                    await consumer.getmany_columns()
            assert await consumer.position(ZERO) == 3
            cluster.append("t", b"4")
            consumer.seek(ZERO, 4)
            assert offsets_of(await consumer.getmany_columns()) == {0: [4]}


async def test_a_timestamp_beyond_microseconds() -> None:
    """Such a timestamp stops columns in microseconds, at its place, and nothing else."""
    async with Cluster(topics={"t": 1}) as cluster:
        records = NewRecord(b"0", timestamp=7), NewRecord(b"1", timestamp=1 << 62), NewRecord(b"2")
        cluster.append("t", *records, timestamp=NO_TIMESTAMP)
        async with reading(cluster, ZERO, retry_backoff_ms=10) as consumer, asyncio.timeout(20):
            batch = await consumer.getmany_columns(columns=["timestamp"], timestamp_unit="us")
            assert pa.record_batch(batch).column("timestamp").cast(pa.int64()).to_pylist() == [7000]
            with pytest.raises(
                RecordError, match=r"t-0 at offset 1, from broker 1: .*timestamp_unit='ms', or seek\(\) to 2"
            ):
                await consumer.getmany_columns(columns=["timestamp"], timestamp_unit="us")
            batch = await consumer.getmany_columns(columns=["timestamp"])
            assert pa.record_batch(batch).column("timestamp").cast(pa.int64()).to_pylist() == [1 << 62, -1]


@pytest.mark.parametrize("before", [0, 1])
async def test_an_error_of_columns_alone_is_gone_once_their_rows_are_put_back(before: int) -> None:
    """Given rows up to a timestamp that columns can't tell, when they are put back, then getmany() reads past it."""
    async with Cluster(topics={"t": 1}) as cluster:
        records = [NewRecord(b"0", timestamp=7), NewRecord(b"1", timestamp=1 << 62), NewRecord(b"2")][1 - before :]
        cluster.append("t", *records)
        async with reading(cluster, ZERO) as consumer, asyncio.timeout(20):
            await all_buffered(consumer, ZERO)
            fetched = consumer._runtime.collector
            columns, builder = column_collector.ColumnCollector(fetched), new_builder(["timestamp"], "us")
            assert columns.append_at_once(builder, 100, 1 << 20, inf)
            buffer = fetched.buffer.of(ZERO)
            assert builder.rows == before
            assert buffer is not None
            assert isinstance(buffer.error, RecordError)
            columns.put_back()
            read: list[bytes | None] = []
            while len(read) < len(records):
                read += [record.value for record in (await consumer.getmany()).get(ZERO, ())]
            assert read == [record.value for record in records]
            assert not await consumer.getmany(timeout_ms=0)


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("before", [0, 1])
async def test_an_error_of_columns_alone_that_had_to_wait_is_not_raised_for_records(before: int, between: bool) -> None:
    """The columns of another partition came first. Between them and all records, a call asks for none of this one."""
    async with Cluster(topics={"t": 2}) as cluster:
        records = [NewRecord(b"0", timestamp=7), NewRecord(b"1", timestamp=1 << 62), NewRecord(b"2")][1 - before :]
        cluster.append("t", *records)
        cluster.append("t", b"b", partition=1)
        async with reading(cluster, ZERO, ONE, retry_backoff_ms=10) as consumer, asyncio.timeout(20):
            await all_buffered(consumer, ZERO, ONE)
            batch = await consumer.getmany_columns(columns=["timestamp"], timestamp_unit="us")
            assert len(batch) == before + 1
            if between:
                assert not await consumer.getmany(ONE, timeout_ms=0)
            read: list[bytes | None] = []
            while len(read) < len(records) - before:
                read += [record.value for record in (await consumer.getmany()).get(ZERO, ())]
            assert read == [record.value for record in records[before:]]


async def test_an_error_of_columns_that_had_to_wait_is_raised_for_columns() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", NewRecord(b"0", timestamp=1 << 62))
        cluster.append("t", b"b", partition=1)
        async with reading(cluster, ZERO, ONE, retry_backoff_ms=10) as consumer, asyncio.timeout(20):
            await all_buffered(consumer, ZERO, ONE)
            assert len(await consumer.getmany_columns(columns=["timestamp"], timestamp_unit="us")) == 1
            cluster.append("t", b"b", partition=1)
            await all_buffered(consumer, ONE)
            with pytest.raises(RecordError, match="t-0 at offset 0"):
                await consumer.getmany_columns(columns=["timestamp"], timestamp_unit="us")


async def test_a_corrupt_record_that_columns_met_first_is_raised_for_records_too() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        log = cluster._partition("t", 0)
        good = encode_batch([NewRecord(b"0"), NewRecord(b"1")])
        log.log.append(good[:-1] + b"\x7f", log.leader_epoch)
        cluster.append("t", b"x", partition=1)
        async with reading(cluster, ZERO, ONE, check_crcs=False, retry_backoff_ms=10) as consumer, asyncio.timeout(20):
            await all_buffered(consumer, ZERO, ONE)
            assert offsets_of(await consumer.getmany_columns()) == {0: [0], 1: [0]}
            with pytest.raises(CorruptRecord, match="t-0 at offset 1"):
                await consumer.getmany()


class ShortOfMemory:
    """A builder that takes records that are objects, as all do, and may have no memory for them at one attempt."""

    def __init__(self, attempts: Iterator[int], fails_at: int, *options: Any) -> None:
        self._builder: Any = new_builder(*options)
        self._attempts, self._fails_at = attempts, fails_at
        self.finish = self._builder.finish

    @property
    def rows(self) -> int:
        return int(self._builder.rows)

    @property
    def size(self) -> int:
        return int(self._builder.size)

    @property
    def is_full(self) -> bool:
        return bool(self._builder.is_full)

    def append_records(self, records: list[RawRecord], until: int, size: int) -> int:
        if next(self._attempts) == self._fails_at:
            raise MemoryError
        return int(self._builder.append_records(records, until, size))


@pytest.mark.parametrize("most", [2, 100])
@pytest.mark.parametrize("fails_at", [1, 2, 3, 4])
async def test_no_row_is_lost_or_comes_twice_where_there_is_no_memory_for_some(
    fails_at: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader in Python is behind the records by then: a long record, and messages of the format before."""
    attempts = count(1)
    monkeypatch.setattr(consumer_module, "new_builder", partial(ShortOfMemory, attempts, fails_at))
    async with Cluster(topics={"t": 1}) as cluster, reading(cluster, ZERO) as consumer, asyncio.timeout(20):
        cluster.append("t", NewRecord(bytes(2 << 20)), codec=Codec.GZIP)
        cluster.append("t", *(b"%d" % at for at in range(1, 7)))
        stored = cluster._partition("t", 0).log._batches
        stored[-1] = stored[-1]._replace(
            data=message_set([Message(b"x", offset=at) for at in range(1, 7)], 1, Codec.GZIP)
        )
        offsets: list[int] = []
        raised = 0
        while await consumer.position(ZERO) < 7:
            try:
                offsets += offsets_of(await consumer.getmany_columns(max_records=most)).get(0, [])
            except MemoryError:
                raised += 1
        assert offsets == list(range(7))
        assert raised == 1
        assert not await consumer.getmany_columns(timeout_ms=0)


async def test_places_that_could_not_be_read_are_forgotten_with_their_partitions() -> None:
    async with (
        Cluster(topics={"t": 5}) as cluster,
        reading(cluster, check_crcs=False, retry_backoff_ms=10) as consumer,
        asyncio.timeout(20),
    ):
        collector = consumer._runtime.collector
        for number in range(1, 5):
            log = cluster._partition("t", number)
            log.log.append(encode_batch([NewRecord(b"0"), NewRecord(b"1")])[:-1] + b"\x7f", log.leader_epoch)
            cluster.append("t", b"x")
            partitions = ZERO, TopicPartition("t", number)
            consumer.assign(partitions)
            await all_buffered(consumer, *partitions)
            assert set(offsets_of(await consumer.getmany_columns())) == {0, number}
            with pytest.raises(CorruptRecord, match=f"t-{number} at offset 1"):
                await consumer.getmany()
            assert list(collector._read_again) == list(collector._unreadable) == [partitions[1]]


@pytest.mark.parametrize("is_corrupt", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_calls_for_columns_and_for_records_in_turn_tell_of_an_error(first: int, is_corrupt: bool) -> None:
    """The other partition always has records: no call waits until the records behind the error are fetched again."""

    async def story(cluster: Cluster) -> None:
        log = cluster._partition("t", 0)
        raised = 0
        async with reading(cluster, ZERO, ONE, check_crcs=False) as consumer:
            for number in range(60):
                cluster.append("t", b"b", partition=1)
                if number == 8 and is_corrupt:
                    log.log.append(encode_batch([NewRecord(b"0"), NewRecord(b"1")])[:-1] + b"\x7f", log.leader_epoch)
                elif number == 8:
                    cluster.append("t", NewRecord(b"0", timestamp=7), NewRecord(b"1", timestamp=1 << 62))
                try:
                    if number % 2 == first:
                        await consumer.getmany_columns(columns=["timestamp"], timestamp_unit="us")
                    else:
                        await consumer.getmany()
                except RecordError:
                    raised += 1
                await asyncio.sleep(0.5)
            if is_corrupt:
                assert raised > 10, "each time that it was fetched again"
            assert await consumer.position(ZERO) == (1 if is_corrupt else 2)
            assert await consumer.position(ONE) > 55 - raised

    virtually(story, brokers=1)


async def test_commit_takes_a_batch() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        cluster.append("t", b"0", partition=1)
        consumer = Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer, asyncio.timeout(30):
            first = await consumer.getmany_columns(max_records=2)
            second = await consumer.getmany_columns()
            while len(first) + len(second) < 4:
                second = await consumer.getmany_columns()
            await consumer.commit(first)
            committed = await consumer.committed(ZERO, ONE)
            stored = {tp: end for tp, end in committed.items() if end is not None}
            assert stored == first.next_offsets
            await consumer.commit()
            committed = await consumer.committed(ZERO, ONE)
            assert {tp: end and end.offset for tp, end in committed.items()} == {ZERO: 3, ONE: 1}


async def test_auto_commit_stores_what_earlier_calls_returned() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        options: dict[str, Any] = {"group_id": "g", "auto_commit_interval_ms": 10}
        async with reading(cluster, ZERO, **options) as consumer, asyncio.timeout(20):
            await consumer.getmany_columns(max_records=2)
            await consumer.getmany_columns(max_records=1)
            stored = -1
            while stored < 2:  # asked for again until auto-commit has stored it
                committed = (await consumer.committed(ZERO))[ZERO]
                stored = -1 if committed is None else committed.offset
            assert stored == 2


async def test_one_user_at_a_time() -> None:
    async with Cluster(topics={"t": 1}) as cluster, reading(cluster, ZERO) as consumer, asyncio.timeout(20):
        waiting = asyncio.ensure_future(consumer.getmany_columns())
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentCall):
            await consumer.getmany_columns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


def wrong() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"columns": ["body"]}, "'body' is no column; there are topic, partition, offset"
    yield {"columns": "value"}, "columns must be a sequence of names, not 'value'"
    yield {"columns": 5}, "columns must be a sequence of names, not 5"
    yield {"columns": ()}, "at least one column"
    yield {"max_records": 0}, "max_records=0 must be a whole number of at least 1"
    yield {"max_bytes": 0}, "max_bytes=0 must be a whole number between 1 and 1073741824"
    yield {"max_bytes": (1 << 30) + 1}, "must be a whole number between 1 and 1073741824"
    yield {"timestamp_unit": "ns"}, "timestamp_unit='ns' must be 'ms' or 'us'"


async def test_wrong_arguments() -> None:
    async with Cluster(topics={"t": 2}) as cluster, reading(cluster, ZERO) as consumer:
        for options, problem in wrong():
            with pytest.raises(ConfigError, match=problem):
                await consumer.getmany_columns(**options)
        with pytest.raises(UsageError, match="t-1 is not assigned"):
            await consumer.getmany_columns(ONE)


async def test_what_a_batch_says_of_itself() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1")
        async with reading(cluster, ZERO) as consumer, asyncio.timeout(20):
            batch = await consumer.getmany_columns(columns=["offset"])
            assert repr(batch) == "<RecordColumns: 2 rows, 16 bytes; t-0 up to 2>"
            assert pa.table(batch).num_rows == 2
            assert pa.schema(batch).names == ["offset"]
