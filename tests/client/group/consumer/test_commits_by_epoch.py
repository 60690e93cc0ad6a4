"""Commits that cross a new member epoch: stored where the claim is the same, refused where the partition has gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc.errors import BrokerError, CommitFailed, KafkaError
from aiokc.testing import Cluster, ErrorCode
from aiokc.testing.faults import delay, lose_answer
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest

from ...virtually import virtually
from .group_stories import BOTH, T0, T1, Told, asked_of, consumer_of, of_client, polls, read, shared


@pytest.mark.parametrize(("release", "attempts"), [("4.4", 1), ("4.2", 2)])
def test_a_commit_that_crosses_a_new_epoch_is_stored(release: str, attempts: int) -> None:
    """Since 4.3 the coordinator accepts the older epoch; before, the consumer has to send the commit again."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told) as consumer:
            await read(consumer, 1)
            cluster.bump_epoch("g")
            late = cluster.intercept(ConsumerGroupHeartbeatRequest, delay(1.0), times=1)
            await late.caught()
            await consumer.commit()  # it waits in the connection behind the heartbeat that brings the new epoch
            assert cluster.committed("g")[T0] == 1
            epochs = [sent.generation_id_or_member_epoch for _, sent in asked.of(OffsetCommitRequest)]
            assert epochs == [2, 3][:attempts]
            assert told.events == [("assigned", BOTH)]

    virtually(story, as_version=release)


def test_a_commit_of_what_was_given_up_does_not_touch_the_new_owner() -> None:
    """At its newest epoch the coordinator would let the member commit any partition, that of the new owner too."""

    async def story(cluster: Cluster) -> None:
        errors: list[KafkaError | None] = []
        cluster.append("t", b"one", b"two", partition=1)  # the assignor takes partition 1
        async with consumer_of(cluster, client_id="a", max_poll_records=1) as one:
            assert await read(one, 1) == [b"one"]
            await one.getmany(timeout_ms=100)
            async with consumer_of(cluster, client_id="b") as two:
                await shared(one, two)
                assert two.assignment() == {T1}
                await polls(two, 1.0)
                await two.commit()
                assert cluster.committed("g")[T1] == 2
                with pytest.raises(CommitFailed):
                    await one.commit({T1: 1})
                one.commit_soon({T1: 1}, lambda offsets, error: errors.append(error))
                await polls(one, 10.0)
                assert cluster.committed("g")[T1] == 2
                assert [type(error) for error in errors] == [CommitFailed]

    virtually(story)


def test_a_partition_is_not_handed_over_while_a_commit_of_it_is_under_way() -> None:
    """Repeated under a newer epoch, the commit would overwrite what the new owner has committed."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"one", b"two", partition=1)
        async with consumer_of(cluster, client_id="a", max_poll_records=1) as one:
            assert await read(one, 1) == [b"one"]
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            refused = cluster.intercept(OffsetCommitRequest, loading, where=of_client("a"))
            committing = asyncio.ensure_future(one.commit({T1: 1}))
            await refused.caught()
            async with consumer_of(cluster, client_id="b") as two:
                both = asyncio.gather(polls(one, 30.0), polls(two, 30.0))
                await asyncio.sleep(20.0)
                assert (one.assignment(), two.assignment()) == (BOTH, frozenset())
                refused.cancel()
                await committing
                assert cluster.committed("g") == {T1: 1}
                await both
                assert one.assignment() == {T0}
                assert two.assignment() == {T1}

    virtually(story)


def test_a_commit_that_is_tried_again_behind_the_revocation_does_not_touch_the_new_owner() -> None:
    """The revocation waits for it ``request_timeout_ms``, and then gives the partition up. The next attempt is refused
    here: at its newest epoch the coordinator would store it.
    """

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"one", b"two", partition=1)
        async with consumer_of(cluster, client_id="a", max_poll_records=1, request_timeout_ms=4_000) as one:
            assert await read(one, 1) == [b"one"]
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            refused = cluster.intercept(OffsetCommitRequest, loading, where=of_client("a"))
            committing = asyncio.ensure_future(one.commit({T1: 1}, timeout_ms=120_000))
            await refused.caught()
            async with consumer_of(cluster, client_id="b") as two:
                await shared(one, two)
                assert two.assignment() == {T1}
                await polls(two, 1.0)
                await two.commit({T1: 2})
                refused.cancel()
                with pytest.raises(CommitFailed):
                    await committing
                assert cluster.committed("g")[T1] == 2

    virtually(story)


def test_a_classic_members_commit_of_what_it_gave_up_within_a_generation_does_not_touch_the_new_owner() -> None:
    """In a group of the consumer protocol: the member subscribes to less and joins again. The coordinator hands on what
    it gave up and keeps the generation, in whose name it would store the commit.
    """

    async def story(cluster: Cluster) -> None:
        for partition in range(4):
            cluster.append("u", b"one", partition=partition)
        classic: dict[str, Any] = {"group_protocol": "classic", "partition_assignment_strategy": ["cooperative-sticky"]}
        classic |= {"heartbeat_interval_ms": 10_000, "session_timeout_ms": 45_000, "request_timeout_ms": 4_000}
        async with consumer_of(cluster, client_id="b") as two:
            two.subscribe(["u"])
            await polls(two, 2.0)
            async with consumer_of(cluster, client_id="a", **classic) as one:
                one.subscribe(["t", "u"])
                await asyncio.gather(polls(one, 40.0), polls(two, 40.0))
                given_up = min(tp for tp in one.assignment() if tp.topic == "u")
                generation = one.group_metadata().generation_id
                cluster.configure_group("g", consumer_assignment_interval_ms=60_000, consumer_heartbeat_interval_ms=200)
                await asyncio.gather(polls(one, 8.0), polls(two, 8.0))
                loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                refused = cluster.intercept(OffsetCommitRequest, loading, where=of_client("a"))
                committing = asyncio.ensure_future(one.commit({given_up: 0}, timeout_ms=300_000))
                await refused.caught()
                one.subscribe(["t"])
                async with asyncio.timeout(120):
                    while given_up not in two.assignment():
                        await asyncio.gather(polls(one, 0.1), polls(two, 0.1))
                assert one.group_metadata().generation_id == generation
                await two.commit({given_up: 1})
                refused.cancel()
                with pytest.raises(CommitFailed):
                    await committing
                assert cluster.committed("g")[given_up] == 1

    virtually(story, topics={"t": 1, "u": 4})


def test_offsets_that_cannot_be_fetched_for_a_stale_epoch_are_no_reason_to_reset() -> None:
    """The coordinator has a newer epoch: its answer has no offsets, which is not the same as no committed offset."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"one", b"two", b"three")
        async with consumer_of(cluster, max_poll_records=1) as consumer:
            await read(consumer, 1)
            await consumer.commit()
        refused = cluster.intercept(OffsetFetchRequest, ErrorCode.STALE_MEMBER_EPOCH, times=3)
        async with consumer_of(cluster, auto_offset_reset="latest") as consumer:
            assert await read(consumer, 2) == [b"two", b"three"]
            assert refused.hits == 3

    virtually(story)


def test_a_commit_before_a_revocation_goes_through_though_the_epoch_has_moved_on() -> None:
    async def story(cluster: Cluster) -> None:
        told = Told()
        for partition in (0, 1):
            cluster.append("t", b"%d" % partition, partition=partition)
        async with consumer_of(cluster, told, client_id="a", enable_auto_commit=True) as one:
            await read(one, 2)
            await one.getmany(timeout_ms=10)
            lost = cluster.intercept(ConsumerGroupHeartbeatRequest, lose_answer(), times=1, where=of_client("a"))
            async with consumer_of(cluster, client_id="b") as two:
                await shared(one, two)
                assert lost.hits == 1
                assert cluster.committed("g") == {T0: 1, T1: 1}
                assert await two.getmany(timeout_ms=5_000) == {}

    virtually(story, as_version="4.2")


@pytest.mark.parametrize("release", ["4.2", "4.4"])
def test_a_commit_before_a_revocation_that_is_refused_as_stale_is_sent_again_until_it_is_stored(release: str) -> None:
    """Brokers before 4.3 refuse each one that a new epoch overtakes; nobody is to read these records again for that."""

    async def story(cluster: Cluster) -> None:
        for partition in (0, 1):
            cluster.append("t", b"%d" % partition, partition=partition)
        async with consumer_of(cluster, client_id="a", enable_auto_commit=True) as one:
            await read(one, 2)
            stale = cluster.intercept(OffsetCommitRequest, ErrorCode.STALE_MEMBER_EPOCH, times=3)
            async with consumer_of(cluster, client_id="b") as two:
                await shared(one, two)
                assert stale.hits == 3
                assert await two.getmany(timeout_ms=5_000) == {}
            assert cluster.committed("g") == {T0: 1, T1: 1}

    virtually(story, as_version=release)


def _two_topics(cluster: Cluster) -> None:
    for topic in ("t", "u"):
        for partition in (0, 1):
            cluster.append(topic, b"%d" % partition, partition=partition)


@pytest.mark.parametrize("release", ["4.0", "4.4"], ids=["by name", "by id"])
def test_a_deleted_topic_does_not_hold_up_the_commit_before_a_revocation(release: str) -> None:
    """The coordinator refuses offsets of a topic that is gone. It waits for the member, and so does the new owner."""

    async def story(cluster: Cluster) -> None:
        loop, told = asyncio.get_running_loop(), Told()
        _two_topics(cluster)
        options = {"enable_auto_commit": True, "auto_commit_interval_ms": 100_000, "allow_auto_create_topics": False}
        async with consumer_of(cluster, told, **options) as one:
            one.subscribe(["t", "u"], listener=told)
            await read(one, 4)
            await one.getmany(timeout_ms=10)  # the batch is processed
            cluster.delete_topic("u")
            began = loop.time()
            async with consumer_of(cluster) as two:
                await shared(one, two)
                assert loop.time() - began < 15.0
                assert one.assignment() | two.assignment() == BOTH
                assert await two.getmany(timeout_ms=2_000) == {}
            [mine] = one.assignment()
            assert {tp: offset for tp, offset in cluster.committed("g").items() if tp != mine} == dict.fromkeys(
                BOTH - {mine}, 1
            )
            assert "lost" not in [what for what, _ in told.events]

    virtually(story, topics={"t": 2, "u": 2}, as_version=release)


@pytest.mark.parametrize("release", ["4.0", "4.4"], ids=["by name", "by id"])
def test_a_commit_with_a_deleted_topic_stores_the_others_and_says_so(release: str) -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        _two_topics(cluster)
        async with consumer_of(cluster, told, allow_auto_create_topics=False) as consumer:
            consumer.subscribe(["t", "u"], listener=told)
            await read(consumer, 4)
            cluster.delete_topic("u")
            began = asyncio.get_running_loop().time()
            with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
                await consumer.commit()
            assert asyncio.get_running_loop().time() - began < 5.0
            assert cluster.committed("g") == {T0: 1, T1: 1}
            named = {topic.name for _, sent in asked.of(OffsetCommitRequest) for topic in sent.topics}
            assert named == ({"t", "u"} if release == "4.0" else {""})
            await polls(consumer, 10.0)
            assert consumer.assignment() == BOTH
            cluster.append("t", b"more")
            assert await read(consumer, 1) == [b"more"]
            await consumer.commit()
            assert cluster.committed("g")[T0] == 2
            assert "lost" not in [what for what, _ in told.events]

    virtually(story, topics={"t": 2, "u": 2}, as_version=release)


def test_the_last_commit_has_time_though_the_application_comes_back_at_the_last_moment() -> None:
    """The coordinator waits for 10 s more than max_poll_interval_ms."""

    async def story(cluster: Cluster) -> None:
        loop, told = asyncio.get_running_loop(), Told()
        for partition in (0, 1):
            cluster.append("t", b"%d" % partition, partition=partition)
        async with consumer_of(cluster, told, max_poll_interval_ms=10_000, enable_auto_commit=True) as one:
            await read(one, 2)
            held_since = loop.time()
            async with consumer_of(cluster) as two:
                other = asyncio.ensure_future(polls(two, 40.0))
                await asyncio.sleep(held_since + 9.99 - loop.time())
                back_at = loop.time()
                cluster.intercept(OffsetCommitRequest, delay(3.5), times=1)
                await polls(one, 30.0)
                await other
                assert told.when("revoked") >= back_at + 3.5
                assert [what for what, _ in told.events] == ["assigned", "revoked", "gave up", "assigned"]
                assert cluster.committed("g") == {T0: 1, T1: 1}

    virtually(story)
