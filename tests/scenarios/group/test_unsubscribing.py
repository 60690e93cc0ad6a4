"""Unsubscribing and subscribing during a rebalance: each partition has a reader, and the group does not wait."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Any

import pytest

from aiokc import ErrorCode, TopicPartition
from aiokc.core.group.classic.transitions import State
from aiokc.errors import CommitFailed
from aiokc.testing import ApiKey
from aiokc.testing.faults import Hold, lose_answer

from ..stage import NEVER, T0, Member, Stage, play, scenario
from .test_rebalancing import COOPERATIVE, EAGER, fill

FOUR = {TopicPartition("t", number) for number in range(4)}
U0 = TopicPartition("u", 0)


class Slow:
    """A listener's callback (the method of this name) that takes until ``gate`` is open."""

    def __init__(self, member: Member, name: str) -> None:
        self.entered, self.gate = asyncio.Event(), asyncio.Event()
        self._plain = getattr(member, name)
        setattr(member, name, self._called)

    def _called(self, partitions: frozenset[TopicPartition]) -> Coroutine[Any, Any, Any]:
        self._plain(partitions)
        self.entered.set()
        return self.gate.wait()


async def until(member: Member, state: State, after: int = -2) -> None:
    """Wait until the member is in this state of its membership, and in a generation later than ``after``."""
    membership = member.consumer._runtime.membership
    assert membership is not None
    async with asyncio.timeout(NEVER):
        while membership._machine.state is not state or membership.generation <= after:  # type: ignore[attr-defined]
            await membership.moved.wait()


@scenario(topics={"t": 4})
async def test_unsubscribing_and_subscribing_in_a_cooperative_revocation_leaves_nothing_unread(stage: Stage) -> None:
    """Given a COOPERATIVE c1 that is to revoke two of its 4 partitions and whose application holds records, when the
    application unsubscribes and subscribes again, then it reads what c1 claims to own, and each partition has a reader.
    """
    fill(stage, 10, 4)
    async with stage.member("c1", **COOPERATIVE) as c1:
        c1.took(await c1.consumer.getmany(max_records=1_000))
        async with stage.member("c2", **COOPERATIVE).reads() as c2:
            await until(c1, State.REVOKING)
            c1.consumer.unsubscribe()
            c1.consumer.subscribe(["t"], listener=c1)
            c1.reads()
            await stage.until(lambda: len(c1.owned) == len(c2.owned) == 2)
            fill(stage, 5, 4)
            await stage.until(lambda: {tp for tp, offset in c1.read + c2.read if offset >= 10} == FOUR)


@scenario(topics={"t": 2})
async def test_a_listener_that_unsubscribes_and_subscribes_reads_all_that_it_owns(stage: Stage) -> None:
    """Given a COOPERATIVE c1, when its on_partitions_revoked unsubscribes and subscribes again, then as above."""
    c1 = stage.member("c1", **COOPERATIVE)
    plain = c1.on_partitions_revoked
    told: list[frozenset[TopicPartition]] = []

    def revoked(partitions: frozenset[TopicPartition]) -> None:
        plain(partitions)
        if not told:
            told.append(partitions)
            c1.consumer.unsubscribe()
            c1.consumer.subscribe(["t"], listener=c1)

    c1.on_partitions_revoked = revoked  # type: ignore[method-assign]
    async with c1.reads():
        await c1.has(2)
        async with stage.member("c2", **COOPERATIVE).reads() as c2:
            await stage.until(lambda: bool(told) and len(c1.owned) == len(c2.owned) == 1)
            fill(stage, 5, 2)
            await stage.until(lambda: len(c1.read) + len(c2.read) == 10)


@pytest.mark.parametrize("auto_commit", [True, False])
def test_the_group_does_not_wait_for_an_application_that_unsubscribes_during_a_revocation(auto_commit: bool) -> None:
    """Given an EAGER c1 whose application holds records while c2 joins, when the application unsubscribes, then c2 gets
    all partitions at once, and c1 is told of revoked and not of lost.
    """

    @scenario(topics={"t": 2})
    async def story(stage: Stage) -> None:
        fill(stage, 10, 2)
        options = {**EAGER, "enable_auto_commit": auto_commit, "max_poll_records": 5}
        async with stage.member("c1", **options) as c1:
            for _ in range(2):
                c1.took(await c1.consumer.getmany())
            await asyncio.sleep(12)  # long enough for all auto-commits
            async with stage.member("c2", **options).reads() as c2:
                await until(c1, State.REVOKING)
                began = stage.loop.time()
                c1.consumer.unsubscribe()
                await c2.has(2)
                assert stage.loop.time() - began < 5
                assert c1.told == ["assigned", "revoked"]

    story()


@scenario(topics={"t": 2, "u": 1})
async def test_a_topic_that_is_dropped_and_taken_back_while_its_assignment_waits_is_read(stage: Stage) -> None:
    """Given a slow on_partitions_assigned, an assignment of u-0 that waits for it, and a group that rebalances again,
    when the application drops u, that assignment is carried out, and the application subscribes to u again, then u-0 is
    read: the member owned it all the time.
    """
    c1 = stage.member("c1", "t", **COOPERATIVE)
    slow = Slow(c1, "on_partitions_assigned")
    slow.gate.set()
    async with c1.reads():
        await c1.has(2)
        await until(c1, State.STABLE)
        slow.gate.clear()
        slow.entered.clear()
        c1.consumer.enforce_rebalance()
        await slow.entered.wait()
        generation = c1.generation
        c1.consumer.subscribe(["t", "u"], listener=c1)
        await until(c1, State.STABLE, after=generation)
        hold = Hold()
        stage.cluster.intercept(ApiKey.JOIN_GROUP, hold, times=1)
        c1.consumer.enforce_rebalance()
        await hold.arrived()
        c1.consumer.subscribe(["t"], listener=c1)
        slow.gate.set()
        await asyncio.sleep(1)
        c1.consumer.subscribe(["t", "u"], listener=c1)
        hold.release()
        stage.cluster.append("u", b"0")
        await stage.until(lambda: (U0, 0) in c1.read)


@scenario(topics={"t": 1})
async def test_partitions_given_up_and_then_lost_are_not_committed(stage: Stage) -> None:
    """Given a c1 that has unsubscribed and whose listener is slow, when the group expires it and c2 comes, reads and
    commits everything, then c1's commit() of its old offsets raises CommitFailed, though it is no longer in a group.
    """
    fill(stage, 10, 1)
    c1 = stage.member("c1", **EAGER)
    slow = Slow(c1, "on_partitions_revoked")
    async with c1:
        c1.took(await c1.consumer.getmany(max_records=2))
        c1.consumer.unsubscribe()
        await slow.entered.wait()
        stage.cluster.expire_member("g", c1.member_id)
        await asyncio.sleep(10)
        assert c1.generation == -1
        async with stage.member("c2", **EAGER) as c2:
            c2.took(await c2.consumer.getmany())
            await c2.consumer.commit()
        with pytest.raises(CommitFailed):
            await c1.consumer.commit()
        slow.gate.set()
        assert stage.cluster.committed("g") == {T0: 10}


@scenario(topics={"t": 1})
async def test_the_group_does_not_wait_for_an_application_that_assigns_the_same_partition_by_hand(stage: Stage) -> None:
    """Given a c1 whose on_partitions_assigned is slow, when its application unsubscribes, calls assign() with the same
    partition, and holds records of it, then the group does not wait for the application.
    """
    fill(stage, 10, 1)
    c1 = stage.member("c1", **EAGER)
    slow = Slow(c1, "on_partitions_assigned")
    async with c1:
        await slow.entered.wait()
        c1.consumer.unsubscribe()
        c1.consumer.assign([T0])
        assert await c1.consumer.getmany()
        async with stage.member("c2", **EAGER).reads() as c2:
            slow.gate.set()
            await c2.has(1)
            assert c1.told == ["assigned", "revoked"]
            assert stage.names("c1", "LeaveGroup")


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
def test_a_static_member_that_unsubscribes_and_subscribes_causes_no_rebalance_of_others(
    protocol: dict[str, Any], is_leader: bool
) -> None:
    """Given two static members, when one unsubscribes and subscribes to the same topics in one step, then it revokes
    its partitions and gets them back, and the other one notices nothing.
    """

    @scenario(topics={"t": 4})
    async def story(stage: Stage) -> None:
        async with (
            stage.member("c1", group_instance_id="one", **protocol).reads() as c1,
            stage.member("c2", group_instance_id="two", **protocol).reads() as c2,
        ):
            await stage.until(lambda: len(c1.owned) == len(c2.owned) == 2)
            await asyncio.sleep(10)
            back, other = (c1, c2) if is_leader else (c2, c1)
            held, told, generation = back.owned, list(other.told), other.generation
            back.consumer.unsubscribe()
            back.consumer.subscribe(["t"], listener=back)
            assert back.consumer.assignment() == frozenset()
            await stage.until(lambda: back.told[-2:] == ["revoked", "assigned"])
            await asyncio.sleep(30)
            assert (back.owned, back.generation) == (held, generation)
            assert (other.told, other.generation) == (told, generation)
            fill(stage, 5, 4)
            await stage.until(lambda: len(c1.read) + len(c2.read) == 20)

    story()


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("change", ["grown", "recreated"])
def test_a_static_leader_that_was_away_sees_what_changed_meanwhile(protocol: dict[str, Any], change: str) -> None:
    """Given a static leader that has unsubscribed, when the partitions of its topic change and it subscribes to the
    same topic again, then the group rebalances, although its coordinator keeps the assignment for it (KIP-814).
    """

    @scenario(topics={"t": 2})
    async def story(stage: Stage) -> None:
        async with stage.member("c1", group_instance_id="one", **protocol).reads() as c1:
            await stage.until(lambda: len(c1.owned) == 2)
            c1.consumer.unsubscribe()
            await stage.until(lambda: c1.told[-1] == "revoked")
            if change == "recreated":
                stage.cluster.delete_topic("t")
                stage.cluster.create_topic("t", 4)
            else:
                stage.cluster.add_partitions("t", 4)
            fill(stage, 5, 4)
            c1.consumer.subscribe(["t"], listener=c1)
            c1.reads()
            await c1.has_read(20)
            assert c1.owned == FOUR

    story()


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
@pytest.mark.parametrize("wanted", [["t", "u"], re.compile("t|u")], ids=["names", "pattern"])
def test_a_static_member_that_comes_back_later_with_other_topics_gets_them(
    protocol: dict[str, Any], is_leader: bool, wanted: Any
) -> None:
    """Given two static members, when one unsubscribes and, within the session timeout, subscribes to another topic as
    well, then the group rebalances and every partition of both topics has a reader.
    """

    @scenario(topics={"t": 4, "u": 1})
    async def story(stage: Stage) -> None:
        async with (
            stage.member("c1", group_instance_id="one", **protocol).reads() as c1,
            stage.member("c2", group_instance_id="two", **protocol).reads() as c2,
        ):
            await stage.until(lambda: len(c1.owned) == len(c2.owned) == 2)
            await asyncio.sleep(10)
            back = c1 if is_leader else c2
            back.consumer.unsubscribe()
            await stage.until(lambda: back.told[-1] == "revoked")
            await asyncio.sleep(1)
            back.consumer.subscribe(wanted, listener=back)
            back.reads()
            await stage.until(lambda: c1.owned | c2.owned == {*FOUR, U0})

    story()


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
def test_a_static_member_whose_return_was_not_answered_gets_other_topics(
    protocol: dict[str, Any], is_leader: bool
) -> None:
    """Given two static members, one of which comes back, and the answer with its new member id is lost, when its
    application then subscribes to another topic as well, then the group does not fence it for its former member id, and
    every partition of both topics has a reader.
    """

    @scenario(topics={"t": 4, "u": 1})
    async def story(stage: Stage) -> None:
        async with (
            stage.member("c1", group_instance_id="one", **protocol).reads() as c1,
            stage.member("c2", group_instance_id="two", **protocol).reads() as c2,
        ):
            await stage.until(lambda: len(c1.owned) == len(c2.owned) == 2)
            await asyncio.sleep(10)
            back = c1 if is_leader else c2
            back.consumer.unsubscribe()
            await stage.until(lambda: back.told[-1] == "revoked")
            lost = stage.cluster.intercept(ApiKey.JOIN_GROUP, lose_answer(), times=1)
            back.consumer.subscribe(["t"], listener=back)
            await lost.caught()
            back.consumer.subscribe(["t", "u"], listener=back)
            back.reads()
            await stage.until(lambda: c1.owned | c2.owned == {*FOUR, U0})

    story()


@pytest.mark.parametrize("static", [{}, {"group_instance_id": "x"}], ids=["dynamic", "static"])
def test_what_has_unsubscribed_joins_no_group_afterwards(static: dict[str, Any]) -> None:
    """Given a consumer whose group has no coordinator yet, when the application unsubscribes and the coordinator is
    found only then, then no JoinGroup is sent: the group would wait for that member until its session is over.
    """

    async def story(stage: Stage) -> None:
        looking = stage.cluster.intercept(ApiKey.FIND_COORDINATOR, lambda _: ErrorCode.COORDINATOR_NOT_AVAILABLE)
        async with stage.consumer("t", group_id="g", client_id="x", **static) as consumer:
            await looking.caught(3)
            consumer.unsubscribe()
            looking.cancel()
            await asyncio.sleep(10)
            assert stage.of("x", "JoinGroup") == []
            assert stage.cluster.members("g") == []

    play(story)


@scenario()
async def test_subscribing_and_unsubscribing_at_once_sends_nothing(stage: Stage) -> None:
    """Given a consumer that has its connections, and has left its group, when the application subscribes and
    unsubscribes before the event loop goes on, then no JoinGroup is sent, whose answer nobody would take.
    """
    async with stage.consumer("t", group_id="g", client_id="x") as consumer:
        await consumer.wait_assigned()
        consumer.unsubscribe()
        await stage.until(lambda: bool(stage.of("x", "LeaveGroup")))
        before = len(stage.events)
        consumer.subscribe("t")
        consumer.unsubscribe()
        await asyncio.sleep(10)
        assert stage.names("x", "JoinGroup", since=before) == []
