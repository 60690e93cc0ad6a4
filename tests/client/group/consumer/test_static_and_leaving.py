"""Members with an instance id, a rack, or no wish any more: what they say, and what the group makes of it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.errors import MemberFenced
from aiokc.testing import Cluster
from aiokc.testing.faults import disconnect, lose_answer
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest

from ...virtually import virtually
from .group_stories import (
    BOTH,
    Told,
    asked_of,
    consumer_of,
    heartbeats,
    of_client,
    polls,
    read,
    shared,
)

# Racks


@pytest.mark.parametrize(("rack", "said"), [("east", "east"), ("", None), (" ", None)])
def test_the_rack_is_said_when_a_member_joins_and_never_blank(rack: str, said: str | None) -> None:
    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        async with consumer_of(cluster, client_rack=rack) as consumer:
            await shared(consumer)
            cluster.expire_member("g")
            await polls(consumer, 10.0)
            assert consumer.assignment() == BOTH
        sent = [(one.member_epoch == 0, one.rack_id) for _, one in heartbeats(asked)]
        assert [rack_id for joins, rack_id in sent if joins] == [said, said]
        assert {rack_id for joins, rack_id in sent if not joins} == {None}

    virtually(story)


# enforce_rebalance


def test_a_rebalance_that_is_enforced_is_a_heartbeat_at_once_and_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        async with consumer_of(cluster, told) as consumer:
            await shared(consumer)
            await polls(consumer, 1.0)
            before = len(heartbeats(asked))
            consumer.enforce_rebalance("I would like to")
            await polls(consumer, 0.5)
            (sent,) = [one for _, one in heartbeats(asked)[before:]]
            assert (sent.subscribed_topic_names, sent.topic_partitions, sent.rebalance_timeout_ms) == (None, None, -1)
            await polls(consumer, 20.0)
            assert told.events == [("assigned", BOTH)]

    virtually(story)
    (warned,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "can't make its group rebalance" in warned.getMessage()
    assert "I would like to" in warned.getMessage()


# unsubscribe


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_a_member_that_unsubscribes_leaves_and_a_static_one_keeps_its_place(instance: str | None, epoch: int) -> None:
    async def story(cluster: Cluster) -> None:
        asked, told, others = asked_of(cluster), Told(), Told()
        async with (
            consumer_of(cluster, told, group_instance_id=instance, client_id="one") as one,
            consumer_of(cluster, others) as two,
        ):
            await shared(one, two)
            mine, before = one.assignment(), len(others.events)
            member_id = one.group_metadata().member_id
            one.unsubscribe()
            assert one.assignment() == frozenset()
            await polls(two, 10.0)
            assert [sent.member_epoch for _, sent in heartbeats(asked, member_id)][-1] == epoch
            assert told.events[-2:] == [("revoked", mine), ("gave up", mine)]
            assert two.assignment() == (BOTH if instance is None else BOTH - mine)
            assert (len(others.events) == before) is (instance is not None)
            one.subscribe(["t"], listener=told)
            await shared(one, two)
            rejoin = [sent for _, sent in heartbeats(asked, member_id) if sent.member_epoch == 0][1]
            assert (rejoin.topic_partitions, rejoin.subscribed_topic_names) == ([], ["t"])
            assert instance is None or (one.assignment() == mine and len(others.events) == before)

    virtually(story)


def test_a_member_that_subscribes_again_at_once_has_never_left() -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        async with consumer_of(cluster, told) as consumer:
            await shared(consumer)
            before = len(heartbeats(asked))
            consumer.unsubscribe()
            consumer.subscribe(["t"], listener=told)
            await polls(consumer, 20.0)
            assert consumer.assignment() == BOTH
            said = [sent for _, sent in heartbeats(asked)[before:]]
            assert {sent.member_epoch for sent in said} == {consumer.group_metadata().generation_id}
            assert [sent.subscribed_topic_names for sent in said if sent.subscribed_topic_names is not None] == []
            assert [what for what, _ in told.events] == ["assigned", "revoked", "gave up", "assigned"]

    virtually(story)


# Static members


def test_a_static_member_whose_first_answer_is_lost_is_not_locked_out() -> None:
    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        cluster.intercept(ConsumerGroupHeartbeatRequest, lose_answer(), times=1)
        async with consumer_of(cluster, group_instance_id="i") as consumer:
            began = asyncio.get_running_loop().time()
            await shared(consumer)
            assert asyncio.get_running_loop().time() < began + 30.0, "sooner than a session ends"
            assert [sent.member_epoch for _, sent in heartbeats(asked)][:4] == [0, 0, -2, 0]

    virtually(story)


def test_a_second_consumer_of_a_live_instance_is_refused_and_the_first_one_reads_on() -> None:
    async def story(cluster: Cluster) -> None:
        told = Told()
        async with consumer_of(cluster, told, group_instance_id="i") as first:
            await shared(first)
            async with consumer_of(cluster, group_instance_id="i") as second:
                with pytest.raises(MemberFenced, match="another consumer with the same group_instance_id is in it"):
                    await second.getmany()
            cluster.append("t", b"one")
            assert await read(first, 1) == [b"one"]
            assert told.events == [("assigned", BOTH)]

    virtually(story)


def test_a_member_whose_instance_another_consumer_has_taken_over_never_joins_again_by_itself() -> None:
    """The first one had left by -2 when the second one came; then an answer of its own tells it so."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        async with consumer_of(cluster, told, group_instance_id="i", client_id="first") as first:
            await shared(first)
            member_id = first.group_metadata().member_id
            cluster.intercept(
                ConsumerGroupHeartbeatRequest, ErrorCode.FENCED_INSTANCE_ID, times=1, where=of_client("first")
            )
            with pytest.raises(MemberFenced, match="another consumer joined with the same group_instance_id"):
                await polls(first, 30.0)
            said = len(heartbeats(asked, member_id))
            await asyncio.sleep(60.0)
            assert len(heartbeats(asked, member_id)) <= said + 1, "its farewell at most"
            assert told.events[-1] == ("lost", BOTH)

    virtually(story)


def test_a_static_member_that_is_not_polled_parks_its_partitions_and_finds_them_again() -> None:
    async def story(cluster: Cluster) -> None:
        asked, told, others = asked_of(cluster), Told(), Told()
        async with (
            consumer_of(cluster, told, group_instance_id="i", max_poll_interval_ms=20_000) as slow,
            consumer_of(cluster, others) as other,
        ):
            await shared(slow, other)
            mine, member_id = slow.assignment(), slow.group_metadata().member_id
            before = list(others.events)
            await polls(other, 30.0)
            assert -2 in [sent.member_epoch for _, sent in heartbeats(asked, member_id)]
            assert told.events[-1] == ("lost", mine)
            await shared(slow, other)
            assert slow.assignment() == mine
            assert others.events == before

    virtually(story)


@pytest.mark.parametrize("taken", [False, True], ids=["still its place", "taken by another process"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_static_member_that_is_not_polled_can_leave_for_good_but_not_in_anothers_place(
    protocol: str, taken: bool
) -> None:
    async def story(cluster: Cluster) -> None:
        told = Told()
        options: dict[str, Any] = {"group_instance_id": "i", "group_protocol": protocol}
        async with AsyncExitStack() as others:
            slow = await others.enter_async_context(consumer_of(cluster, told, max_poll_interval_ms=20_000, **options))
            await shared(slow)
            member_id = slow.group_metadata().member_id
            await asyncio.sleep(30.0)
            assert told.events[-1] == ("lost", BOTH)
            assert cluster.members("g") == [member_id], "until its session ends"
            if taken:
                other = await others.enter_async_context(consumer_of(cluster, **options))
                await shared(other)
            await slow.stop(leave=True)
            assert cluster.members("g") == ([other.group_metadata().member_id] if taken else [])

    virtually(story)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", [disconnect(), ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_static_member_whose_goodbye_is_lost_comes_back_all_the_same(fault: Any, times: int) -> None:
    """The coordinator still has the instance in the group, and would refuse it until its session ends. The goodbye that
    is said again may be lost, too.
    """

    async def story(cluster: Cluster) -> None:
        told = Told()
        async with consumer_of(cluster, told, group_instance_id="i") as consumer:
            await shared(consumer)
            api = ConsumerGroupHeartbeatRequest
            lost = cluster.intercept(
                api, fault, times=times, where=lambda exchange: exchange.request.member_epoch == -2
            )
            consumer.unsubscribe()
            await lost.caught()
            await asyncio.sleep(1.0)  # the application does something else, and the join is not lost, too
            consumer.subscribe(["t"], listener=told)
            await shared(consumer)

    virtually(story)
