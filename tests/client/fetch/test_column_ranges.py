"""Ranges as columns: the rows are the records that read() returns, in batches of a good size, up to the ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

from aiokc import Client, ErrorCode, RecordColumns, TopicPartition
from aiokc.client.aio import time_slice
from aiokc.client.fetch import column_collector, range_reader
from aiokc.errors import ConfigError, CorruptRecord, OffsetOutOfRange, RequestTimedOut
from aiokc.records import COLUMNS, Codec, ControlType, NewRecord, encode_batch, encode_control_batch
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from tests.more_time import raised_by
from tests.suite.unused_faults import may_be_unused

pytestmark = pytest.mark.timeout(60)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
ALL_COLUMNS = (*COLUMNS, "leader_epoch")


def write(cluster: Cluster, *batches: bytes, partition: int = 0) -> None:
    """Append batches as they are."""
    log = cluster._partition("t", partition)
    for batch in batches:
        log.log.append(batch, log.leader_epoch)


async def as_rows(
    client: Client, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, list[dict[str, Any]]]:
    """The records of the ranges, as columns must have them."""
    rows: dict[TopicPartition, list[dict[str, Any]]] = {tp: [] for tp in ranges}
    async for part in client.read(ranges):
        for record in part.records:
            row = {name: getattr(record, name) for name in ALL_COLUMNS}
            row["headers"] = [{"key": key, "value": value} for key, value in record.headers] or None
            rows[part.partition].append(row)
    return rows


def rows_of(batches: Sequence[RecordColumns]) -> dict[TopicPartition, list[dict[str, Any]]]:
    rows: dict[TopicPartition, list[dict[str, Any]]] = {}
    for batch in batches:
        table = pa.record_batch(batch)
        table.validate(full=True)
        milliseconds = table.column("timestamp").cast(pa.int64()).to_pylist()
        for row, timestamp in zip(table.to_pylist(), milliseconds, strict=True):
            rows.setdefault(TopicPartition(row["topic"], row["partition"]), []).append({**row, "timestamp": timestamp})
    return rows


async def test_what_compaction_has_left_nothing_of_yields_no_records() -> None:
    """One batch holds the record before the range and the one behind it: all that is decoded is the latter."""
    async with Cluster(topics={"t": 1}) as cluster:
        deltas = 0, 1, 2, 7, 9
        write(cluster, encode_batch([NewRecord(b"%d" % delta, offset_delta=delta) for delta in deltas]))
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            parts = [part async for part in client.read({ZERO: (2, 5)})]
            assert [[record.offset for record in part.records] for part in parts] == [[2]]
            assert [part async for part in client.read({ZERO: (3, 5)})] == []


def some_records(number: int) -> list[NewRecord]:
    return [
        NewRecord(
            b"value %d" % i * (i % 7) if i % 11 else None,
            b"key %d" % i if i % 3 else None,
            [("h", b"1"), ("ü", None)][: i % 3],
            1_700_000_000_000 + i,
        )
        for i in range(number)
    ]


async def test_the_rows_are_the_records() -> None:
    async with Cluster(brokers=2, topics={"t": 5}) as cluster:
        for partition in range(5):
            for codec in Codec:
                cluster.append("t", *some_records(40 + partition), partition=partition, codec=codec)
        ranges = {TopicPartition("t", partition): (partition * 7, 195 - partition * 9) for partition in range(5)}
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            expected = await as_rows(client, ranges)
            batches = [batch async for batch in client.read_columns(ranges, columns=ALL_COLUMNS)]
        assert sum(map(len, batches)) == sum(until - start for start, until in ranges.values())
        assert rows_of(batches) == expected
        ends: dict[TopicPartition, int] = {}
        for batch in batches:
            ends |= {tp: end.offset for tp, end in batch.next_offsets.items()}
        assert ends == {tp: until for tp, (_, until) in ranges.items()}


async def test_batches_are_of_the_size_that_was_asked_for() -> None:
    async with Cluster(topics={"t": 3}) as cluster:
        for partition in range(3):
            for _ in range(20):
                cluster.append("t", *[bytes(1000)] * 30, partition=partition)
        ranges = {TopicPartition("t", partition): (0, 600) for partition in range(3)}
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            batches = [
                batch async for batch in client.read_columns(ranges, columns=["offset", "value"], batch_bytes=100_000)
            ]
        sizes = [batch.nbytes for batch in batches]
        assert all(100_000 <= size < 103_000 for size in sizes[:-1])
        assert sizes[-1] < 103_000
        assert sum(map(len, batches)) == 1800


async def test_a_batch_says_where_to_read_on() -> None:
    """After each batch, everything below that offset has been returned for its partitions, and nothing above it."""
    async with Cluster(topics={"t": 2}) as cluster:
        for _ in range(10):
            for partition in (0, 1):
                cluster.append("t", *[bytes(3000)] * 30, partition=partition)
        stands = {ZERO: 5, ONE: 0}
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            ranges = {ZERO: (5, 300), ONE: (0, 250)}
            async for batch in client.read_columns(ranges, columns=["partition", "offset"], batch_bytes=1 << 16):
                for row in pa.record_batch(batch).to_pylist():
                    tp = TopicPartition("t", row["partition"])
                    assert row["offset"] == stands[tp]
                    stands[tp] += 1
                assert batch.next_offsets.items() <= {tp: batch.next_offsets.get(tp) for tp in stands}.items()
                assert {tp: end.offset for tp, end in batch.next_offsets.items()}.items() <= stands.items()
        assert stands == {ZERO: 300, ONE: 250}


async def test_a_leader_that_moves_while_columns_are_built_repeats_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows can't be taken out of columns again: the position moves past a row as soon as it is in a batch."""
    readings: list[Any] = []
    begin, give_way = range_reader._RangeReading.__aenter__, time_slice.let_others_run
    moves = 0

    async def begins(reading: Any) -> Any:
        readings.append(reading)
        return await begin(reading)

    async def leader_moves() -> None:
        nonlocal moves
        collector = readings[0].fetcher.collector
        buffer = collector.buffer.of(ZERO)
        if moves < 5 and buffer is not None and buffer.next > 40 * moves:
            moves += 1
            collector.subscription.await_validation(ZERO)
            collector.buffer.drop(ZERO)
            readings[0].fetcher.wake.notify()
        await give_way()

    monkeypatch.setattr(range_reader._RangeReading, "__aenter__", begins)
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(column_collector, "_SLICE_ROWS", 3)
    monkeypatch.setattr(time_slice, "let_others_run", leader_moves)
    async with Cluster(topics={"t": 2}) as cluster:
        for partition in range(2):
            for codec in Codec:
                cluster.append("t", *some_records(40), partition=partition, codec=codec)
        ends: dict[TopicPartition, int] = {}
        offsets: dict[TopicPartition, list[int]] = {ZERO: [], ONE: []}
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            async for batch in client.read_columns({ZERO: (0, 200), ONE: (0, 200)}):
                ends |= {tp: end.offset for tp, end in batch.next_offsets.items()}
                for tp, rows in rows_of([batch]).items():
                    offsets[tp] += [row["offset"] for row in rows]
                assert {tp: found[-1] + 1 for tp, found in offsets.items() if found} == ends
    assert moves == 5
    assert offsets == {ZERO: list(range(200)), ONE: list(range(200))}


@pytest.mark.parametrize("committed", [True, False])
async def test_ranges_end_by_position(committed: bool) -> None:
    """They end behind markers of transactions, aborted records, and records that compaction removed."""
    async with Cluster(topics={"t": 2}) as cluster:
        for producer, marker in ((7, ControlType.COMMIT), (8, ControlType.ABORT)):
            write(cluster, encode_batch([NewRecord(b"x")] * 2, producer_id=producer, transactional=True))
            write(cluster, encode_control_batch(marker, producer_id=producer, producer_epoch=0))
        write(cluster, encode_batch([NewRecord(b"x", offset_delta=1)], last_offset_delta=9), partition=1)
        aborted = [] if committed else [3, 4]
        client = Client(
            bootstrap_servers=cluster.bootstrap, isolation_level="read_committed" if committed else "read_uncommitted"
        )
        async with client, asyncio.timeout(20):
            for ranges, offsets in (
                ({ZERO: (0, 3), ONE: (0, 10)}, {0: [0, 1], 1: [1]}),
                ({ZERO: (2, 3), ONE: (2, 10)}, {}),
                ({ZERO: (1, 2), ONE: (1, 2)}, {0: [1], 1: [1]}),
                ({ZERO: (1, 1), ONE: (0, 0)}, {}),
                ({ZERO: (0, 6)}, {0: [0, 1, *aborted]}),
                ({ZERO: (1, 4)}, {0: [1, *aborted[:1]]}),
                ({ZERO: (3, 5), ONE: (0, 1)}, {0: aborted}),
                ({ZERO: (4, 6)}, {0: aborted[1:]}),
                ({ZERO: (5, 6)}, {}),
            ):
                batches = [batch async for batch in client.read_columns(ranges)]
                found = {tp.partition: [row["offset"] for row in rows] for tp, rows in rows_of(batches).items()}
                assert found == {partition: rows for partition, rows in offsets.items() if rows}


async def test_offsets_without_a_record_at_the_end_are_told_by_a_batch_without_rows() -> None:
    """Each partition that has moved is told, with the id of its topic: it may be another topic than one expects."""
    async with Cluster(topics={"t": 2}) as cluster:
        write(cluster, encode_batch([NewRecord(b"x")] * 2, producer_id=7, transactional=True))
        write(cluster, encode_control_batch(ControlType.COMMIT, producer_id=7, producer_epoch=0))
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            batches = [batch async for batch in client.read_columns({ZERO: (2, 3), ONE: (0, 0)}, columns=["value"])]
            topic_id = (await client.list_topics(["t"]))["t"].topic_id
        (batch,) = batches
        assert pa.record_batch(batch).to_pydict() == {"value": []}
        assert {tp: (end.offset, end.topic_id) for tp, end in batch.next_offsets.items()} == {ZERO: (3, topic_id)}


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_partition_that_moves_without_a_row_is_told_only_once_it_has_had_rows(has_begun: bool) -> None:
    """Before that nothing of it was handed out: where its next records are gone, it may begin behind them."""
    async with Cluster(topics={"t": 2}) as cluster:
        if has_begun:
            cluster.append("t", bytes(1000))
        write(cluster, encode_control_batch(ControlType.COMMIT, producer_id=7, producer_epoch=0))
        gone = cluster.append("t", bytes(1000))
        cluster.append("t", bytes(1000), partition=1)

        def trim(exchange: Exchange) -> None:
            if any(part.partition == 0 and part.fetch_offset == gone for part in exchange.request.topics[0].partitions):
                cluster.trim("t", to=gone + 1)

        cluster.intercept(ApiKey.FETCH, trim)
        # Each Fetch brings a batch of each partition.
        client = Client(bootstrap_servers=cluster.bootstrap, max_partition_fetch_bytes=1_100)
        async with client, asyncio.timeout(20):
            reading = client.read_columns({ZERO: (0, gone + 1), ONE: (0, 1)})
            batch = await anext(reading)
            with pytest.raises(OffsetOutOfRange):
                await anext(reading)
        told = {ZERO: gone} if has_begun else {}
        assert {tp: end.offset for tp, end in batch.next_offsets.items()} == {ONE: 1, **told}


@pytest.mark.parametrize("columns", [True, False])
async def test_every_range_of_a_log_with_holes_ends(columns: bool) -> None:
    """Also ranges that hold no record at all and have batches behind them."""
    marker = encode_control_batch(ControlType.COMMIT, producer_id=7, producer_epoch=0)
    async with Cluster(topics={"t": 1}) as cluster:
        compacted = encode_batch([NewRecord(b"0"), NewRecord(b"3", offset_delta=3)])
        write(cluster, compacted, marker, encode_batch([NewRecord(b"5")]), marker, encode_batch([NewRecord(b"7")] * 2))
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            for start, until in combinations(range(10), 2):
                if columns:
                    batches = [batch async for batch in client.read_columns({ZERO: (start, until)})]
                    found = [row["offset"] for row in rows_of(batches).get(ZERO, [])]
                else:
                    parts = [part async for part in client.read({ZERO: (start, until)})]
                    found = [record.offset for part in parts for record in part.records]
                assert found == [offset for offset in (0, 3, 5, 7, 8) if start <= offset < until]


async def test_what_is_before_an_error_comes_first() -> None:
    async def corrupt(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.partition_index == 1 and partition.records:
                    data = bytearray(partition.records)
                    data[-1] ^= 1
                    partition.records = memoryview(bytes(data))
        return answer

    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0", b"1")
        cluster.append("t", b"2", partition=1)
        cluster.append("t", b"3", partition=1)
        cluster.intercept(ApiKey.FETCH, corrupt, times=None)
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            reading = client.read_columns({ZERO: (0, 2), ONE: (0, 2)}, columns=["value"])
            assert pa.record_batch(await anext(reading)).to_pydict() == {"value": [b"0", b"1", b"2"]}
            with pytest.raises(CorruptRecord, match="t-1 at offset 1, from broker 1: "):
                await anext(reading)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("columns", [True, False])
async def test_a_batch_behind_a_range_may_be_corrupt(columns: bool, codec: Codec) -> None:
    """The range ends in a hole: its last offset is known to hold no record once a batch behind it has come."""
    first = encode_batch([NewRecord(b"0")], codec=codec)
    cleaned = encode_batch([NewRecord(b"1")] * 6)
    last = encode_batch([NewRecord(b"7")] * 2, codec=codec)

    async def corrupt(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.records:
                    data = bytearray(partition.records)
                    assert len(data) == len(first + cleaned + last)
                    del data[len(first) : len(first + cleaned)]
                    data[-1] ^= 1
                    partition.records = memoryview(bytes(data))
        return answer

    async with Cluster(topics={"t": 1}) as cluster:
        write(cluster, first, cleaned, last)
        cluster.intercept(ApiKey.FETCH, corrupt, times=None)
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            read: Any = client.read_columns if columns else client.read
            for until in (5, 7):
                batches = [batch async for batch in read({ZERO: (0, until)})]
                assert sum(len(batch if columns else batch.records) for batch in batches) == 1
            with pytest.raises(CorruptRecord, match="t-0 at offset 7"):
                [batch async for batch in read({ZERO: (0, 8)})]


@pytest.mark.parametrize("columns", [True, False])
async def test_a_batch_behind_a_range_may_have_no_good_header(columns: bool) -> None:
    """The range ends with a marker: nothing is handed out in the step that comes to the error behind it."""
    marker = encode_control_batch(ControlType.COMMIT, producer_id=7, producer_epoch=0)
    last = encode_batch([NewRecord(b"2")])

    async def corrupt(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.records:
                    data = bytearray(partition.records)
                    data[16 - len(last)] = 6  # the magic
                    partition.records = memoryview(bytes(data))
        return answer

    async with Cluster(topics={"t": 1}) as cluster:
        write(cluster, encode_batch([NewRecord(b"0")], producer_id=7, transactional=True), marker, last)
        cluster.intercept(ApiKey.FETCH, corrupt, times=None)
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            read: Any = client.read_columns if columns else client.read
            for start in (0, 1):
                batches = [batch async for batch in read({ZERO: (start, 2)})]
                assert sum(len(batch if columns else batch.records) for batch in batches) == 1 - start
            with pytest.raises(CorruptRecord, match="t-0 at offset 2"):
                [batch async for batch in read({ZERO: (1, 3)})]


async def test_deleted_offsets_and_such_that_never_come() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1")
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(40):
            lengths: list[int] = []

            async def read(timeout_ms: int) -> None:
                lengths.clear()
                async for batch in client.read_columns({ZERO: (0, 5)}, timeout_ms=timeout_ms):
                    lengths.append(len(batch))  # noqa: PERF401 - the call raises behind the first one

            text = r"t-0 at offset 2 of the range's end 5"
            await raised_by(read, RequestTimedOut, text, timeouts_ms=(1_000, 15_000))
            assert lengths == [2]
            with pytest.raises(OffsetOutOfRange):
                await anext(client.read_columns({ZERO: (7, 9)}))


async def test_a_buffer_that_is_smaller_than_a_batch() -> None:
    async with Cluster(topics={"t": 4}) as cluster:
        for number in range(4):
            for _ in range(6):
                cluster.append("t", bytes(5000), bytes(5000), partition=number)
        ranges = {TopicPartition("t", number): (0, 3 + 2 * number) for number in range(4)}
        client = Client(
            bootstrap_servers=cluster.bootstrap, fetch_buffer_bytes=30_000, max_partition_fetch_bytes=11_000
        )
        async with client, asyncio.timeout(20):
            (batch,) = [batch async for batch in client.read_columns(ranges)]
        assert len(batch) == 3 + 5 + 7 + 9


async def test_a_reading_that_is_given_up_leaves_nothing_running() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            waiting = asyncio.ensure_future(anext(client.read_columns({ZERO: (0, 2)})))
            await cluster.intercept(ApiKey.FETCH, lambda exchange: None).caught()
            assert any("range reader" in task.get_name() for task in asyncio.all_tasks())
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            names = {task.get_name() for task in asyncio.all_tasks()}
            assert not any("range reader" in name or "fetcher" in name.lower() for name in names), names


async def test_what_all_reads_have_fetched_is_counted() -> None:
    asked: list[Exchange] = []

    def looked_at(exchange: Exchange) -> bool:
        asked.append(exchange)
        return False

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", *[b"x" * 100] * 10)
        may_be_unused(cluster.intercept(ApiKey.FETCH, ErrorCode.NONE, where=looked_at))
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            before = client.metrics()
            async for _ in client.read_columns({ZERO: (0, 10)}):
                pass
            between = client.metrics()
            async for _ in client.read({ZERO: (5, 10)}):
                pass
            after = client.metrics()

    assert (before.bytes, before.fetches.count) == (0, 0)
    assert 0 < between.fetches.count < after.fetches.count == len(asked)
    assert 1_000 < between.bytes < after.bytes
    assert after.failed_fetches == 0


async def test_wrong_arguments() -> None:
    async with Cluster(topics={"t": 1}) as cluster, Client(bootstrap_servers=cluster.bootstrap) as client:
        for options, problem in (
            ({"columns": ["values"]}, "'values' is no column; there are topic, "),
            ({"columns": "value"}, "a sequence of names, not 'value'"),
            ({"columns": []}, "at least one column"),
            ({"columns": ["timestamp_type", "timestampType"]}, "each once"),
            ({"timestamp_unit": "s"}, "'ms' or 'us'"),
            ({"batch_bytes": 1000}, "between 65536 and 1073741824"),
        ):
            with pytest.raises(ConfigError, match=problem):
                client.read_columns({ZERO: (0, 1)}, **options)
        with pytest.raises(ConfigError, match=r"\(2, 1\) is no range"):
            await anext(client.read_columns({ZERO: (2, 1)}))
