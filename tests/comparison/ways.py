"""All ways of aiokc to a topic's records, each read to the topic's end.

    python -m tests.comparison.ways BOOTSTRAP '{"ISOLATION LEVEL": ["WAY", ...], ...}' TOPIC:PARTITIONS ...

reads each topic in these ways at each isolation level, and writes what it found to stdout, pickled: for a process of
its own, which decodes records in Python (AIOKC_NATIVE=0).
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from aiokc import EARLIEST, LATEST, Client, Consumer, ConsumerRecords, RecordColumns, TopicPartition

from .rows import Row, in_order, row

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: Final[tuple[Isolation, ...]] = ("read_uncommitted", "read_committed")
SECONDS: Final = 60.0
# A read ends when nothing has come for this long: until then the rest (markers, holes) has been fetched.
_LOOK_MS: Final = 200

#: What was found, by topic, isolation level and way.
Found: TypeAlias = dict[tuple[str, Isolation, str], list[Row]]
Way: TypeAlias = Callable[[str, list[TopicPartition], Isolation], Awaitable[list[Row]]]


def _consumer(bootstrap: str, isolation_level: Isolation) -> Consumer:
    return Consumer(bootstrap_servers=bootstrap, isolation_level=isolation_level, auto_offset_reset="none")


async def _start(consumer: Consumer, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Begin at the beginning; return where each partition ends."""
    consumer.assign(partitions)
    await consumer.seek_to_beginning(*partitions)
    return await consumer.end_offsets(partitions)


async def _is_at(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> bool:
    return {tp: await consumer.position(tp) for tp in ends} == ends


async def by_getmany(bootstrap: str, partitions: list[TopicPartition], isolation_level: Isolation) -> list[Row]:
    rows: list[Row] = []
    async with _consumer(bootstrap, isolation_level) as consumer:
        ends = await _start(consumer, partitions)
        while not await _is_at(consumer, ends):
            batch: ConsumerRecords[bytes | None, bytes | None] = await consumer.getmany(timeout_ms=_LOOK_MS)
            for records in batch.values():
                rows += map(row, records)
    return rows


async def by_getone(bootstrap: str, partitions: list[TopicPartition], isolation_level: Isolation) -> list[Row]:
    rows: list[Row] = []
    async with _consumer(bootstrap, isolation_level) as consumer:
        ends = await _start(consumer, partitions)
        while not await _is_at(consumer, ends):
            try:
                async with asyncio.timeout(_LOOK_MS / 1e3):
                    rows.append(row(await consumer.getone()))
            except TimeoutError:
                continue
    return rows


async def by_iterating(bootstrap: str, partitions: list[TopicPartition], isolation_level: Isolation) -> list[Row]:
    rows: list[Row] = []
    async with _consumer(bootstrap, isolation_level) as consumer:
        ends = await _start(consumer, partitions)
        while not await _is_at(consumer, ends):
            try:
                async with asyncio.timeout(_LOOK_MS / 1e3) as patience:
                    async for record in consumer:
                        rows.append(row(record))
                        patience.reschedule(asyncio.get_running_loop().time() + _LOOK_MS / 1e3)
            except TimeoutError:
                continue
    return rows


async def by_ranges(bootstrap: str, partitions: list[TopicPartition], isolation_level: Isolation) -> list[Row]:
    rows: list[Row] = []
    async with Client(bootstrap_servers=bootstrap, isolation_level=isolation_level) as client:
        async for part in client.read(await _ranges(client, partitions)):
            rows += map(row, part.records)
    return rows


async def by_getmany_columns(bootstrap: str, partitions: list[TopicPartition], isolation_level: Isolation) -> list[Row]:
    rows: list[Row] = []
    async with _consumer(bootstrap, isolation_level) as consumer:
        ends = await _start(consumer, partitions)
        while not await _is_at(consumer, ends):
            rows += _rows(await consumer.getmany_columns(timeout_ms=_LOOK_MS))
    return rows


async def by_column_ranges(bootstrap: str, partitions: list[TopicPartition], isolation_level: Isolation) -> list[Row]:
    rows: list[Row] = []
    async with Client(bootstrap_servers=bootstrap, isolation_level=isolation_level) as client:
        async for columns in client.read_columns(await _ranges(client, partitions)):
            rows += _rows(columns)
    return rows


def _rows(columns: RecordColumns) -> list[Row]:
    """The same rows as of records, as far as columns can hold them: headers that are () in a record are null there."""
    table = pa.record_batch(columns)
    table.validate(full=True)
    parts = [table.column(name) for name in ("partition", "offset", "timestamp", "timestamp_type", "key", "value")]
    parts[2] = parts[2].cast(pa.int64())
    headers = (tuple((one["key"], one["value"]) for one in some or ()) for some in table.column("headers").to_pylist())
    return list(zip(*(part.to_pylist() for part in parts), headers, strict=True))


async def _ranges(client: Client, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    starts = await client.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await client.list_offsets(dict.fromkeys(partitions, LATEST))
    return {tp: (_offset(starts[tp]), _offset(ends[tp])) for tp in partitions}


def _offset(found: object) -> int:
    offset = getattr(found, "offset", None)
    assert isinstance(offset, int), found
    return offset


#: By their names.
WAYS: Final[Mapping[str, Way]] = {
    "getmany": by_getmany,
    "getone": by_getone,
    "iterator": by_iterating,
    "ranges": by_ranges,
    "columns": by_getmany_columns,
    "column ranges": by_column_ranges,
}


async def read_all(
    bootstrap: str, topics: Mapping[str, int], isolation_levels: Iterable[Isolation], ways: Iterable[str] = tuple(WAYS)
) -> Found:
    """Read every topic (with its number of partitions) in these ways."""
    found: Found = {}
    for topic, count in topics.items():
        partitions = [TopicPartition(topic, number) for number in range(count)]
        for isolation_level in isolation_levels:
            for name in ways:
                async with asyncio.timeout(SECONDS):
                    rows = await WAYS[name](bootstrap, partitions, isolation_level)
                found[topic, isolation_level, name] = in_order(rows)
    return found


def main() -> None:
    bootstrap, ways, *topics = sys.argv[1:]
    counts = {name: int(count) for name, _, count in (topic.rpartition(":") for topic in topics)}
    found: Found = {}
    for isolation_level, names in json.loads(ways).items():
        found |= asyncio.run(read_all(bootstrap, counts, [isolation_level], names))
    pickle.dump(found, sys.stdout.buffer)


if __name__ == "__main__":
    main()
