"""What a member does before it gives partitions up, the last commits above all, and how long the group waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer, OffsetAndMetadata, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import CommitFailed, KafkaError, UnknownTopic
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold
from aiokc.wire.messages.group import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest

from ..listening import Noting, Polling, listening
from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)

ZERO = TopicPartition("t", 0)
TEN = tuple(b"%d" % number for number in range(10))
AUTO: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 600_000}


def options_of(cluster: Cluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "allow_auto_create_topics": False,
        "metadata_max_age_ms": 1_000,
    }


async def read(consumer: Consumer, *batches: int) -> None:
    """Have ``batches`` returned; all but the last are processed by then."""
    for count in batches:
        assert len(await consumer.getmany(max_records=count, timeout_ms=10_000)) > 0


def arrivals(cluster: Cluster) -> list[str]:
    """The OffsetCommit, JoinGroup and LeaveGroup requests from here on, by name, in the order of their arrival."""
    seen: list[str] = []

    def note(exchange: Exchange) -> None:
        seen.append(type(exchange.request).__name__.removesuffix("Request"))

    for api in (OffsetCommitRequest, JoinGroupRequest, LeaveGroupRequest):
        cluster.intercept(api, note)
    return seen


def test_a_topic_that_was_deleted_does_not_hold_up_its_group() -> None:
    """Its offsets can't be stored any more. Those of other topics can, and all members wait for this one to join."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN)
        cluster.append("gone", *TEN)
        listener = Noting()
        consumer = listening(cluster, "t", "gone", listener=listener, **AUTO)
        async with consumer, Polling(consumer) as user:
            await user.has(20)
            assert cluster.committed("g") == {}
            loop = asyncio.get_running_loop()
            began = loop.time()
            cluster.delete_topic("gone")
            consumer._runtime.cluster_client.metadata.request_update()
            await listener.until(lambda: listener.count("assigned") == 2)
            assert loop.time() - began < 5
            assert consumer.assignment() == {ZERO}
            assert cluster.committed("g") == {ZERO: 10}

    virtually(story, topics={"t": 1, "gone": 1}, brokers=1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("leave", ["unsubscribe", "subscribe"])
def test_a_topic_that_was_deleted_does_not_hold_up_who_leaves_it(protocol: str, leave: str) -> None:
    """Nothing asks for the topic any more by then: the metadata would tell for ever that it exists."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN)
        cluster.append("gone", *TEN)
        listener = Noting()
        options = options_of(cluster) | AUTO | {"group_protocol": protocol}
        async with Consumer("t", "gone", **options, listener=listener) as consumer:
            await read(consumer, 10, 10)
            assert await consumer.getmany(timeout_ms=0) == {}
            cluster.delete_topic("gone")
            if leave == "unsubscribe":
                consumer.unsubscribe()
            else:
                consumer.subscribe(["t"], listener=listener)
            async with asyncio.timeout(5):
                await listener.until(lambda: bool(listener.count("revoked")))
            assert cluster.committed("g") == {ZERO: 10}

    virtually(story, topics={"t": 1, "gone": 1}, brokers=1)


@pytest.mark.parametrize("way", ["assign", "classic", "consumer"])
def test_a_commit_of_a_deleted_topic_that_was_left_says_so_soon(way: str) -> None:
    """The metadata had said that it is gone, and forget that once it is left. A group waits for such a commit of its
    member's listener.
    """

    async def story(cluster: Cluster) -> None:
        cluster.append("gone", *TEN)
        loop = asyncio.get_running_loop()
        took: list[float] = []

        async def commit(_: object) -> None:
            began = loop.time()
            with pytest.raises(UnknownTopic):
                await consumer.commit(batch)
            took.append(loop.time() - began)

        listener = Noting()
        options = options_of(cluster) | ({} if way == "assign" else {"group_protocol": way})
        async with Consumer(**options, enable_auto_commit=False) as consumer:
            if way == "assign":
                consumer.assign([TopicPartition("gone", 0)])
            else:
                consumer.subscribe(["gone"], listener=listener)
            batch = await consumer.getmany(timeout_ms=10_000)
            assert len(batch) == 1
            cluster.delete_topic("gone")
            await asyncio.sleep(5)
            listener.on["revoked"] = commit
            if way == "assign":
                consumer.assign([ZERO])
                await commit(None)
            else:
                consumer.unsubscribe()
                await listener.until(lambda: bool(listener.count("revoked")) and listener.done == len(listener.told))
            assert 0 < took[0] < 5

    virtually(story, topics={"t": 1, "gone": 1}, brokers=1)


@pytest.mark.parametrize("created_again", [("gone",), ("gone", "t")])
def test_a_commit_of_topics_that_were_deleted_says_so_soon_though_one_was_created_again(
    created_again: tuple[str, ...],
) -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        partitions = [TopicPartition("gone", 0), ZERO]
        for tp in partitions:
            cluster.append(tp.topic, *TEN)
        options = options_of(cluster) | {"enable_auto_commit": False}
        async with Consumer(**options) as consumer:
            consumer.assign(partitions)
            offsets: dict[TopicPartition, OffsetAndMetadata] = {}
            while len(offsets) < 2:
                offsets |= (await consumer.getmany(timeout_ms=10_000)).next_offsets
            consumer.unsubscribe()
            for tp in partitions:
                cluster.delete_topic(tp.topic)
            await asyncio.sleep(1)
            for topic in created_again:
                cluster.create_topic(topic, 1)
            began = loop.time()
            with pytest.raises(CommitFailed if "t" in created_again else UnknownTopic):
                await consumer.commit(offsets)
            assert loop.time() - began < 5

    virtually(story, topics={"t": 1, "gone": 1}, brokers=1)


def test_a_coordinator_that_does_not_know_a_topic_yet_is_asked_again() -> None:
    """The coordinator has just started. The metadata know the topic, so its offsets are worth a second attempt."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN)
        listener = Noting()
        consumer = listening(cluster, "t", listener=listener, **AUTO)
        async with consumer, Polling(consumer) as user:
            await user.has(10)
            cluster.intercept(OffsetCommitRequest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=3)
            consumer.enforce_rebalance()
            await listener.until(lambda: listener.count("assigned") == 2)
            assert cluster.committed("g") == {ZERO: 10}

    virtually(story, topics={"t": 1}, brokers=1)


def test_who_has_committed_all_that_it_holds_does_not_hold_up_its_group_after_a_seek() -> None:
    """The application works on something else for long by then, and asks for no records."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN)
        cluster.append("t", *TEN, partition=1)
        async with listening(cluster, "t") as busy:
            await busy.wait_assigned()
            batch = await busy.getmany(timeout_ms=10_000, max_records=20)
            assert len(batch) == 2
            for tp in batch:
                busy.seek(tp, 5)
            await busy.commit(batch)
            async with listening(cluster, "t") as other:
                await other.wait_assigned(timeout_ms=10_000)
                assert len(other.assignment()) == 1

    virtually(story, topics={"t": 2}, brokers=1)


def test_stop_cuts_short_the_last_commit_of_a_revocation() -> None:
    """The last commit of a rebalance is not answered, and the application calls stop(): the listener still has time."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN)
        listener = Noting()
        consumer = listening(cluster, "t", listener=listener, **AUTO)
        await consumer.start()
        await read(consumer, 3, 3)
        hold = Hold()
        cluster.intercept(OffsetCommitRequest, hold)
        consumer.enforce_rebalance()
        await asyncio.sleep(0.01)  # it has begun
        assert await consumer.getmany(timeout_ms=0) == {}
        await hold.arrived()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await consumer.stop(timeout_ms=5_000)
        assert loop.time() - began <= 5
        assert listener.calls == ["assigned", "revoked"]

    virtually(story, topics={"t": 1}, brokers=1)


def test_a_loss_during_the_last_commit_of_a_revocation_is_heard_of_at_once() -> None:
    """The application does not poll in time: the member must not wait for its commit, nor hand out its records."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN)
        listener = Noting()
        async with listening(cluster, "t", listener=listener, max_poll_interval_ms=3_000, **AUTO) as consumer:
            await read(consumer, 3, 3)
            hold = Hold()
            cluster.intercept(OffsetCommitRequest, hold, times=1)
            consumer.enforce_rebalance()
            await asyncio.sleep(0.01)  # it has begun
            assert await consumer.getmany(timeout_ms=0) == {}
            await hold.arrived()
            loop = asyncio.get_running_loop()
            began = loop.time()
            await listener.until(lambda: "lost" in listener.calls)
            assert loop.time() - began < 5
            assert consumer.assignment() == set()
            hold.release()

    virtually(story, topics={"t": 1}, brokers=1)


def test_what_commit_soon_was_called_for_before_a_revocation_is_stored_before_it_ends() -> None:
    """The first of two commits is under way when the group rebalances. Once the member joins, it may not commit."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN)
        done: list[KafkaError | None] = []
        async with listening(cluster, "t") as consumer:
            await read(consumer, 3)
            hold = Hold()
            cluster.intercept(OffsetCommitRequest, hold, times=1)
            seen = arrivals(cluster)
            consumer.commit_soon({ZERO: 1}, lambda _, error: done.append(error))
            await hold.arrived()
            consumer.commit_soon({ZERO: 3}, lambda _, error: done.append(error))
            user = asyncio.ensure_future(consumer.getmany(timeout_ms=60_000))
            await asyncio.sleep(0)
            consumer.enforce_rebalance()
            await asyncio.sleep(1)
            assert seen == []
            hold.release()
            await user
            while len(done) < 2:
                await consumer.getmany(timeout_ms=100)
            assert done == [None, None]
            assert seen[:2] == ["OffsetCommit", "JoinGroup"]

    virtually(story, topics={"t": 1}, brokers=1)


@pytest.mark.parametrize(("waited", "held_up"), [(False, 1.0), (True, 3.0)], ids=["commit_soon", "commit"])
def test_a_commit_without_an_answer_holds_up_a_revocation_for_its_own_time_only(waited: bool, held_up: float) -> None:
    """A commit_soon() has request_timeout_ms, of which 1 s is left. A commit() has more; the revocation has not."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *TEN)
        listener = Noting()
        consumer = listening(cluster, "t", listener=listener, request_timeout_ms=3_000)
        async with consumer, Polling(consumer) as user:
            await user.has(10)
            hold = Hold()
            cluster.intercept(OffsetCommitRequest, hold)
            committing = asyncio.ensure_future(consumer.commit({ZERO: 1})) if waited else None
            if committing is None:
                consumer.commit_soon({ZERO: 1})
            await hold.arrived()
            await asyncio.sleep(2)
            loop = asyncio.get_running_loop()
            began = loop.time()
            consumer.enforce_rebalance()
            await listener.heard("assigned", "revoked")
            assert loop.time() - began == pytest.approx(held_up, abs=0.1)
            await listener.heard("assigned", "revoked", "assigned")
            hold.release()
            if committing is not None:
                with pytest.raises(CommitFailed):  # its generation is over
                    await committing

    virtually(story, topics={"t": 1}, brokers=1)


def test_the_last_commit_of_a_member_that_stops_while_its_group_assigns_is_stored() -> None:
    """During the rebalance the coordinator refuses the commit. The member waits for the end of that for a moment."""

    async def story(cluster: Cluster) -> None:
        options = {**AUTO, "partition_assignment_strategy": ["cooperative-sticky"], "listener": Noting()}
        leader, member = (
            listening(cluster, "t", **options) for options in (options, {**options, "listener": Noting()})
        )
        async with leader, Polling(leader), member:
            while not member.assignment():
                await member.getmany(timeout_ms=100)
            [own] = member.assignment()
            cluster.append("t", *TEN, partition=own.partition)
            await read(member, 3, 3)
            hold = Hold()
            cluster.intercept(SyncGroupRequest, hold, times=1, where=lambda sent: bool(sent.request.assignments))
            member.enforce_rebalance()
            await hold.arrived()
            stopping = asyncio.ensure_future(member.stop())
            await asyncio.sleep(0.5)
            assert not stopping.done()
            assert cluster.committed("g")[own] == 0
            hold.release()
            await stopping
            assert cluster.committed("g")[own] == 3

    virtually(story, topics={"t": 2}, brokers=1)


def test_each_listener_hears_of_the_partitions_of_its_own_subscription_only() -> None:
    """The application subscribes anew, with another listener, while an assignment of the old subscription is queued."""

    async def story(cluster: Cluster) -> None:
        gate = asyncio.Event()
        began = asyncio.Event()

        async def slow(_: frozenset[TopicPartition]) -> None:
            began.set()
            await gate.wait()

        first, second = Noting(assigned=slow), Noting()
        options: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}
        async with listening(cluster, "t", listener=first, **options) as consumer:
            user = asyncio.ensure_future(consumer.getmany(timeout_ms=3_600_000))
            await began.wait()
            cluster.add_partitions("t", 4)
            consumer._runtime.cluster_client.metadata.request_update()
            membership = consumer._runtime.membership
            assert membership is not None
            while not membership._changes._queue:
                await membership.moved.wait()
            consumer.unsubscribe()
            user.cancel()
            consumer.subscribe(["t"], listener=second)
            user = asyncio.ensure_future(consumer.getmany(timeout_ms=3_600_000))
            gate.set()
            await second.until(lambda: len(second.holds) == 4)
            assert second.calls == ["assigned"]
            assert first.holds == set()
            user.cancel()

    virtually(story, topics={"t": 2}, brokers=1)
