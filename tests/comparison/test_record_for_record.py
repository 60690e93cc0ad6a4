"""The same records as confluent-kafka reads, from the same topics: offset, key, value, headers, timestamp, its type.

At both isolation levels, in every way that aiokc has, with the native and the pure decoder.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final
from uuid import uuid4

import pytest
from crc32c import crc32c

from aiokc import CREATE_TIME, LOG_APPEND_TIME
from aiokc.records import NewRecord, encode_batch
from aiokc.testing.kafka import LocalKafka
from tests.suite.child_process import run_bytes
from tests.testing.questions import produce_to
from tests.testing.wire_client import connected

from .logs import Transactions, write_big_records, write_codecs
from .rows import Row, read_by_confluent
from .ways import ISOLATION_LEVELS, WAYS, Found, Isolation, read_all

pytestmark = [pytest.mark.kafka, pytest.mark.every_kafka, pytest.mark.timeout(180)]

KINDS: Final = ("codecs", "append time", "transactions", "big records")


@dataclass(frozen=True)
class Written:
    """The topics by their content, with their partitions, and what confluent-kafka reads there."""

    bootstrap: str
    topics: Mapping[str, str]
    partitions: Mapping[str, int]
    expected: Mapping[tuple[str, Isolation], list[Row]]

    def rows(self, kind: str, isolation_level: Isolation) -> list[Row]:
        return self.expected[self.topics[kind], isolation_level]

    def differences(self, found: Found) -> list[str]:
        kinds = {topic: kind for kind, topic in self.topics.items()}
        return [
            f"{kinds[topic]}, {level}, {way}: {difference(rows, self.expected[topic, level])}"
            for (topic, level, way), rows in found.items()
            if rows != self.expected[topic, level]
        ]


def difference(found: list[Row], expected: list[Row]) -> str:
    for one, other in zip(found, expected, strict=False):
        if one != other:
            return f"{one!r:.300} is not {other!r:.300}"
    return f"{len(found)} records and not {len(expected)}"


def write(kafka: LocalKafka, chance: Random, count: int) -> Iterator[Written]:
    """Write all kinds of topics, and have confluent-kafka read them."""
    topics = {kind: f"{kind.replace(' ', '-')}-{uuid4().hex[:8]}" for kind in KINDS}
    append_time = {"message.timestamp.type": "LogAppendTime"}
    transactions = Transactions(kafka, topics["transactions"], chance, max(2, count // 20))
    partitions = {
        "codecs": write_codecs(kafka, topics["codecs"], chance, count),
        "append time": write_codecs(kafka, topics["append time"], chance, count // 5, config=append_time),
        "transactions": transactions.partitions,
        "big records": write_big_records(kafka, topics["big records"], chance),
    }
    try:
        counts = {topics[kind]: partitions[kind] for kind in KINDS}
        expected = {
            (topic, level): rows
            for level in ISOLATION_LEVELS
            for topic, rows in read_by_confluent(kafka.bootstrap, counts, level).items()
        }
        yield Written(kafka.bootstrap, topics, counts, expected)
    finally:
        transactions.close()


@pytest.fixture(scope="module")
def written(kafka: LocalKafka) -> Iterator[Written]:
    yield from write(kafka, Random(1), 100)


def test_the_logs_hold_what_they_should(written: Written) -> None:
    """Otherwise there would be nothing to compare."""
    uncommitted, committed = (written.rows("transactions", level) for level in ISOLATION_LEVELS)
    assert 0 < len(committed) < len(uncommitted)
    rows = written.rows("codecs", "read_committed")
    assert rows == written.rows("codecs", "read_uncommitted")
    assert len(rows) == 500
    assert {kind for _, _, _, kind, _, _, _ in rows} == {CREATE_TIME}
    assert {kind for _, _, _, kind, _, _, _ in written.rows("append time", "read_committed")} == {LOG_APPEND_TIME}
    for place in (4, 5):
        assert {None, b""} < {row[place] for row in rows}
    headers = [header for row in rows for header in row[6]]
    assert {None, b""} < {value for _, value in headers}
    assert "" in {key for key, _ in headers}
    assert any(len({key for key, _ in row[6]}) < len(row[6]) for row in rows)


@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
@pytest.mark.parametrize("way", WAYS)
async def test_the_same_records(written: Written, way: str, isolation_level: Isolation) -> None:
    found = await read_all(written.bootstrap, written.partitions, [isolation_level], [way])
    assert written.differences(found) == []


def test_the_same_records_decoded_in_python(written: Written) -> None:
    ways = {"read_committed": list(WAYS), "read_uncommitted": ["getmany", "columns"]}
    assert written.differences(read_in_python(written, ways)) == []


def read_in_python(written: Written, ways: Mapping[str, Sequence[str]]) -> Found:
    """Everything, read in these ways at each isolation level, in a process of its own, without the extension."""
    topics = [f"{topic}:{count}" for topic, count in written.partitions.items()]
    done = run_bytes(
        [sys.executable, "-m", "tests.comparison.ways", written.bootstrap, json.dumps(ways), *topics],
        seconds=150,
        env={**os.environ, "AIOKC_NATIVE": "0"},
    )
    assert done.returncode == 0, done.stderr.decode()
    found: Found = pickle.loads(done.stdout)
    assert len(found) == len(topics) * sum(map(len, ways.values()))
    return found


async def test_header_keys_that_are_not_utf_8(kafka: LocalKafka, topic_name: str) -> None:
    """No producer is kept from writing them. Java reads them as aiokc does; confluent-kafka ends in a SystemError."""
    kafka.create_topic(topic_name)
    batch = bytearray(encode_batch([NewRecord(b"value", headers=[("key-xx", b"1"), ("key-xx", None)])]))
    for bad in (b"\xff\xfe", b"\xe2\x82"):
        at = batch.index(b"key-xx") + 4
        batch[at : at + 2] = bad
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    async with connected(kafka.bootstrap) as client:
        assert (await produce_to(client, topic_name, bytes(batch), version=7)).error_code == 0

    found = await read_all(kafka.bootstrap, {topic_name: 1}, ["read_committed"])

    expected = (("key-\ufffd\ufffd", b"1"), ("key-\ufffd", None))
    assert {way: [row[6] for row in rows] for (_, _, way), rows in found.items()} == {way: [expected] for way in WAYS}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 5))
def test_more_of_the_same(kafka: LocalKafka, seed: int) -> None:
    for written in write(kafka, Random(seed), 2_000):
        found = asyncio.run(read_all(written.bootstrap, written.partitions, ISOLATION_LEVELS))
        assert written.differences(found) == []
        assert written.differences(read_in_python(written, {level: list(WAYS) for level in ISOLATION_LEVELS})) == []
