"""Timeouts of a membership, with the default options: sessions, poll intervals and parked joins in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.errors import CommitFailed
from aiokc.testing import Cluster
from aiokc.testing.faults import drop
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from ...virtually import Asked, virtually

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = frozenset({T0, T1})
#: Fractions of a second for the network and the pauses between attempts.
A_LITTLE = 2.0


class Told(RebalanceListener):
    def __init__(self) -> None:
        self.told: list[tuple[float, str, frozenset[TopicPartition]]] = []

    def _note(self, what: str, partitions: frozenset[TopicPartition]) -> None:
        self.told.append((asyncio.get_running_loop().time(), what, partitions))

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("lost", partitions)


def loop_of_now() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def consumer_of(cluster: Cluster, listener: RebalanceListener | None = None, **options: Any) -> Consumer:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "group_id": "g", **options}
    consumer = Consumer(bootstrap_servers=cluster.bootstrap, **settings)
    consumer.subscribe(["t"], listener=listener)
    return consumer


async def assigned(consumer: Consumer, count: int) -> None:
    while len(consumer.assignment()) != count:
        await consumer.getmany(timeout_ms=100)


@pytest.mark.parametrize(
    "options",
    [
        {"session_timeout_ms": 9_000},  # the rest of the session is 6 s when a heartbeat is sent
        {"session_timeout_ms": 9_000, "heartbeat_interval_ms": 5_000},
        {"request_timeout_ms": 60_000},
    ],
)
def test_a_heartbeat_that_is_never_answered_does_not_cost_the_membership(options: dict[str, Any]) -> None:
    async def story(cluster: Cluster) -> None:
        loop, told = loop_of_now(), Told()
        asked = Asked(cluster, loop)
        async with consumer_of(cluster, told, **options) as consumer:
            await assigned(consumer, 2)
            lost = cluster.intercept(HeartbeatRequest, drop(), times=1)
            await lost.caught()
            joins = len(asked.of(JoinGroupRequest))
            await consumer.getmany(timeout_ms=options.get("session_timeout_ms", 45_000) + 10_000)
            assert consumer.health().generation == 1
            assert len(asked.of(JoinGroupRequest)) == joins
            assert [what for _, what, _ in told.told] == ["assigned"]

    virtually(story)


@pytest.mark.parametrize("call", ["getmany", "getone", "__anext__"])
def test_the_poll_interval_begins_when_a_wait_for_records_is_cancelled(call: str) -> None:
    """An application that waits in a call is polling, for however long. Once it gives up waiting, it is not."""

    async def story(cluster: Cluster) -> None:
        loop, told = loop_of_now(), Told()
        async with consumer_of(cluster, told) as consumer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(getattr(consumer, call)(), 400)
            gave_up = loop.time()
            assert consumer.assignment() == BOTH
            await asyncio.sleep(299)
            assert consumer.assignment() == BOTH
            await asyncio.sleep(2)
            assert consumer.assignment() == frozenset()
            [_, (lost, what, partitions)] = told.told
            assert (what, partitions) == ("lost", BOTH)
            assert lost - gave_up == pytest.approx(300, abs=A_LITTLE)

    virtually(story)


def test_a_member_not_polled_for_max_poll_interval_leaves_and_comes_back_with_the_next_getmany() -> None:
    """Its listener hears of the loss; it has no assignment and cannot commit any more; getmany() raises nothing."""

    async def story(cluster: Cluster) -> None:
        loop, told = loop_of_now(), Told()
        asked = Asked(cluster, loop)
        cluster.append("t", b"one")
        async with consumer_of(cluster, told) as consumer:
            while not (batch := await consumer.getmany(timeout_ms=100)):
                pass
            polled = loop.time()
            await asyncio.sleep(299.0)
            assert asked.of(LeaveGroupRequest) == []
            assert consumer.assignment() == BOTH
            await asyncio.sleep(2.0)
            [(left, leave)] = asked.of(LeaveGroupRequest)
            assert left - polled == pytest.approx(300, abs=A_LITTLE)
            assert "max_poll_interval_ms=300000" in leave.members[0].reason
            assert [(what, partitions) for _, what, partitions in told.told] == [("assigned", BOTH), ("lost", BOTH)]
            assert consumer.assignment() == frozenset()
            beats = [when for when, _ in asked.of(HeartbeatRequest)]
            assert len(beats) >= 95
            assert max(beats) < left + A_LITTLE
            for late in (None, {T0: 1}):
                with pytest.raises(CommitFailed):
                    await consumer.commit(late)
            assert await consumer.getmany(timeout_ms=10_000) == batch
            assert consumer.assignment() == BOTH
            assert [what for _, what, _ in told.told] == ["assigned", "lost", "assigned"]
            await consumer.commit()

    virtually(story)


def test_a_late_commit_fails_also_where_the_last_poll_found_nothing() -> None:
    """The batch before that poll was never committed: a commit() that raises nothing would say that it is stored."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"one")
        async with consumer_of(cluster) as consumer:
            while not await consumer.getmany(timeout_ms=100):
                pass
            assert not await consumer.getmany(timeout_ms=100)
            await asyncio.sleep(301)
            with pytest.raises(CommitFailed):
                await consumer.commit()
            [record] = (await consumer.getmany(timeout_ms=10_000))[T0]
            assert record.value == b"one"

    virtually(story)


def test_a_static_member_that_does_not_poll_falls_silent_and_is_out_after_its_session() -> None:
    async def story(cluster: Cluster) -> None:
        loop = loop_of_now()
        asked = Asked(cluster, loop)
        async with (
            consumer_of(cluster, group_instance_id="idle") as idle,
            consumer_of(cluster, group_instance_id="busy") as busy,
        ):
            while len(idle.assignment()) != 1 or len(busy.assignment()) != 1:
                await asyncio.gather(idle.getmany(timeout_ms=100), busy.getmany(timeout_ms=100))
            polled = loop.time()
            await assigned(busy, 2)
            assert loop.time() - polled == pytest.approx(300 + 45, abs=3 + A_LITTLE)  # 3: its last heartbeat
            assert asked.of(LeaveGroupRequest) == []
            assert idle.assignment() == frozenset()

    virtually(story)


def test_waiting_for_records_is_polling_however_long_it_takes() -> None:
    async def story(cluster: Cluster) -> None:
        told = Told()
        async with consumer_of(cluster, told) as consumer:
            assert await consumer.getmany(timeout_ms=900_000) == {}
            assert [what for _, what, _ in told.told] == ["assigned"]

    virtually(story)


def test_a_peer_that_takes_a_minute_over_its_batch_is_waited_for_with_one_join_group() -> None:
    """The request timeout is 30 s; a JoinGroup is parked until the last member has joined."""

    async def story(cluster: Cluster) -> None:
        loop = loop_of_now()
        cluster.append("t", b"one")
        async with consumer_of(cluster) as slow:
            while not await slow.getmany(timeout_ms=100):
                pass
            asked = Asked(cluster, loop)
            async with consumer_of(cluster) as quick:
                waiting = loop.create_task(assigned(quick, 1))
                began = loop.time()
                await asyncio.sleep(60.0)  # while ``slow`` holds its batch
                assert not waiting.done()
                joins = [when for when, _ in asked.of(JoinGroupRequest)]
                assert len(joins) == 2, "MEMBER_ID_REQUIRED, and the one that is parked"
                assert quick._runtime.membership is not None
                while not waiting.done():
                    await slow.getmany(timeout_ms=100)
                assert loop.time() - began < 60 + A_LITTLE

    virtually(story)


def test_heartbeats_go_on_while_a_batch_is_in_hand_and_stop_while_the_join_is_parked() -> None:
    """A member that is busy for twice its session is not evicted, and a member whose join is parked sends nothing."""

    async def story(cluster: Cluster) -> None:
        loop = loop_of_now()
        cluster.append("t", b"one")
        async with consumer_of(cluster) as busy:
            while not await busy.getmany(timeout_ms=100):
                pass
            member = busy._runtime.membership
            assert member is not None
            name = member.member_id
            async with consumer_of(cluster) as other:
                waiting = loop.create_task(assigned(other, 1))
                await asyncio.sleep(5.0)
                asked = Asked(cluster, loop)
                await asyncio.sleep(90.0)
                beats = [request.member_id for _, request in asked.of(HeartbeatRequest)]
                assert set(beats) == {name}, "the other one is parked"
                assert len(beats) >= 28
                await busy.commit()
                while not waiting.done():
                    await busy.getmany(timeout_ms=100)
                assert member.member_id == name
                assert len(busy.assignment()) == 1

    virtually(story)


def test_a_join_group_without_an_answer_is_given_up_after_the_rebalance_timeout_and_a_margin() -> None:
    async def story(cluster: Cluster) -> None:
        loop = loop_of_now()
        asked = Asked(cluster, loop)
        lost = cluster.intercept(JoinGroupRequest, drop(), times=1, where=lambda exchange: exchange.request.member_id)
        async with consumer_of(cluster, max_poll_interval_ms=120_000) as consumer:
            await assigned(consumer, 2)
        assert lost.hits == 1
        first, second, third, *_ = [when for when, _ in asked.of(JoinGroupRequest)]
        assert second - first < A_LITTLE  # MEMBER_ID_REQUIRED
        assert third - second == pytest.approx(120 + 5, abs=A_LITTLE)

    virtually(story)


def test_a_sync_group_without_an_answer_is_given_up_after_the_request_timeout() -> None:
    async def story(cluster: Cluster) -> None:
        loop = loop_of_now()
        asked = Asked(cluster, loop)
        cluster.intercept(SyncGroupRequest, drop(), times=1)
        async with consumer_of(cluster) as consumer:
            await assigned(consumer, 2)
        first, second = [when for when, _ in asked.of(SyncGroupRequest)]
        assert second - first == pytest.approx(30, abs=A_LITTLE)

    virtually(story)


@pytest.mark.parametrize("seconds", [25, 35, 42])
def test_a_coordinator_that_is_silent_for_most_of_a_session_is_looked_up_anew_and_costs_nothing(seconds: int) -> None:
    """No LeaveGroup, no new generation, and records keep coming; only the coordinator may end the membership.

    The member waits for the first heartbeat's answer until 31 s of the session's 45 are over, for the second's until
    41 s, and so on.
    """

    async def story(cluster: Cluster) -> None:
        loop, told = loop_of_now(), Told()
        async with consumer_of(cluster, told) as consumer:
            await assigned(consumer, 2)
            asked = Asked(cluster, loop)
            silent = cluster.intercept(HeartbeatRequest, drop())
            loop.call_later(seconds, silent.cancel)
            for n in range(60):
                cluster.append("t", b"%d" % n)
                batch = await consumer.getmany(timeout_ms=1_000)
                assert [record.value for record in batch[T0]] == [b"%d" % n]
                await asyncio.sleep(1.0)
            assert silent.hits > 0
            assert asked.of(FindCoordinatorRequest)
            assert asked.of(LeaveGroupRequest) == []
            assert [what for _, what, _ in told.told] == ["assigned"]
            await consumer.commit()

    virtually(story)
