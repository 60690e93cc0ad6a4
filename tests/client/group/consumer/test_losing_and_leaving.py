"""Members that are fenced, forgotten or too slow, and members that leave: what the user and the group hear."""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.errors import CommitFailed
from aiokc.testing import Cluster
from aiokc.testing.faults import Hold, drop
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest
from tests.suite.unused_faults import may_be_unused

from ...virtually import virtually
from .group_stories import BOTH, T0, T1, Told, asked_of, consumer_of, heartbeats, of_client, polls, read, shared


@pytest.mark.parametrize("fault", ["fence_member", "expire_member"])
def test_a_member_that_is_fenced_or_forgotten_loses_all_once_and_goes_on_from_the_commit(fault: str) -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one", b"two")
        async with consumer_of(cluster, told, max_poll_records=1) as consumer:
            assert await read(consumer, 1) == [b"one"]
            await consumer.commit()
            assert await read(consumer, 1) == [b"two"]  # read, and not committed
            member_id = consumer.group_metadata().member_id
            assert getattr(cluster, fault)("g") == member_id
            assert await read(consumer, 1) == [b"two"]
            assert told.events == [("assigned", BOTH), ("lost", BOTH), ("assigned", BOTH)]
            rejoin = [sent for _, sent in heartbeats(asked) if sent.member_epoch == 0][1]
            assert (rejoin.member_id, rejoin.topic_partitions) == (member_id, [])

    virtually(story)


def test_a_commit_of_a_forgotten_member_fails() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"one")
        async with consumer_of(cluster) as consumer:
            await read(consumer, 1)
            cluster.expire_member("g")
            with pytest.raises(CommitFailed):
                await consumer.commit()
            assert cluster.committed("g") == {}
            assert await read(consumer, 1) == [b"one"]  # the refused commit is a reason to ask the coordinator at once
            await consumer.commit()

    virtually(story)


def test_a_member_that_does_not_poll_leaves_and_comes_back_with_the_next_call() -> None:
    async def story(cluster: Cluster) -> None:
        loop, asked, told = asyncio.get_running_loop(), asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told) as consumer:
            assert await read(consumer, 1) == [b"one"]
            polled = loop.time()
            await asyncio.sleep(299.0)
            assert consumer.assignment() == BOTH
            await asyncio.sleep(2.0)
            [(left, _)] = [(when, sent) for when, sent in heartbeats(asked) if sent.member_epoch == -1]
            assert left - polled == pytest.approx(300.0, abs=2.0)
            assert cluster.members("g") == []
            assert told.events == [("assigned", BOTH), ("lost", BOTH)]
            with pytest.raises(CommitFailed):
                await consumer.commit({T0: 1})
            assert await read(consumer, 1) == [b"one"]
            assert told.events[2:] == [("assigned", BOTH)]
            await consumer.commit()

    virtually(story)


def test_a_member_that_holds_a_batch_for_nearly_max_poll_interval_is_not_removed() -> None:
    """The coordinator's rebalance timeout runs from the answer that takes the partition away."""

    async def story(cluster: Cluster) -> None:
        told = Told()
        cluster.append("t", b"one", partition=1)  # the assignor takes partition 1
        async with consumer_of(cluster, told, max_poll_interval_ms=60_000) as one:
            await read(one, 1)
            async with consumer_of(cluster) as two:
                polling = asyncio.ensure_future(polls(two, 100.0))
                await asyncio.sleep(59.0)
                await one.commit()
                while two.assignment() == frozenset():
                    await one.getmany(timeout_ms=100)
                assert "lost" not in [what for what, _ in told.events]
                assert one.assignment() == {T0}
                assert two.assignment() == {T1}
                assert cluster.committed("g")[T1] == 1
                polling.cancel()

    virtually(story)


def test_what_a_fenced_member_was_giving_up_is_not_told_as_lost_again() -> None:
    """It is fenced while on_partitions_revoked() runs: the callback ends, and only the rest is told as lost."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told(seconds=12.0)
        async with consumer_of(cluster, told, client_id="a") as one:
            await shared(one)
            async with consumer_of(cluster) as two:
                polling = asyncio.gather(polls(one, 40.0), polls(two, 40.0))
                await told.revocation.wait()
                cluster.fence_member("g", "a")
                await polling
                [gone] = [parts for what, parts in told.events if what == "revoked"]
                assert told.events[:4] == [
                    ("assigned", BOTH),
                    ("revoked", gone),
                    ("gave up", gone),
                    ("lost", BOTH - gone),
                ]
                assert [what for what, _ in told.events].count("lost") == 1
                assert one.assignment() | two.assignment() == BOTH
                assert len(one.assignment()) == 1
                joins = [
                    when for when, sent in heartbeats(asked, one.group_metadata().member_id) if not sent.member_epoch
                ]
                assert len(joins) == 2
                assert joins[1] >= told.when("lost")  # nothing is said before the listener is done

    virtually(story)


class Unruly(Told):
    """Raises in one kind of callback, each time."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def _note(self, what: str, partitions: frozenset[TopicPartition]) -> None:
        super()._note(what, partitions)
        if what == self._what:
            raise ZeroDivisionError(what)


@pytest.mark.parametrize("what", ["revoked", "assigned", "lost"])
def test_a_listener_that_raises_is_told_to_the_application_and_holds_up_nobody(what: str) -> None:
    """Java's consumer would not acknowledge, and be removed when its rebalance timeout is over."""

    async def story(cluster: Cluster) -> None:
        loop, told, errors = asyncio.get_running_loop(), Unruly(what), list[BaseException]()

        async def poll_on(consumer: Consumer, seconds: float) -> None:
            until = loop.time() + seconds
            while loop.time() < until:
                try:
                    await consumer.getmany(timeout_ms=100)
                except ZeroDivisionError as error:
                    errors.append(error)

        one = consumer_of(cluster, told, client_id="a")
        await one.start()
        await poll_on(one, 5.0)
        assert one.assignment() == BOTH
        async with consumer_of(cluster) as two:
            await asyncio.gather(poll_on(one, 20.0), polls(two, 20.0))
            assert one.assignment() | two.assignment() == BOTH
            assert len(one.assignment()) == len(two.assignment()) == 1
            cluster.fence_member("g", "a")
            await asyncio.gather(poll_on(one, 20.0), polls(two, 20.0))
            assert one.assignment() | two.assignment() == BOTH
            assert one.health().error is None
        assert len(errors) == [heard for heard, _ in told.events].count(what) > 0
        if what == "revoked":
            with pytest.raises(ZeroDivisionError):
                await one.stop()
        else:
            await one.stop()
        assert cluster.members("g") == []

    virtually(story)


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "down"])
@pytest.mark.parametrize("instance", [None, "i"])
def test_a_consumer_whose_coordinator_is_dead_stops_in_time(silent: bool, instance: str | None) -> None:
    """Nothing can be committed and nobody told: the listener hears, and stop() ends."""

    async def story(cluster: Cluster) -> None:
        loop, told = asyncio.get_running_loop(), Told()
        cluster.append("t", b"one")
        one = consumer_of(cluster, told, enable_auto_commit=True, group_instance_id=instance)
        await one.start()
        assert await read(one, 1) == [b"one"]
        if silent:
            cluster.intercept(ConsumerGroupHeartbeatRequest, drop())
            may_be_unused(cluster.intercept(OffsetCommitRequest, drop()))
        else:
            for node in (1, 2, 3):
                cluster.take_down(node)
        await polls(one, 20.0)  # it reads on, and asks again
        assert one.assignment() == BOTH
        assert one.health().last_error is not None
        began = loop.time()
        await one.stop()
        assert loop.time() - began <= 30.0
        assert told.events == [("assigned", BOTH), ("revoked", BOTH), ("gave up", BOTH)]
        for node in (1, 2, 3):
            if not silent:
                cluster.bring_up(node)
        await asyncio.sleep(60.0)
        assert cluster.members("g") == []  # its session has ended

    virtually(story)


@pytest.mark.parametrize("late", [False, True])
def test_a_consumer_that_unsubscribes_and_subscribes_at_once(late: bool) -> None:
    """KAFKA-19335: the answer to a heartbeat of the former membership came late, and its epoch was taken over."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told, client_id="a") as one:
            assert await read(one, 1) == [b"one"]
            await one.commit()
            hold = Hold()
            if late:
                held = cluster.intercept(ConsumerGroupHeartbeatRequest, hold, where=of_client("a"))
                await asyncio.gather(polls(one, 6.0), hold.arrived())
            one.unsubscribe()
            await asyncio.sleep(0.5 if late else 0.0)  # the farewell waits behind the heartbeat
            one.subscribe(["t"], listener=told)
            await asyncio.sleep(0.5 if late else 0.0)
            if late:
                held.cancel()
                hold.release()
            cluster.append("t", b"two")
            assert await read(one, 1) == [b"two"]
            await polls(one, 20.0)
            epochs = [sent.member_epoch for _, sent in heartbeats(asked)]
            assert epochs[:5] == ([0, 2, 2, -1, 0] if late else [0, 2, 2, 2, 2])
            assert epochs[-1] > 0
            assert [] not in [sent.subscribed_topic_names for _, sent in heartbeats(asked)]
            assert told.events == [("assigned", BOTH), ("revoked", BOTH), ("gave up", BOTH), ("assigned", BOTH)]
            assert cluster.members("g") == [one.group_metadata().member_id]

    virtually(story)


@pytest.mark.parametrize(
    ("instance", "leave", "epochs"),
    [(None, None, [-1]), ("i", None, [-2]), ("i", True, [-1]), (None, False, []), ("i", False, [-2])],
)
def test_how_a_member_leaves(instance: str | None, leave: bool | None, epochs: list[int]) -> None:
    async def story(cluster: Cluster) -> None:
        asked = asked_of(cluster)
        consumer = consumer_of(cluster, group_instance_id=instance)
        await consumer.start()
        await shared(consumer)
        await consumer.stop(leave=leave)
        assert [sent.member_epoch for _, sent in heartbeats(asked) if sent.member_epoch < 0] == epochs
        assert len(cluster.members("g")) == (epochs != [-1])

    virtually(story)


def test_a_static_member_that_restarts_within_its_session_disturbs_nobody() -> None:
    async def story(cluster: Cluster) -> None:
        told = Told()
        async with consumer_of(cluster, told) as other:
            async with consumer_of(cluster, group_instance_id="i") as static:
                await shared(other, static)
                held = static.assignment()
            await polls(other, 20.0)
            before = list(told.events)
            async with consumer_of(cluster, group_instance_id="i") as static:
                await shared(other, static)
                assert static.assignment() == held
            assert told.events == before
            await polls(other, 60.0)  # its session ends
            assert other.assignment() == BOTH

    virtually(story)


def test_the_group_moves_to_another_coordinator_while_a_member_gives_up_a_partition() -> None:
    async def story(cluster: Cluster) -> None:
        told = Told(seconds=8.0)
        async with consumer_of(cluster, told, client_id="a") as one, consumer_of(cluster, client_id="b") as two:
            polling = asyncio.gather(polls(one, 60.0), polls(two, 60.0))
            await told.revocation.wait()
            cluster.move_coordinator("g", loading=3.0)
            await polling
            assert len(one.assignment()) == len(two.assignment()) == 1
            assert one.assignment() | two.assignment() == BOTH
            assert "lost" not in [what for what, _ in told.events]

    virtually(story)


def test_a_cluster_that_is_away_for_less_than_a_session_costs_no_membership() -> None:
    """Meanwhile the consumer begins with its bootstrap servers anew (KIP-1102)."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told, metadata_recovery_rebootstrap_trigger_ms=5_000) as consumer:
            assert await read(consumer, 1) == [b"one"]
            member = consumer.group_metadata()
            for node in (1, 2, 3):
                cluster.take_down(node)
            await polls(consumer, 20.0)
            assert consumer.assignment() == BOTH
            for node in (1, 2, 3):
                cluster.bring_up(node)
            cluster.append("t", b"two")
            assert await read(consumer, 1) == [b"two"]
            await consumer.commit()
            await polls(consumer, 60.0)
            assert consumer.group_metadata() == member
            assert told.events == [("assigned", BOTH)]
            assert [sent.member_epoch for _, sent in heartbeats(asked)].count(0) == 1

    virtually(story)


def test_an_answer_that_is_held_back_beyond_the_session_costs_the_membership_and_no_record() -> None:
    async def story(cluster: Cluster) -> None:
        told, hold = Told(), Hold()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told, client_id="a") as consumer:
            assert await read(consumer, 1) == [b"one"]
            await consumer.commit()
            cluster.append("t", b"two")
            held = cluster.intercept(ConsumerGroupHeartbeatRequest, hold, where=of_client("a"))
            assert await read(consumer, 1) == [b"two"]  # it reads on while the coordinator is silent
            await polls(consumer, 60.0)
            assert cluster.members("g") == []
            held.cancel()
            hold.release()
            assert await read(consumer, 1) == [b"two"]
            assert told.events == [("assigned", BOTH), ("lost", BOTH), ("assigned", BOTH)]

    virtually(story)


def test_a_fenced_member_gets_the_assignment_that_was_due_before() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster) as consumer:
            await shared(consumer)
            cluster.add_partitions("t", 3)
            cluster.bump_epoch("g")  # has noticed the new partition; no heartbeat has assigned it
            cluster.fence_member("g")
            async with asyncio.timeout(60.0):
                await shared(consumer, total=3)

    virtually(story)
