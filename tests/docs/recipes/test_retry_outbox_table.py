"""The retry, the outbox and the table of docs/guide/recipes.md lose nothing. test_readme.py runs them undisturbed."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aiokc import Consumer, Producer, TopicPartition
from aiokc.errors import LogTruncated, OffsetOutOfRange, RecordRefused
from aiokc.testing import ApiKey, Cluster, ErrorCode, NewRecord

from .programs import of, program, until

EVENTS = TopicPartition("events", 0)


async def test_a_record_that_waits_for_its_retry_is_not_committed() -> None:
    names = program("DELAY_MS")
    async with Cluster(brokers=1, topics={"events": 1, "events-retry": 1, "events-dead": 1}) as cluster:
        cluster.append("events", b"value-05")
        names.globals.update(DELAY_MS=3_600_000, Consumer=of(cluster, Consumer), Producer=of(cluster, Producer))
        running = asyncio.create_task(names.main())
        retry = TopicPartition("events-retry", 0)
        await until(lambda: retry in cluster.committed("billing"))
        running.cancel()
        await asyncio.wait([running])
        assert cluster.committed("billing") == {EVENTS: 1, retry: 0}


async def test_a_row_of_the_outbox_that_is_not_stored_stays_there_with_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = program("outbox-id")
    async with Cluster(brokers=1, topics={"events-outbox": 1}) as cluster:
        rows = [(1, b"key", b"a"), (2, b"key", b"b")]
        with closing(sqlite3.connect("outbox.db")) as database, database:
            database.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB, value BLOB)")
            database.executemany("INSERT INTO outbox VALUES (?, ?, ?)", rows)
        cluster.intercept(ApiKey.PRODUCE, lambda exchange: ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1)
        with pytest.raises(RecordRefused):
            async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
                await names.relay(producer, asyncio.Event())
        assert names.oldest() == rows
        told_to_end = asyncio.Event()
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            relaying = asyncio.create_task(names.relay(producer, told_to_end))
            await until(lambda: not names.oldest())
            told_to_end.set()
            await relaying
        assert [record.value for record in cluster.records("events-outbox", 0)] == [b"a", b"b"]


async def test_the_relay_of_the_outbox_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = program("outbox-id")
    relay = names.relay

    async def relay_once(producer: Any, told_to_end: asyncio.Event) -> None:
        names.globals["print"] = lambda *words: told_to_end.set()
        await relay(producer, told_to_end)

    async with Cluster(brokers=1, topics={"events-outbox": 1}) as cluster:
        names.globals.update(Producer=of(cluster, Producer), relay=relay_once)
        for start in (1, 2):
            async with asyncio.timeout(20):
                await names.main()
            assert cluster.end_offset("events-outbox") == 12 * start


async def test_the_table_is_loaded_though_the_log_ends_in_a_marker_and_a_partition_is_empty() -> None:
    names = program("class Table")
    async with Cluster(brokers=1, topics={"events": 2}) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap, transactional_id="table")
        async with producer, producer.transaction():
            await producer.send("events", b"1", key=b"ann", partition=0)
            await producer.send("events", b"2", key=b"bob", partition=0)
            await producer.send("events", None, key=b"bob", partition=0)
        table = names.Table()
        async with Consumer("events", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            async with asyncio.timeout(20):
                await table.load(consumer)
        assert table.rows == {b"ann": b"1"}


async def test_the_table_waits_for_its_topic_and_ends_when_that_is_created_anew() -> None:
    names = program("class Table")
    looks: list[Any] = []
    said: list[tuple[Any, ...]] = []
    read = names.Table._read

    async def looked(table: Any, consumer: Any) -> None:
        looks.append(consumer)
        await read(table, consumer)

    names.Table._read = looked
    async with Cluster(brokers=1) as cluster:
        names.globals.update(Consumer=of(cluster, Consumer), print=lambda *words: said.append(words))
        running = asyncio.create_task(names.main())
        await until(lambda: bool(looks or said))
        assert said == []
        cluster.create_topic("events", 1)
        cluster.append("events", NewRecord(b"1", key=b"ann"))
        await until(lambda: said[-1:] == [("loaded:", {b"ann": b"1"})])
        cluster.recreate_topic("events")
        cluster.append("events", NewRecord(b"2", key=b"bob"))
        async with asyncio.timeout(20):
            with pytest.raises(ExceptionGroup) as failed:
                await running
        assert failed.group_contains((LogTruncated, OffsetOutOfRange))
