"""Members that are fenced, forgotten or too slow, and members that leave: what the user and the group hear."""

from __future__ import annotations

import asyncio

import pytest

from aiokc.errors import CommitFailed
from aiokc.testing import Cluster
from aiokc.testing.faults import Hold
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest

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
