"""Targets that change while a member gives up partitions, that take everything, or that an answer leaves out."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ...virtually import virtually
from .group_stories import (
    BOTH,
    T0,
    Told,
    asked_of,
    consumer_of,
    heartbeats,
    owned,
    polls,
    read,
    shared,
)


def test_a_member_that_joins_during_a_callback_takes_its_part_after_it() -> None:
    """The target of the first member changes while it gives up partitions: it gives up those first, then the others."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told(seconds=12.0)
        async with consumer_of(cluster, told) as one:
            await shared(one, total=6)
            async with consumer_of(cluster) as two:
                early = [asyncio.ensure_future(polls(each, 60.0)) for each in (one, two)]
                await told.revocation.wait()
                async with consumer_of(cluster) as three:
                    await asyncio.gather(*early, polls(three, 60.0))
                    held = [each.assignment() for each in (one, two, three)]
                    assert [len(each) for each in held] == [2, 2, 2]
                    assert len(frozenset.union(*held)) == 6
                    mine = heartbeats(asked, one.group_metadata().member_id)
                    given_up = [(when, parts) for when, what, parts in told.log if what == "gave up"]
                    assert [len(parts) for _, parts in given_up] == [3, 1]
                    for when, sent in mine[1:]:  # what a heartbeat leaves out has been given up before
                        gone = {tp.partition for done, parts in given_up if done <= when for tp in parts}
                        assert set(owned(sent) or range(6)) | gone == set(range(6))

    virtually(story, topics={"t": 6})


def test_a_subscription_that_shrinks_during_a_callback_takes_more_away_under_the_same_epoch() -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told(seconds=12.0)
        async with consumer_of(cluster, told) as one:
            one.subscribe(["t", "u"], listener=told)
            await shared(one, total=4)
            async with consumer_of(cluster) as two:
                polling = asyncio.gather(polls(one, 60.0), polls(two, 60.0))
                await told.revocation.wait()
                one.subscribe(["t"], listener=told)
                await polling
                assert {tp.topic for tp in one.assignment()} == {"t"}
                assert one.assignment() | two.assignment() == BOTH
                gone = [{tp.topic for tp in parts} for what, parts in told.events if what == "revoked"]
                assert gone == [{"t"}, {"u"}]
                assert "lost" not in [what for what, _ in told.events]
                names = [sent.subscribed_topic_names for _, sent in heartbeats(asked, one.group_metadata().member_id)]
                assert [each for each in names if each is not None][-1] == ["t"]

    virtually(story, topics={"t": 2, "u": 2})


BY_NAMES = (["t"], ["t", "u"])
BY_PATTERNS = (re.compile("t"), re.compile("t|u"))


async def _reads_both(consumer: Consumer, cluster: Cluster) -> None:
    for topic in ("t", "u"):
        cluster.append(topic, topic.encode())
    assert sorted(await read(consumer, 2)) == [b"t", b"u"]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("one_topic", "both"), [BY_NAMES, BY_PATTERNS], ids=["names", "patterns"])
def test_a_topic_that_is_dropped_and_wanted_again_while_a_heartbeat_is_under_way_is_read(
    one_topic: Any, both: Any
) -> None:
    """The coordinator hears of neither, so no answer says anything of what the member holds."""

    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, topics=both) as one:
            await shared(one, total=2)
            await polls(one, 20.0)
            one.enforce_rebalance()
            await asyncio.sleep(0)
            one.subscribe(one_topic)
            one.subscribe(both)
            await _reads_both(one, cluster)

    virtually(story, topics={"t": 1, "u": 1})


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("one_topic", "both"), [BY_NAMES, BY_PATTERNS], ids=["names", "patterns"])
def test_a_topic_that_is_dropped_and_wanted_again_in_an_outage_is_read_before_its_end(
    one_topic: Any, both: Any
) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, topics=both) as one:
            await shared(one, total=2)
            await polls(one, 20.0)
            cluster.intercept(ConsumerGroupHeartbeatRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            await polls(one, 8.0)
            one.subscribe(one_topic)
            await polls(one, 3.0)
            one.subscribe(both)
            await _reads_both(one, cluster)

    virtually(story, topics={"t": 1, "u": 1})


def test_what_is_given_back_during_a_callback_is_read_on_from_the_commit() -> None:
    """The other member has left again: the coordinator gives the partition back once it is acknowledged, not before."""

    async def story(cluster: Cluster) -> None:
        told = Told(seconds=12.0)
        for partition in (0, 1):
            cluster.append("t", b"%d" % partition, partition=partition)
        async with consumer_of(cluster, told, enable_auto_commit=True) as one:
            assert sorted(await read(one, 2)) == [b"0", b"1"]
            await one.getmany(timeout_ms=10)
            async with consumer_of(cluster) as two:
                polling = asyncio.ensure_future(polls(one, 40.0))
                await told.revocation.wait()
                assert two.assignment() == frozenset()
            await polling
            [gone] = [parts for what, parts in told.events if what == "revoked"]
            assert len(gone) == 1
            assert [event for event in told.events if event[0] == "assigned" and event[1]] == [
                ("assigned", BOTH),
                ("assigned", gone),
            ]
            assert one.assignment() == BOTH
            for partition in (0, 1):
                cluster.append("t", b"more", partition=partition)
            assert await read(one, 2) == [b"more", b"more"]

    virtually(story)


@pytest.mark.parametrize("commits", [False, True])
def test_an_empty_assignment_takes_everything(commits: bool) -> None:
    """The range assignor serves static members first: the only partition goes to the one that joins."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told, enable_auto_commit=commits) as one:
            assert await read(one, 1) == [b"one"]
            async with consumer_of(cluster, group_instance_id="i") as static:
                while static.assignment() != {T0}:
                    await asyncio.gather(polls(one, 0.5), polls(static, 0.5))
                assert told.events[1:] == [("revoked", {T0}), ("gave up", {T0}), ("assigned", frozenset())]
                assert one.assignment() == frozenset()
                assert [owned(sent) for _, sent in heartbeats(asked, one.group_metadata().member_id)][-1] == []
                assert len(asked.of(OffsetCommitRequest)) == commits
                assert await static.getmany(timeout_ms=1_000) == {} or not commits
                await polls(one, 60.0)  # a member without partitions stays in the group
                assert len(cluster.members("g")) == 2

    virtually(story, topics={"t": 1}, group_consumer_assignors=("range",))


def test_answers_without_an_assignment_are_no_news() -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told) as one:
            assert await read(one, 1) == [b"one"]
            positions = dict(one._runtime.subscription.assigned)
            await polls(one, 120.0)
            assert len(heartbeats(asked)) == pytest.approx(2 + 4 + 120 / 5, abs=2)
            assert told.events == [("assigned", BOTH)]
            assert all(one._runtime.subscription.assigned[tp] is positions[tp] for tp in BOTH)
            cluster.append("t", b"two")
            assert await read(one, 1) == [b"two"]

    virtually(story)
