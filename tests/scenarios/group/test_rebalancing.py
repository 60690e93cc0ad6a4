"""Rebalances: the order of revoking, joining and assigning; no record is lost, repeated, or read by two members."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from aiokc.errors import UsageError
from aiokc.testing import ApiKey
from aiokc.testing.faults import Hold
from aiokc.types import TopicPartition

from ..stage import T0, T1, T2, Stage, scenario

EAGER: dict[str, Any] = {"partition_assignment_strategy": ("range",)}
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ("cooperative-sticky",)}
SIX = frozenset(TopicPartition("t", number) for number in range(6))


def fill(stage: Stage, records: int, partitions: int) -> None:
    """Append so many records to each of the first partitions of t."""
    for partition in range(partitions):
        stage.cluster.append("t", *(b"%d" % number for number in range(records)), partition=partition)


@scenario(topics={"t": 6})
async def test_an_eager_rebalance_gives_up_everything_first(stage: Stage) -> None:
    """Given an EAGER c1 with 6 partitions, when c2 joins, then c1 is told of revoked(6) before its JoinGroup and of
    assigned(3) after its SyncGroup; what c1 committed when it revoked is not read again.
    """
    options: dict[str, Any] = {**EAGER, "enable_auto_commit": True, "max_poll_records": 7}
    fill(stage, 50, 6)
    async with stage.member("c1", **options).reads() as c1:
        await c1.has_read(100)
        before = len(stage.events)
        async with stage.member("c2", **options).reads() as c2:
            await c2.has(3)
            fill(stage, 50, 6)
            await stage.until(lambda: len(c1.read) + len(c2.read) >= 600)
            order = stage.names("c1", "revoked", "JoinGroup", "SyncGroup", "assigned", since=before)
            assert order == ["revoked", "JoinGroup", "SyncGroup", "assigned"]
            assert stage.of("c1", "revoked", "assigned", since=before)[0] == SIX
            assert [len(told) for told in stage.of("c1", "revoked", "assigned", since=before)] == [6, 3]
            assert sorted(c1.read + c2.read) == sorted((tp, offset) for tp in SIX for offset in range(100))


@scenario(topics={"t": 6})
async def test_a_cooperative_handover_takes_two_rounds_and_stops_no_member(stage: Stage) -> None:
    """Given a COOPERATIVE c1 and c2 with 3 partitions each, when c3 joins, then two generations pass, c1 and c2 revoke
    one partition each and read the others throughout, and c3 gets the two; no partition ever has two owners.
    """
    async with (
        stage.member("c1", **COOPERATIVE).reads() as c1,
        stage.member("c2", **COOPERATIVE).reads() as c2,
        stage.member("c3", **COOPERATIVE) as c3,
    ):
        await stage.until(lambda: len(c1.owned) == len(c2.owned) == 3)
        c3_joins = c1.generation
        before, held = len(stage.events), c1.owned | c2.owned
        slow = Hold()
        stage.cluster.intercept(ApiKey.JOIN_GROUP, slow, where=lambda exchange: exchange.client_id == "c2", times=1)
        c3.reads()
        await slow.arrived()
        fill(stage, 10, 6)
        await stage.until(lambda: len(c1.read) == len(c2.read) == 30)  # in the middle of the rebalance
        assert c1.generation == c3_joins
        slow.release()
        await c3.has(2)
        assert (len(c1.owned), len(c2.owned)) == (2, 2)
        assert c3.owned == held - c1.owned - c2.owned
        assert c1.generation - c3_joins == 2
        for name in ("c1", "c2"):
            given_up = stage.of(name, "revoked", since=before)
            assert [len(partitions) for partitions in given_up if partitions] == [1]
            assert stage.of(name, "lost", since=before) == []


@scenario(topics={"t": 3})
async def test_members_come_and_what_was_committed_is_where_the_next_one_begins(stage: Stage) -> None:
    """Given a stable group that consumes, when a third member joins, then the others auto-commit, are told which
    partitions they revoke and rejoin with the same member ids, and each new owner begins exactly at the old one's
    committed offset: no record is lost, none is read twice.
    """
    options: dict[str, Any] = {**EAGER, "enable_auto_commit": True, "max_poll_records": 5}
    async with stage.member("c1", **options).reads() as c1, stage.member("c2", **options).reads() as c2:
        await stage.until(lambda: {len(c1.owned), len(c2.owned)} == {1, 2})
        fill(stage, 100, 3)
        await stage.until(lambda: len(c1.read) > 20 and len(c2.read) > 20)
        ids = c1.member_id, c2.member_id
        before = len(stage.events)
        async with stage.member("c3", **options).reads() as c3:
            await stage.until(lambda: len(c1.owned) == len(c2.owned) == len(c3.owned) == 1)
            fill(stage, 100, 3)
            await stage.until(lambda: len(c1.read) + len(c2.read) + len(c3.read) >= 600)
            assert (c1.member_id, c2.member_id) == ids
            for name, member_id in zip(("c1", "c2"), ids, strict=True):
                assert "OffsetCommit" in stage.names(name, "OffsetCommit", since=before)
                assert {request.member_id for request in stage.of(name, "JoinGroup", since=before)} == {member_id}
                assert stage.names(name, "revoked", "JoinGroup", "assigned", since=before)[0] == "revoked"
            everything = sorted((tp, offset) for tp in (T0, T1, T2) for offset in range(200))
            assert sorted(c1.read + c2.read + c3.read) == everything


@scenario(topics={"t": 3}, brokers=2)
async def test_only_the_leader_looks_for_new_partitions(stage: Stage) -> None:
    """Given a topic that grows from 3 to 6 partitions, then only the group leader starts a rebalance for it, even if
    other members have seen it before; given a partition that only moves to another broker, then no member does.
    """
    async with (
        stage.member("leader", metadata_max_age_ms=60_000).reads() as leader,
        stage.member("follower", metadata_max_age_ms=2_000).reads() as follower,
    ):
        await stage.until(lambda: {len(leader.owned), len(follower.owned)} == {1, 2})
        assert stage.cluster.members("g")[0] == leader.member_id
        before = len(stage.events)
        stage.cluster.move_leader("t", 0)
        await asyncio.sleep(130)
        assert stage.names("follower", "Metadata", since=before)
        assert stage.names("leader", "JoinGroup", since=before) == []
        assert stage.names("follower", "JoinGroup", since=before) == []
        stage.cluster.add_partitions("t", 6)
        before = len(stage.events)
        await stage.until(lambda: len(leader.owned) + len(follower.owned) == 6)
        joins = [event.who for event in stage.events[before:] if event.what == "JoinGroup"]
        assert joins == ["leader", "follower"]
        assert len(stage.names("follower", "Metadata", since=before)) > 1, "it knew, and waited to be told"


@scenario(topics={"one": 1})
async def test_a_topic_that_matches_the_pattern_is_read_once_it_is_there(stage: Stage) -> None:
    """Given a subscription to a pattern, when a topic is created that matches it, then it is read within
    metadata_max_age_ms; internal topics never match, unless exclude_internal_topics is turned off.
    """
    stage.cluster.create_topic("__consumer_offsets", 1)
    everything = re.compile(".*")
    async with stage.member("c1", everything, metadata_max_age_ms=30_000).reads() as c1:
        await c1.has(1)
        stage.cluster.create_topic("two", 1)
        stage.cluster.append("two", b"0")
        began = stage.loop.time()
        await c1.has_read(1)
        assert stage.loop.time() - began < 30 + 5
        assert c1.read == [(TopicPartition("two", 0), 0)]
        assert c1.consumer.subscription() == {"one", "two"}
    internal = stage.member("c2", everything, group="other", exclude_internal_topics=False)
    async with internal.reads() as c2:
        await c2.has(3)
        assert c2.consumer.subscription() == {"one", "two", "__consumer_offsets"}


@scenario(topics={"t": 2})
async def test_partitions_that_appear_while_the_leader_assigns_are_not_forgotten(stage: Stage) -> None:
    """Given a topic of 2 partitions that grows to 4 while the leader's assignment is under way, then the group
    rebalances once more by itself, and all 4 are read.
    """
    hold = Hold()
    stage.cluster.intercept(ApiKey.SYNC_GROUP, hold, times=1)
    async with stage.member("c1", metadata_max_age_ms=10_000).reads() as c1:
        await hold.arrived()
        stage.cluster.add_partitions("t", 4)
        fill(stage, 1, 4)
        hold.release()
        await c1.has(4)
        await stage.until(lambda: len(set(c1.read)) == 4)
        assert sorted(set(c1.read)) == [(TopicPartition("t", number), 0) for number in range(4)]


@scenario()
async def test_subscribing_and_assigning_exclude_each_other(stage: Stage) -> None:
    """Given subscribe() and then assign() without unsubscribe(), then UsageError (Java's IllegalStateException), and
    the other way round; after unsubscribe(), assign() reads what it names, without a group.
    """
    stage.cluster.append("t", b"0")
    async with stage.consumer("t", client_id="c1", group_id="g") as consumer:
        assert (await consumer.getone()).value == b"0"
        assert stage.names("c1", "JoinGroup")
        with pytest.raises(UsageError, match="unsubscribe"):
            consumer.assign([T0])
        consumer.unsubscribe()
        before = len(stage.events)
        consumer.assign([T0])
        assert (await consumer.getone()).value == b"0"
        with pytest.raises(UsageError, match="unsubscribe"):
            consumer.subscribe(["t"])
        with pytest.raises(UsageError, match="unsubscribe"):
            consumer.subscribe(re.compile("t"))
        assert stage.names("c1", "JoinGroup", "LeaveGroup", since=before) == ["LeaveGroup"]
        assert stage.cluster.members("g") == []


@scenario()
async def test_to_subscribe_to_nothing_or_to_assign_nothing_is_to_unsubscribe(stage: Stage) -> None:
    """Given a subscription or an assignment, when subscribe() or assign() is called with nothing, then nothing is read,
    a member leaves its group, and either kind may follow.
    """
    async with stage.consumer("t", client_id="c1", group_id="g") as consumer:
        for stop_reading in (consumer.subscribe, consumer.assign):
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
            before = len(stage.events)
            stop_reading([])
            assert not consumer.assignment()
            assert not consumer.subscription()
            with pytest.raises(UsageError, match="nothing to read"):
                await consumer.getmany()
            while not stage.names("c1", "LeaveGroup", since=before):
                await stage.changed.wait()
            consumer.assign([T0])
            assert consumer.assignment() == {T0}
            stop_reading([])
            assert consumer.assignment() == frozenset()
            consumer.subscribe(["t"])
