"""The database of docs/guide/recipes.md counts each record once: after crashes, and beside a former owner at work."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aiokc import Consumer, OffsetAndMetadata, TopicPartition
from aiokc.errors import LogTruncated, OffsetOutOfRange
from aiokc.testing import ApiKey, Cluster, NewRecord
from aiokc.testing.faults import Hold

from .programs import of, program, until

EVENTS = TopicPartition("events", 0)
RECORDS = [NewRecord(b"%d" % number, key=b"key" if number % 3 else None) for number in range(20)]


@pytest.fixture(autouse=True)
def _database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("counts.db")) as database:
        database.executescript(program("class Ledger").TABLES)


def counted() -> int:
    with closing(sqlite3.connect("counts.db")) as database:
        (row,) = database.execute("SELECT COALESCE(SUM(count), 0), COUNT(*) FROM counts").fetchall()
    assert row[1] <= 2
    return int(row[0])


def is_at_the_end() -> bool:
    with closing(sqlite3.connect("counts.db")) as database:
        return database.execute("SELECT next FROM offsets").fetchall() == [(20,)]


def the_program(cluster: Cluster) -> Any:
    names = program("class Ledger")
    names.globals.update(Consumer=of(cluster, Consumer, max_poll_records=5), print=lambda *words: None)
    return names


async def run(names: Any, finished: Callable[[], bool]) -> None:
    """Run the program until then, or until it fails; then it is gone without another word to the database."""
    running = asyncio.create_task(names.main())
    try:
        await until(lambda: running.done() or finished())
    finally:
        running.cancel()
        await asyncio.wait([running])
    if not running.cancelled() and (error := running.exception()) is not None:
        raise error


async def test_each_record_counts_once_though_the_program_is_killed() -> None:
    """Right behind its transaction, and within it."""
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        cluster.append("events", *RECORDS)
        names = the_program(cluster)
        store = names.store

        def behind(partition: Any, records: Any, before: Any, after: Any) -> None:
            store(partition, records, before, after)
            raise RuntimeError("killed")

        def within(partition: Any, records: Any, before: Any, after: Any) -> None:
            store(partition, [*records, None] if before.offset == 10 else records, before, after)

        names.globals["store"] = behind
        with pytest.raises(RuntimeError, match="killed"):
            await run(names, lambda: False)
        assert counted() == 5
        names.globals["store"] = within
        with pytest.raises(AttributeError):
            await run(names, lambda: False)
        assert counted() == 10
        await run(the_program(cluster), is_at_the_end)
        assert counted() == 20
        assert cluster.committed("billing") == {}


async def test_a_former_owner_changes_nothing_and_the_new_one_goes_on_behind_what_it_stored() -> None:
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        cluster.append("events", *RECORDS)
        names = the_program(cluster)
        store = names.store
        came: list[OffsetAndMetadata] = []

        def is_late(partition: Any, records: Any, before: Any, after: Any) -> None:
            if not came:  # the former owner is quicker, with this batch and half of the next one
                came.append(after)
                store(partition, [*records, *records[:2]], before, OffsetAndMetadata(7, topic_id=after.topic_id))
            store(partition, records, before, after)

        names.globals["store"] = is_late
        await run(names, is_at_the_end)
        assert counted() == 20
        with pytest.raises(names.MovedOn):
            store(EVENTS, RECORDS[:5], None, came[0])
        with pytest.raises(names.MovedOn):
            store(EVENTS, RECORDS[:5], came[0], OffsetAndMetadata(10, topic_id=came[0].topic_id))
        assert counted() == 20


async def test_a_partition_is_lost_while_the_database_is_asked_where_it_is() -> None:
    """Behind a batch that another process has stored."""
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        cluster.append("events", *RECORDS)
        names = the_program(cluster)
        make, store, stored, take = names.globals["Consumer"], names.store, names.stored, names.Ledger.take
        calls: list[str] = []
        is_lost = threading.Event()

        def comes_second(partition: Any, records: Any, before: Any, after: Any) -> None:
            store(partition, records, before, after)
            if after.offset == 10:
                raise names.MovedOn

        def holds(partition: TopicPartition) -> Any:
            calls.append("stored")
            assert len(calls) != 3 or is_lost.wait(20)
            return stored(partition)

        async def is_noted(*batch: Any) -> None:
            await take(*batch)
            calls.append("take")

        names.Ledger.take = is_noted
        names.globals.update(
            Consumer=lambda **options: make(heartbeat_interval_ms=20, **options), store=comes_second, stored=holds
        )
        running = asyncio.create_task(run(names, is_at_the_end))
        await until(lambda: len(calls) == 3)
        rejoins = Hold()
        cluster.intercept(ApiKey.JOIN_GROUP, rejoins)
        cluster.expire_member("billing")
        await rejoins.arrived()
        is_lost.set()
        await until(lambda: running.done() or len(calls) == 4)
        rejoins.release()
        await running
        assert calls[:5] == ["stored", "take", "stored", "take", "stored"]
        assert counted() == 20


async def test_a_row_that_somebody_deletes_between_two_batches_ends_the_program() -> None:
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        cluster.append("events", *RECORDS)
        names = the_program(cluster)
        store = names.store

        def behind_a_deletion(partition: Any, records: Any, before: Any, after: Any) -> None:
            if after.offset == 10:
                with closing(sqlite3.connect("counts.db")) as database, database:
                    database.execute("DELETE FROM offsets")
            store(partition, records, before, after)

        names.globals["store"] = behind_a_deletion
        with pytest.raises(names.MovedOn):
            await run(names, is_at_the_end)
        assert counted() == 5


async def test_records_that_come_again_are_left_out() -> None:
    """Those of a partition that was lost and comes back while the member stores a batch of it."""
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        cluster.append("events", *RECORDS)
        names = the_program(cluster)
        take = names.Ledger.take

        async def comes_back(ledger: Any, *batch: Any) -> None:
            await take(ledger, *batch)
            if batch[2].offset == 10:
                ledger._consumer.seek(EVENTS, 3)

        names.Ledger.take = comes_back
        await run(names, is_at_the_end)
        assert counted() == 20


async def test_a_topic_that_is_created_anew_ends_the_program() -> None:
    """Though it is as long as the former one was."""
    async with Cluster(brokers=1, topics={"events": 1}) as cluster:
        cluster.append("events", *RECORDS)
        await run(the_program(cluster), is_at_the_end)
        cluster.recreate_topic("events")
        cluster.append("events", *RECORDS, *RECORDS)
        with pytest.raises((LogTruncated, OffsetOutOfRange)):
            await run(the_program(cluster), lambda: False)
        assert counted() == 20
