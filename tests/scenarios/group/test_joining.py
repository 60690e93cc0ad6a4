"""Joining a group: the order of requests, the parked JoinGroup, and what leader and followers are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc.errors import RequestTimedOut
from aiokc.testing import ApiKey
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, delay, drop

from ..stage import T0, T1, Stage, play, scenario

BOTH = frozenset({T0, T1})
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ("cooperative-sticky",)}


@scenario()
async def test_a_consumer_joins_an_empty_group(stage: Stage) -> None:
    """Given an empty group, when one consumer polls, then FindCoordinator, JoinGroup without a member id, JoinGroup
    with the one that the broker gave it, and SyncGroup follow; nothing is revoked, and it is assigned all partitions.
    """
    async with stage.member("c1").reads() as c1:
        await c1.has(2)
        asked = stage.names("c1", "FindCoordinator", "JoinGroup", "SyncGroup")
        assert asked == ["FindCoordinator", "JoinGroup", "JoinGroup", "SyncGroup"]
        first, second = stage.of("c1", "JoinGroup")
        assert (first.member_id, second.member_id) == ("", c1.member_id)
        assert (c1.owned, c1.told) == (BOTH, ["assigned"])


@scenario()
async def test_a_peer_that_takes_a_minute_to_rejoin_is_waited_for(stage: Stage) -> None:
    """Given a request timeout of 30 s and a peer that holds a batch for 60 s, when the group rebalances, then the
    newcomer's JoinGroup does not time out: it sends one, and the answer comes when the peer has joined.
    """
    stage.cluster.append("t", b"0")
    async with stage.member("c1").reads(until=1) as c1, stage.member("c2") as c2:
        await c1.has_read(1)
        c2.reads()
        await stage.until(lambda: len(stage.of("c2", "JoinGroup")) == 2)
        [_, began] = stage.times("c2", "JoinGroup")
        await asyncio.sleep(60)
        assert c2.told == []
        c1.reads()
        await c2.has(1)
        assert stage.loop.time() - began >= 60
        assert len(stage.of("c2", "JoinGroup")) == 2, "the one without an id, and the one that was parked"


@scenario()
async def test_polls_return_in_their_time_while_the_join_is_parked(stage: Stage) -> None:
    """Given a JoinGroup that the broker parks, when getmany(timeout_ms=100) is called again and again, then each call
    returns after 100 ms, and there is one JoinGroup.
    """
    stage.cluster.append("t", b"0")
    async with stage.member("c1").reads(until=1) as c1, stage.member("c2") as c2:
        await c1.has_read(1)
        for _ in range(100):
            began = stage.loop.time()
            assert await c2.consumer.getmany(timeout_ms=100) == {}
            assert stage.loop.time() - began == pytest.approx(0.1, abs=0.02)
        assert [request.member_id != "" for request in stage.of("c2", "JoinGroup")] == [False, True]
        c1.reads()
        c2.reads()
        await c2.has(1)
        assert len(stage.of("c2", "JoinGroup")) == 2


@pytest.mark.parametrize("options", [{}, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("frozen", [True, False])
def test_a_parked_join_does_not_outlive_its_coordinator(frozen: bool, asked: bool, options: dict[str, Any]) -> None:
    """Given a JoinGroup that a coordinator parks, when the group moves and that broker never answers the JoinGroup
    (it is frozen, and answers nothing; or it only names the new coordinator), then the member joins there before its
    session is over, as the member that it was: nothing is lost. So it is if a call of the application has not had its
    answer in time, and the coordinator is not known any more.
    """

    async def story(stage: Stage) -> None:
        async with stage.member("c1", **options).reads() as c1:
            await c1.has(2)
            member, old = c1.member_id, stage.cluster.coordinator("g")
            parked = stage.cluster.intercept(ApiKey.JOIN_GROUP, drop(), where=lambda exchange: exchange.broker == old)
            c1.consumer.enforce_rebalance()
            await parked.caught()
            if asked:
                stage.cluster.intercept(ApiKey.OFFSET_FETCH, drop(), times=1)
                with pytest.raises(RequestTimedOut):
                    await c1.consumer.committed(T0, timeout_ms=50)
                assert c1.consumer.health().coordinator is None
            moved_at = stage.loop.time()
            stage.cluster.move_coordinator("g")
            if frozen:
                stage.cluster.slow_link(old, latency=1e6)
            told = len(c1.told)
            await stage.until(lambda: "assigned" in c1.told[told:])
            assert stage.loop.time() - moved_at < 45
            assert (c1.member_id, c1.owned) == (member, BOTH)
            assert "lost" not in c1.told

    play(story, brokers=3)


@scenario()
async def test_a_call_with_little_time_ends_no_join(stage: Stage) -> None:
    """Given a JoinGroup that is parked, when calls of the application end before the coordinator has answered them,
    because it needs longer than their timeouts, then the JoinGroup waits on: each one that is sent again in its place
    would make the whole group rebalance once more.
    """
    stage.cluster.append("t", b"0")
    async with stage.member("c1").reads(until=1) as c1, stage.member("c2") as c2:
        await c1.has_read(1)
        c2.reads()
        await stage.until(lambda: len(stage.of("c2", "JoinGroup")) == 2)
        stage.cluster.intercept(ApiKey.OFFSET_FETCH, delay(0.2))
        for _ in range(5):
            with pytest.raises(RequestTimedOut):
                await c2.consumer.committed(T0, timeout_ms=50)
            await asyncio.sleep(1)
        assert len(stage.of("c2", "JoinGroup")) == 2
        c1.reads()
        await stage.until(lambda: len(c1.owned) == len(c2.owned) == 1)
        assert c1.generation == 2
        assert len(stage.of("c2", "JoinGroup")) == 2


def test_a_member_without_brokers_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Given a member that joins again just when its broker goes down, then what the log says of its coordinator comes
    every half minute, and not at each check of a short session.
    """

    async def story(stage: Stage) -> None:
        async with stage.member("c1", session_timeout_ms=6_000).reads() as c1:
            await c1.has(2)
            parked = stage.cluster.intercept(ApiKey.JOIN_GROUP, drop())
            c1.consumer.enforce_rebalance()
            await parked.caught()
            stage.cluster.take_down(1)
            await asyncio.sleep(65)
            assert 1 <= caplog.text.count("is not its coordinator any more") <= 3

    play(story)


@scenario(group_initial_rebalance_delay_ms=3_000)
async def test_two_members_form_a_group(stage: Stage) -> None:
    """Given two members that join within the initial rebalance delay, when both poll, then only the leader is told the
    members, both get their partitions in one generation, and each callback comes before the first record.
    """
    joined: list[Any] = []

    async def listen(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        if answer.error_code == 0:
            joined.append(answer)
        return answer

    stage.cluster.intercept(ApiKey.JOIN_GROUP, listen)
    for number in (0, 1):
        stage.cluster.append("t", b"x", partition=number)
    async with stage.member("c1").reads() as c1, stage.member("c2").reads() as c2:
        await c1.has_read(1)
        await c2.has_read(1)
        assert c1.owned | c2.owned == BOTH
        assert (len(c1.owned), len(c2.owned)) == (1, 1)
        assert [answer.generation_id for answer in joined] == [c1.generation, c2.generation] == [1, 1]
        for answer in joined:
            is_leader = answer.leader == answer.member_id
            assert len(answer.members) == (2 if is_leader else 0)
        for member in (c1, c2):
            assert stage.names(member.name, "assigned", "read")[:2] == ["assigned", "read"]


@scenario()
async def test_an_assignment_of_a_membership_that_is_over_is_not_taken(stage: Stage) -> None:
    """Given a SyncGroup whose answer is late, when a heartbeat is answered meanwhile that the member is unknown, then
    the assignment in the late answer is not used: no callback has it, and the member joins again for a valid one.
    """

    async def expel(exchange: Exchange) -> Any:
        answer = await exchange.handle()
        stage.cluster.expire_member("g")
        await asyncio.sleep(10)
        return answer

    stage.cluster.intercept(ApiKey.SYNC_GROUP, expel, times=1)
    async with stage.member("c1").reads() as c1:
        await stage.until(lambda: len(stage.of("c1", "SyncGroup")) == 2)
        await c1.has(2)
        await asyncio.sleep(20)
        assert c1.told == ["assigned"]
        assert stage.cluster.members("g") == [c1.member_id]
        assert c1.generation == stage.of("c1", "SyncGroup")[-1].generation_id


@scenario()
async def test_heartbeats_begin_before_the_assignment_is_there(stage: Stage) -> None:
    """Given a leader whose SyncGroup takes longer than a session, then a follower that waits for its assignment sends
    heartbeats (from the answer to its JoinGroup on, not only once it is stable), and is not evicted.
    """
    hold = Hold()
    stage.cluster.intercept(
        ApiKey.SYNC_GROUP, hold, times=1, where=lambda exchange: len(exchange.request.assignments) == 2
    )
    patient: dict[str, Any] = {"request_timeout_ms": 120_000}
    async with stage.member("c1", **patient).reads(), stage.member("c2", **patient).reads() as c2:
        await hold.arrived()
        began = len(stage.events)
        await asyncio.sleep(60)
        assert len(stage.of("c2", "Heartbeat", since=began)) >= 18
        assert c2.told == []
        hold.release()
        await c2.has(1)
        assert len(stage.of("c2", "JoinGroup")) == 2
