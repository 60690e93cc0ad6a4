"""Partitions that have no leader for minutes: the log and health() name them, whatever the consumer has to ask."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import EARLIEST, Consumer, TopicPartition
from aiokc.client.cluster.leaderless import LeaderlessReport
from aiokc.contrib.health import Probe
from aiokc.core.cluster.snapshot import Cluster as Snapshot
from aiokc.testing import Cluster
from aiokc.types import TopicInfo

from ...virtually import virtually

pytestmark = pytest.mark.timeout(30)


def fetches(reader: Consumer[Any, Any], tp: TopicPartition) -> None:
    pass


def looks_its_offset_up(reader: Consumer[Any, Any], tp: TopicPartition) -> None:
    reader._runtime.subscription.await_reset(tp, EARLIEST)
    reader._runtime.finder.wake.notify()


def validates_its_position(reader: Consumer[Any, Any], tp: TopicPartition) -> None:
    reader._runtime.subscription.await_validation(tp)
    reader._runtime.fetcher._validator.wake.notify()


@pytest.mark.parametrize("does", [fetches, looks_its_offset_up, validates_its_position])
def test_a_partition_without_a_leader_is_named_by_the_log_and_by_health(
    does: Callable[[Consumer[Any, Any], TopicPartition], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.create_topic("alone", 3, replication_factor=1)
        [tp] = [tp for tp in map(TopicPartition, ["alone"] * 3, range(3)) if cluster.leader(*tp) == 3]
        cluster.append("alone", b"0", partition=tp.partition)
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as reader:
            reader.assign([tp, TopicPartition("t", 0)])
            assert tp in await reader.getmany(timeout_ms=5_000)
            probe = Probe(reader)
            cluster.take_down(3)
            await asyncio.sleep(1)
            does(reader, tp)
            for _ in range(60):
                assert not await reader.getmany(timeout_ms=10_000)
                assert str(tp) in str(reader.health().last_error)
                assert probe.look() == (True, True, ())
            reader.pause(tp)
            assert str(tp) not in str(reader.health().last_error), "nobody wants its records"
            reader.resume(tp)
            cluster.bring_up(3)
            cluster.append("alone", b"1", partition=tp.partition)
            assert tp in await reader.getmany(timeout_ms=5_000)
            await asyncio.sleep(2)
            assert reader.health().last_error is None

    virtually(story)
    said = [record for record in caplog.records if "no leader" in record.getMessage()]
    assert {record.levelno for record in said} == {logging.WARNING}
    for record in said:
        assert re.fullmatch(r"alone-\d: no leader; looking again until there is one", record.getMessage())
    assert 18 <= len(said) <= 22, "one in half a minute"


@pytest.mark.parametrize(("beside", "between"), [("deleted", 5), ("t", 5), ("t", 0.5)])
def test_an_election_is_nothing_to_warn_of(beside: str, between: float, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever else is assigned: the search for the leader of a deleted topic never ends. Two are no long one."""

    async def story(cluster: Cluster) -> None:
        cluster.create_topic("alone", 1, replication_factor=1)
        cluster.create_topic("deleted", 1)
        leader = cluster.leader("alone")
        assert leader is not None
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as reader:
            reader.assign([TopicPartition("alone", 0), TopicPartition(beside, 0)])
            cluster.append("alone", b"0")
            assert await reader.getmany(timeout_ms=5_000)
            cluster.delete_topic("deleted")
            await asyncio.sleep(5)
            for _ in range(10):
                cluster.take_down(leader)
                assert not await reader.getmany(timeout_ms=1_000)
                cluster.bring_up(leader)
                cluster.append("alone", b"0")
                assert await reader.getmany(timeout_ms=10_000)
                await asyncio.sleep(between)

    virtually(story, auto_create_topics_enable=False)
    assert [text for text in caplog.messages if "no leader" in text] == []


def test_each_partition_is_warned_of_once_it_itself_has_had_no_leader_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A search may be about some of them only, and no one says that a partition was given up, or has a leader."""
    a, b, gone = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("gone", 0)
    known = Snapshot(1, topics={name: TopicInfo(name, {}) for name in ("a", "b")})
    report = LeaderlessReport(logging.getLogger("aiokc.fetch"))

    def warned(lacking: list[TopicPartition], now: float, pause: float) -> list[str]:
        caplog.clear()
        report.searched(lacking, known, now, now + pause)
        return [message.partition(":")[0] for message in caplog.messages]

    assert [warned([a, gone], now, 1) for now in (0, 1)] == [[], []]
    assert [warned([gone], now, 10) for now in (10, 20)] == [[], []]
    assert [warned([a, gone], now, 1) for now in (30, 31, 31.9)] == [[], [], []], "it had a leader, or was given up"
    assert warned([b], 32, 60) == []
    assert warned([a], 32, 1) == ["a-0"], "what is said of another one changes nothing"
    assert warned([b, gone], 92, 60) == ["b-0"], "however long the pauses are"
