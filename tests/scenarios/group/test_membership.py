"""Staying a member: static members, fencing, missing heartbeats or answers, and errors that come too late."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.errors import CommitFailed, MemberFenced
from aiokc.testing import ApiKey
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import delay, drop

from ..stage import T0, T1, Stage, play, scenario

BOTH = frozenset({T0, T1})


@scenario()
async def test_a_static_follower_restarts(stage: Stage) -> None:
    """Given a static follower, when it is stopped and started again with the same instance id within the session
    timeout, then no LeaveGroup is sent, the group's generation stays, and it gets the partitions that it had.
    """
    static = {"group_instance_id": "two"}
    async with stage.member("c1", group_instance_id="one").reads() as c1:
        async with stage.member("c2", **static).reads() as c2:
            await stage.until(lambda: len(c1.owned) == len(c2.owned) == 1)
            held, generation, told = c2.owned, c2.generation, list(c1.told)
        await asyncio.sleep(30)
        assert stage.names("c2", "LeaveGroup") == []
        async with stage.member("c2 again", **static).reads() as again:
            await again.has(1)
            assert (again.owned, again.generation) == (held, generation)
            assert (c1.told, c1.generation) == (told, generation)


@pytest.mark.parametrize("goes", ["stop", "unsubscribe"])
def test_a_member_that_goes_at_once_does_not_hold_up_the_next_rebalance(goes: str) -> None:
    """Given a consumer that stops, or unsubscribes, while its first JoinGroup is on the way, when another one joins,
    then the rebalance does not wait for the first one's session to end: it has left under the id that it was given.
    """

    async def story(stage: Stage) -> None:
        async with stage.member("c1").reads() as c1:
            await c1.has(2)
            joining = stage.cluster.intercept(ApiKey.JOIN_GROUP, delay(0.01))
            async with stage.consumer("t", group_id="g", client_id="brief") as brief:
                await joining.caught()
                if goes == "unsubscribe":
                    brief.unsubscribe()
                    await stage.until(lambda: bool(stage.of("brief", "LeaveGroup")))
            assert [request.member_id for request in stage.of("brief", "JoinGroup")] == [""]
            assert len(stage.of("brief", "LeaveGroup")) == 1
            began = stage.loop.time()
            async with stage.member("c2").reads() as c2:
                await stage.until(lambda: len(c1.owned) == len(c2.owned) == 1)
                assert stage.loop.time() - began < 10

    play(story)


@scenario()
async def test_the_wait_for_the_member_id_is_part_of_the_time_for_leaving(stage: Stage) -> None:
    """Given a coordinator that is slow to answer the first JoinGroup, and never answers a LeaveGroup, when the consumer
    stops meanwhile, then it waits for both together as long as it would for the LeaveGroup alone.
    """
    joining = stage.cluster.intercept(ApiKey.JOIN_GROUP, delay(1.4))
    stage.cluster.intercept(ApiKey.LEAVE_GROUP, drop())
    consumer = stage.consumer("t", group_id="g", client_id="brief")
    await consumer.start()
    await joining.caught()
    began = stage.loop.time()
    await consumer.stop()
    assert stage.loop.time() - began == pytest.approx(2, abs=0.1)
    assert len(stage.of("brief", "LeaveGroup")) == 1


@scenario()
async def test_stopping_waits_for_no_answer_while_no_coordinator_is_found(stage: Stage) -> None:
    """Given a cluster that has no coordinator for the group, when the consumer stops, then it takes no time."""
    looking = stage.cluster.intercept(ApiKey.FIND_COORDINATOR, lambda _: ErrorCode.COORDINATOR_NOT_AVAILABLE)
    consumer = stage.consumer("t", group_id="g", client_id="brief")
    await consumer.start()
    await looking.caught(3)
    began = stage.loop.time()
    await consumer.stop()
    assert stage.loop.time() - began < 0.5


@scenario()
async def test_a_second_consumer_with_the_same_instance_id_fences_the_first(stage: Stage) -> None:
    """Given two consumers with one group_instance_id, when the second joins, then the first one's next poll raises
    MemberFenced, and it sends no more heartbeats.
    """
    async with stage.member("c1", group_instance_id="x") as c1:
        assert await c1.consumer.getmany(timeout_ms=5_000) == {}
        assert c1.owned == BOTH
        stage.owners.clear()  # the first member can't know yet that it has lost them
        async with stage.member("c2", group_instance_id="x").reads() as c2:
            await c2.has(2)
            await asyncio.sleep(10)
            with pytest.raises(MemberFenced):
                await c1.consumer.getmany(timeout_ms=0)
            silent = len(stage.events)
            await asyncio.sleep(30)
            assert stage.names("c1", "Heartbeat", since=silent) == []
            assert stage.names("c2", "Heartbeat", since=silent)


@scenario()
async def test_an_application_that_does_not_poll_leaves_the_group(stage: Stage) -> None:
    """Given an application that does not poll for max_poll_interval_ms while heartbeats flow, then the member leaves,
    partitions are lost at that moment (Java calls back in the next poll), and the next poll joins again.
    """
    stage.cluster.append("t", b"0")
    async with stage.member("c1").reads(until=1) as c1:
        await c1.has_read(1)
        await asyncio.sleep(299)
        assert stage.names("c1", "LeaveGroup") == []
        assert len(stage.names("c1", "Heartbeat")) >= 95
        await asyncio.sleep(5)
        [leave] = stage.of("c1", "LeaveGroup")
        assert "max_poll_interval_ms" in leave.members[0].reason
        assert c1.told == ["assigned", "lost"]
        c1.reads()
        await c1.has(2)
        assert c1.told == ["assigned", "lost", "assigned"]
        assert stage.of("c1", "JoinGroup")[-2].member_id == ""


@scenario(brokers=2)
async def test_a_coordinator_that_falls_silent_is_looked_up_anew(stage: Stage) -> None:
    """Given a coordinator that stops answering heartbeats, when the session timeout has passed, then it is looked up
    again, with no LeaveGroup and in the same generation; it still knows the member, so records never stop.
    """
    async with stage.member("c1").reads() as c1:
        await c1.has(2)
        before = len(stage.events)
        silence = stage.cluster.intercept(ApiKey.HEARTBEAT, drop(), times=1)
        for number in range(60):
            stage.cluster.append("t", b"%d" % number)
            await asyncio.sleep(1)
            assert len(c1.read) == number + 1
        assert silence.hits == 1
        assert stage.names("c1", "FindCoordinator", "LeaveGroup", "JoinGroup", since=before) == ["FindCoordinator"]
        assert stage.names("c1", "Heartbeat", since=before)
        assert (c1.told, c1.generation) == (["assigned"], 1)


@scenario(brokers=2)
async def test_silence_is_measured_by_the_session_and_not_by_the_request(stage: Stage) -> None:
    """Given a request timeout longer than the session, when heartbeats are not answered, then the coordinator is looked
    up after two thirds of what is left of the session, so that another heartbeat may still be in time.

    Java's member waits until the session is over: one lost request costs it its membership.
    """
    async with stage.member("c1", request_timeout_ms=120_000).reads() as c1:
        await c1.has(2)
        await asyncio.sleep(60)
        answered = stage.times("c1", "Heartbeat")[-1]
        before = len(stage.events)
        silence = stage.cluster.intercept(ApiKey.HEARTBEAT, drop(), times=1)
        await stage.until(lambda: bool(stage.names("c1", "FindCoordinator", since=before)))
        [unanswered] = stage.times("c1", "Heartbeat", since=before)
        [looked_up] = stage.times("c1", "FindCoordinator", since=before)
        assert unanswered - answered == pytest.approx(3, abs=0.1)
        assert looked_up - unanswered == pytest.approx((45 - 3) * 2 / 3, abs=0.2)
        assert silence.hits == 1


@scenario()
async def test_a_busy_application_is_not_evicted_while_the_group_rebalances(stage: Stage) -> None:
    """Given heartbeats answered REBALANCE_IN_PROGRESS while the application is busy for two session timeouts, then the
    heartbeats go on, the member stays, and its next poll sends JoinGroup; while that is parked, it sends none.
    """
    stage.cluster.append("t", b"0")
    async with stage.member("c1").reads(until=1) as c1, stage.member("c2").reads() as c2:
        await c1.has_read(1)
        await stage.until(lambda: len(stage.of("c2", "JoinGroup")) == 2)
        member_id, busy = c1.member_id, len(stage.events)
        await asyncio.sleep(90)
        assert len(stage.names("c1", "Heartbeat", since=busy)) >= 28
        assert stage.names("c2", "Heartbeat") == [], "its JoinGroup is parked"
        assert stage.names("c1", "JoinGroup", since=busy) == []
        c1.reads()
        await stage.until(lambda: len(c1.owned) == len(c2.owned) == 1)
        assert c1.member_id == member_id
        assert stage.names("c1", "LeaveGroup") == []


@scenario()
async def test_a_heartbeat_error_of_an_old_generation_is_ignored(stage: Stage) -> None:
    """Given ILLEGAL_GENERATION for a heartbeat of generation 1 that arrives when the member is in generation 2, then
    the member ignores it.
    """
    released = asyncio.Event()

    async def late(exchange: Exchange) -> Any:
        await released.wait()
        return ErrorCode.ILLEGAL_GENERATION

    async with stage.member("c1").reads() as c1:
        await c1.has(2)
        held = stage.cluster.intercept(ApiKey.HEARTBEAT, late, times=1)
        await held.caught()
        c1.consumer.enforce_rebalance("the heartbeat of generation 1 is to come too late")
        await stage.until(lambda: c1.generation == 2)
        released.set()
        before = len(stage.events)
        await asyncio.sleep(60)
        assert stage.names("c1", "JoinGroup", "lost", since=before) == []
        assert (c1.generation, stage.cluster.members("g")) == (2, [c1.member_id])
        assert "lost" not in c1.told


@scenario()
async def test_a_member_that_the_coordinator_does_not_know_has_lost_its_partitions(stage: Stage) -> None:
    """Given UNKNOWN_MEMBER_ID for a heartbeat of the current generation, then the member is told at once, whether it
    polls or not (Java: in the next poll), that its partitions are lost, not revoked, and joins with an empty member id.
    """
    async with stage.member("c1").reads() as c1:
        await c1.has(2)
        await c1.rests()
        first, before = c1.member_id, len(stage.events)
        assert stage.cluster.expire_member("g") == first
        await stage.until(lambda: c1.told == ["assigned", "lost", "assigned"])
        assert stage.of("c1", "JoinGroup", since=before)[0].member_id == ""
        assert c1.member_id != first


@scenario()
async def test_a_zombie_does_not_overwrite_what_the_group_has_committed_since(stage: Stage) -> None:
    """Given a member that the group has evicted while it was busy with its batch, when it commits, then CommitFailed,
    the newer offset of the group stays, and the member joins again with a fresh id. (A blocked loop alone does not get
    it evicted, as it would in other clients: a thread sends the heartbeats then.)
    """
    stage.cluster.append("t", b"0", b"1", b"2")
    async with stage.member("c1", max_poll_records=1).reads(until=1) as c1, stage.member("c2").reads(until=3) as c2:
        await c1.has_read(1)
        first = c1.member_id
        stage.owners.clear()  # the evicted member does not know yet
        stage.cluster.expire_member("g")
        await c2.has_read(3)
        await c2.consumer.commit()
        with pytest.raises(CommitFailed):
            await c1.consumer.commit()
        assert stage.cluster.committed("g")[T0] == 3
        c2.reads()
        c1.reads()
        await stage.until(lambda: len(c1.owned) == len(c2.owned) == 1)
        assert c1.member_id not in ("", first)
        assert stage.cluster.committed("g")[T0] == 3


@scenario(brokers=3)
async def test_a_coordinator_moves_and_has_to_load(stage: Stage) -> None:
    """Given a coordinator that moves and has to load the group first, then after COORDINATOR_LOAD_IN_PROGRESS the
    member asks the same node again, after NOT_COORDINATOR it looks the coordinator up, and it stays in its generation
    with no commit lost; it notices a closed socket at once.
    """
    stage.cluster.append("t", *(b"%d" % number for number in range(10)))
    async with stage.member("c1", max_poll_records=1).reads(until=1) as c1:
        await c1.has_read(1)
        before = len(stage.events)
        stage.cluster.move_coordinator("g", loading=5)
        began = stage.loop.time()
        await c1.consumer.commit()
        assert 5 <= stage.loop.time() - began < 5 + 3
        assert stage.cluster.committed("g")[T0] == 1
        asked = stage.names("c1", "OffsetCommit", "FindCoordinator", since=before)
        assert asked.count("FindCoordinator") == 1, "loading is a matter of patience"
        assert asked.count("OffsetCommit") > 2
        c1.reads(until=2)
        await c1.has_read(2)
        stage.cluster.take_down(stage.cluster.coordinator("g"))
        began = stage.loop.time()
        await c1.consumer.commit()
        assert stage.loop.time() - began < 5
        assert stage.cluster.committed("g")[T0] == 2
        assert (c1.told, c1.generation) == (["assigned"], 1)
        assert stage.names("c1", "JoinGroup", "LeaveGroup", since=before) == []


@scenario(topics={"t": 2})
async def test_surplus_members_stay_and_do_not_spin(stage: Stage) -> None:
    """Given more members than partitions, then those without partitions stay members, and for a minute they send a
    heartbeat every three seconds, and nothing else; the others fetch too. No call for records raises an error.
    """
    async with stage.member("c1") as c1, stage.member("c2") as c2, stage.member("c3") as c3, stage.member("c4") as c4:
        members = [c1.reads(), c2.reads(), c3.reads(), c4.reads()]
        await stage.until(
            lambda: (
                sorted(len(member.owned) for member in members) == [0, 0, 1, 1]
                and len({member.generation for member in members}) == 1
            )
        )
        await asyncio.sleep(5)
        generation, begins = c1.generation, len(stage.events)
        await asyncio.sleep(60)
        for member in members:
            asked = Counter(event.what for event in stage.events[begins:] if event.who == member.name)
            assert 19 <= asked.pop("Heartbeat") <= 21
            assert (asked.pop("Fetch", 0) > 0) == bool(member.owned)
            assert not asked
            assert (member.errors, member.generation) == ([], generation)
