"""An observer hears of each batch, commit and rebalance once; what it raises is logged, and changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from aiokc import Consumer, Observer, TopicPartition
from aiokc.errors import CommitFailed, ConfigError, DeserializationFailed
from aiokc.observer import RebalanceKind
from aiokc.testing import Cluster

from ...virtually import virtually

pytestmark = pytest.mark.timeout(30)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Heard(Observer):
    """Keeps all that it hears, as the tests compare it: offsets, no record objects; times rounded to 10 ms."""

    def __init__(self) -> None:
        self.batches: list[tuple[dict[TopicPartition, list[int]], int, float, str]] = []
        self.commits: list[tuple[dict[TopicPartition, int], str]] = []
        self.rebalances: list[tuple[str, frozenset[TopicPartition], float]] = []
        self.tasks: list[asyncio.Task[Any] | None] = []

    def batch(self, partitions: Mapping[TopicPartition, Any], count: int, seconds: float, error: Any) -> None:
        offsets = {tp: [record.offset for record in records] for tp, records in partitions.items()}
        self.batches.append((offsets, count, round(seconds, 2), type(error).__name__ if error else ""))

    def commit(self, offsets: Mapping[TopicPartition, Any], seconds: float, error: Exception | None) -> None:
        assert seconds > 0
        self.commits.append(({tp: one.offset for tp, one in offsets.items()}, type(error).__name__ if error else ""))
        self.tasks.append(asyncio.current_task())

    def rebalance(self, kind: RebalanceKind, partitions: frozenset[TopicPartition], seconds: float) -> None:
        self.rebalances.append((kind, partitions, round(seconds, 1)))


class Failing(Observer):
    def batch(self, *args: Any) -> None:
        raise ValueError("batch")

    def commit(self, *args: Any) -> None:
        raise ValueError("commit")

    def rebalance(self, *args: Any) -> None:
        raise asyncio.CancelledError


def consumer(cluster: Cluster, *topics: str, **options: Any) -> Consumer[Any, Any]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return Consumer(*topics, bootstrap_servers=cluster.bootstrap, **settings)


def test_each_batch_is_told_once_with_its_time() -> None:
    async def story(cluster: Cluster) -> None:
        heard = Heard()
        async with consumer(cluster, observer=heard) as reader:
            reader.assign([T0])
            assert await reader.getmany(timeout_ms=1_000) == {}
            assert heard.batches == [], "an empty poll is no batch"
            waiting = asyncio.ensure_future(reader.getmany(max_records=3))
            await asyncio.sleep(2.0)
            cluster.append("t", *[b"v"] * 5)
            await waiting
            await reader.getmany()
            assert heard.batches == [({T0: [0, 1, 2]}, 3, 2.0, ""), ({T0: [3, 4]}, 2, 0.0, "")]
            reader.seek(T0, 0)
            columns = await reader.getmany_columns()
            assert heard.batches[2] == ({T0: []}, len(columns), heard.batches[2][2], "")
            await reader.getmany_columns(timeout_ms=10)
            assert len(heard.batches) == 3

    virtually(story)


@pytest.mark.parametrize("by_iterator", [True, False])
def test_the_records_of_one_stream_are_told_together(by_iterator: bool) -> None:
    async def story(cluster: Cluster) -> None:
        heard = Heard()
        cluster.append("t", *[b"v"] * 5)
        async with consumer(cluster, observer=heard) as reader:
            reader.assign([T0])
            if by_iterator:
                records = aiter(reader)
                for _ in range(5):
                    await anext(records)
            else:
                for _ in range(5):
                    await reader.getone()
            waiting = asyncio.ensure_future(reader.getone())
            await asyncio.sleep(1.0)
            told = [offset for batch, *_ in heard.batches for offset in batch[T0]]
            assert told == [0, 1, 2, 3, 4]
            assert sum(count for _, count, *_ in heard.batches) == 5
            cluster.append("t", b"w", b"x")
            await waiting
            await reader.getone()
        told = [offset for batch, *_ in heard.batches for offset in batch[T0]]
        assert told == [0, 1, 2, 3, 4, 5, 6], "stop() tells of the last ones"

    virtually(story)


def test_with_deserializers_each_record_of_getone_is_a_batch() -> None:
    async def story(cluster: Cluster) -> None:
        heard = Heard()
        cluster.append("t", b"1", b"2", b"three")
        async with consumer(cluster, observer=heard, value_deserializer=int) as reader:
            reader.assign([T0])
            await reader.getone()
            await reader.getone()
            with pytest.raises(DeserializationFailed):
                await reader.getone()
            with pytest.raises(DeserializationFailed):
                await reader.getmany()
            assert [(batch, error) for batch, _, _, error in heard.batches] == [
                ({T0: [0]}, ""),
                ({T0: [1]}, ""),
                ({}, "DeserializationFailed"),
                ({}, "DeserializationFailed"),
            ]

    virtually(story)


def test_commits_of_every_kind_are_told() -> None:
    async def story(cluster: Cluster) -> None:
        heard = Heard()
        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster, "t", group_id="g", observer=heard, enable_auto_commit=True) as reader:
            await reader.wait_assigned()
            await reader.position(T1)  # otherwise the first records may come before it, and the commit lacks it
            await reader.getmany(T0, max_records=2)
            await reader.position(T1)  # it may be looked up while records of T0 come
            await reader.commit()
            assert heard.commits == [({T0: 2, T1: 0}, "")]
            assert heard.tasks == [asyncio.current_task()], "in the context of the call, for spans"
            await reader.getmany(T0, max_records=2)
            reader.commit_soon()
            await asyncio.sleep(1.0)
            assert heard.commits[1:] == [({T0: 4, T1: 0}, "")]
            await reader.getmany(T0, max_records=2)
            await asyncio.sleep(10.0)
            assert heard.commits[2:] == [], "what auto-commit would store is stored"
            waiting = asyncio.ensure_future(reader.getmany(T1))
            await asyncio.sleep(10.0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert heard.commits[2:] == [({T0: 6}, "")], "an auto-commit"
            await reader.getmany(T0, max_records=2)
        assert heard.commits[3:] == [({T0: 8}, "")], "the last commit of stop()"

    virtually(story)


def test_a_commit_that_fails_is_told_with_its_error() -> None:
    async def story(cluster: Cluster) -> None:
        heard = Heard()
        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster, "t", group_id="g", observer=heard, heartbeat_interval_ms=40_000) as reader:
            await reader.wait_assigned()
            batch = await reader.getmany(T0, max_records=2)
            cluster.expire_member("g")
            with pytest.raises(CommitFailed):
                await reader.commit(batch)
            assert heard.commits == [({T0: 2}, "CommitFailed")]

    virtually(story)


def test_rebalances_are_told_with_their_time() -> None:
    async def story(cluster: Cluster) -> None:
        heard = Heard()
        async with consumer(cluster, "t", group_id="g", observer=heard) as reader:
            await reader.wait_assigned()
            assert heard.rebalances == [("assigned", frozenset({T0, T1}), 0.0)]
            cluster.expire_member("g")
            waiting = asyncio.ensure_future(reader.getmany())
            await asyncio.sleep(10.0)
            waiting.cancel()
            await asyncio.wait([waiting])
        kinds = [(kind, partitions) for kind, partitions, _ in heard.rebalances]
        both = frozenset({T0, T1})
        assert kinds == [("assigned", both), ("lost", both), ("assigned", both), ("revoked", both)]

    virtually(story)


def test_what_an_observer_raises_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        heard = Heard()
        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster, "t", group_id="g", observer=Failing()) as reader:
            reader.observe(heard)
            await reader.wait_assigned()
            assert len((await reader.getmany(T0))[T0]) == 10
            await reader.commit()
        assert len(heard.batches) == 1
        assert len(heard.commits) == 1
        assert [kind for kind, *_ in heard.rebalances] == ["assigned", "revoked"]

    virtually(story)
    told = [record.getMessage() for record in caplog.records if record.name == "aiokc.observer"]
    assert [line.split(",")[0] for line in told] == [
        "observer Failing.rebalance() failed",
        "observer Failing.batch() failed",
        "observer Failing.commit() failed",
    ], "each method once in 30 s"
    assert {record.levelno for record in caplog.records if record.name == "aiokc.observer"} == {logging.ERROR}


def test_an_observer_may_come_later_and_go() -> None:
    async def story(cluster: Cluster) -> None:
        heard = Heard()
        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster) as reader:
            reader.assign([T0])
            await reader.getmany(max_records=1)
            reader.observe(heard)
            reader.observe(heard)
            await reader.getmany(max_records=1)
            reader.no_longer_observe(heard)
            await reader.getmany(max_records=1)
            assert [batch for batch, *_ in heard.batches] == [{T0: [1]}]

    virtually(story)


def test_an_observer_may_leave_out_what_took_less() -> None:
    class Waiting(Heard):
        least_seconds = 1.0

    async def story(cluster: Cluster) -> None:
        all_of_it, waits = Heard(), Waiting()
        cluster.append("t", b"1", b"2")
        async with consumer(cluster, observer=waits, value_deserializer=int) as reader:
            reader.assign([T0])
            await reader.getmany(max_records=1)
            reader.observe(all_of_it)
            await reader.getmany(max_records=1)
            waiting = asyncio.ensure_future(reader.getmany())
            await asyncio.sleep(2.0)
            cluster.append("t", b"3", b"four", b"5")
            await waiting
            with pytest.raises(DeserializationFailed):
                await reader.getmany()
            told = [({T0: [2]}, 1, 2.0, ""), ({}, 0, 0.0, "DeserializationFailed")]
            assert waits.batches == told, "an error is told however quick it was"
            assert all_of_it.batches == [({T0: [1]}, 1, 0.0, ""), *told]
            waits.least_seconds = 0.0
            reader.observe(waits)
            reader.seek(T0, 0)
            await reader.getmany(max_records=1)
            assert waits.batches[2:] == all_of_it.batches[3:]
            assert [batch for batch, *_ in waits.batches[2:]] == [{T0: [0]}]

    virtually(story)


class Unclear(Heard):
    least_seconds = "1 ms"


class Asynchronous(Heard):
    async def batch(self, *args: Any) -> None:  # type: ignore[override]
        """A mistake: no consumer awaits it."""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (Heard, "observer is the class Heard: give an instance of it"),
        (print, "observer must be an aiokc.Observer, with batch"),
        (Asynchronous(), "Asynchronous.batch must be a plain function"),
        (Unclear(), "least_seconds of observer must be a number of seconds, not '1 ms'"),
    ],
)
async def test_what_is_no_observer_is_refused(given: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Consumer("t", observer=given)
    with pytest.raises(ConfigError, match=told):
        Consumer("t").observe(given)
