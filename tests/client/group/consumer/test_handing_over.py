"""Partitions that change hands in a group of the consumer protocol: joins, revocations, and what goes out when."""

from __future__ import annotations

import asyncio

import pytest

from aiokc.testing import Cluster
from aiokc.testing.faults import lose_answer
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ...virtually import virtually
from .group_stories import BOTH, Told, asked_of, consumer_of, heartbeats, of_client, owned, polls, read, shared


def test_the_first_member_joins_by_one_heartbeat_and_acknowledges_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told) as consumer:
            assert await read(consumer, 1) == [b"one"]
            (joined, join), (acknowledged, ack) = heartbeats(asked)
            assert (join.member_epoch, join.subscribed_topic_names, owned(join)) == (0, ["t"], [])
            assert (ack.member_epoch, owned(ack)) == (2, [0, 1])
            assert acknowledged - joined < 1
            assert told.events == [("assigned", BOTH)]
            assert consumer.group_metadata().generation_id == 2

    virtually(story)


def test_a_second_member_within_the_assignment_interval_gets_nothing_at_first() -> None:
    async def story(cluster: Cluster) -> None:
        first, second = Told(), Told()
        async with consumer_of(cluster, first) as one:
            await shared(one)
            async with consumer_of(cluster, second) as two:
                while not second.log:
                    await two.getmany(timeout_ms=50)
                assert second.events == [("assigned", frozenset())]
                await shared(one, two)
                assert one.assignment() | two.assignment() == BOTH
                assert [what for what, _ in first.events] == ["assigned", "revoked", "gave up", "assigned"]

    virtually(story, group_consumer_assignment_interval_ms=1000)


@pytest.mark.parametrize("commits", [False, True])
def test_a_revocation_is_commit_then_callback_then_acknowledgement_then_the_other_member(commits: bool) -> None:
    """The callback lasts longer than two heartbeats: none of them may show the reduced set."""

    async def story(cluster: Cluster) -> None:
        asked, told, other = asked_of(cluster), Told(seconds=12.0), Told()
        for partition in (0, 1):
            cluster.append("t", b"%d" % partition, partition=partition)
        async with consumer_of(cluster, told, client_id="a", enable_auto_commit=commits) as one:
            await read(one, 2)
            await one.getmany(timeout_ms=10)  # the batch is processed
            async with consumer_of(cluster, other, client_id="b") as two:
                polling = [asyncio.ensure_future(polls(each, 40.0)) for each in (one, two)]
                await asyncio.gather(*polling)
                assert one.assignment() | two.assignment() == BOTH
                mine = heartbeats(asked, one.group_metadata().member_id)
                revoked, gave_up = told.when("revoked"), told.when("gave up")
                assert gave_up - revoked == pytest.approx(12.0)
                before = [owned(sent) for when, sent in mine if mine[0][0] < when < gave_up]
                assert len(before) >= 3
                assert set(map(str, before)) <= {"None", "[0, 1]"}
                acknowledged = next(when for when, sent in mine if len(owned(sent) or BOTH) == 1)
                [(_, gone)] = [(when, parts) for when, what, parts in told.log if what == "gave up"]
                got = next(when for when, what, parts in other.log if what == "assigned" and parts == gone)
                order = [revoked, gave_up, acknowledged, got]
                if commits:
                    order.insert(0, asked.of(OffsetCommitRequest)[0][0])
                    assert sorted(cluster.committed("g").values()) == [1, 1]
                assert order == sorted(order)

    virtually(story)


def test_a_join_whose_answer_is_lost_is_repeated_under_the_same_id() -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.intercept(ConsumerGroupHeartbeatRequest, lose_answer(), times=1)
        async with consumer_of(cluster, told) as consumer:
            await shared(consumer)
            joins = [sent for _, sent in heartbeats(asked) if sent.member_epoch == 0]
            assert len(joins) == 2
            assert len({sent.member_id for sent in joins}) == 1
            assert cluster.members("g") == [joins[0].member_id]
            assert told.events == [("assigned", BOTH)]

    virtually(story)


def test_a_static_member_whose_join_answer_is_lost_says_that_it_leaves_and_joins_again() -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.intercept(ConsumerGroupHeartbeatRequest, lose_answer(), times=1)
        async with consumer_of(cluster, told, group_instance_id="i") as consumer:
            await shared(consumer)
            assert [sent.member_epoch for _, sent in heartbeats(asked)][:4] == [0, 0, -2, 0]
            assert told.events == [("assigned", BOTH)]

    virtually(story)


def test_a_new_epoch_whose_answer_is_lost_costs_nothing() -> None:
    """The next heartbeat lists what the member owns, so the coordinator accepts the epoch before its own."""

    async def story(cluster: Cluster) -> None:
        told = Told()
        async with consumer_of(cluster, told, client_id="a") as one:
            await shared(one)
            lost = cluster.intercept(ConsumerGroupHeartbeatRequest, lose_answer(), times=1, where=of_client("a"))
            cluster.bump_epoch("g")
            epoch = one.group_metadata().generation_id
            while one.group_metadata().generation_id == epoch:
                await one.getmany(timeout_ms=100)
            assert lost.hits == 1
            assert told.events == [("assigned", BOTH)]

    virtually(story)


def test_a_revocation_whose_answer_is_lost_is_carried_out() -> None:
    async def story(cluster: Cluster) -> None:
        told = Told()
        async with consumer_of(cluster, told, client_id="a") as one:
            await shared(one)
            lost = cluster.intercept(ConsumerGroupHeartbeatRequest, lose_answer(), times=1, where=of_client("a"))
            async with consumer_of(cluster, client_id="b") as two:
                await shared(one, two)
                assert lost.hits == 1
                assert one.assignment() | two.assignment() == BOTH
                assert "lost" not in [what for what, _ in told.events]

    virtually(story)


def test_a_new_topic_partition_is_read_by_one_of_the_members() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster) as one, consumer_of(cluster) as two:
            await shared(one, two)
            cluster.add_partitions("t", 4)
            await shared(one, two, total=4)
            assert len(one.assignment() | two.assignment()) == 4

    virtually(story)
