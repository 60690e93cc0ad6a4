"""Topics that are recreated beside a group of the consumer protocol: a member reads and commits what it was assigned by
topic id, and never the topic that has the name by now.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer, OffsetAndMetadata
from aiokc.errors import CommitFailed, NoOffsetForPartition
from aiokc.testing import Cluster, NewRecord
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from aiokc.wire.messages.offsets import ListOffsetsRequest, OffsetCommitRequest

from ....virtually import virtually
from ..group_stories import BOTH, T0, T1, Told, asked_of, consumer_of, heartbeats, of_client, read, shared

pytestmark = pytest.mark.timeout(60)

OLD = [b"old %d" % number for number in range(20)]
NEW = [b"new %d" % number for number in range(30)]


def recreate(cluster: Cluster) -> None:
    """Delete the topic, create it again, and write to each partition of the new one; the timestamps are old."""
    cluster.delete_topic("t")
    cluster.create_topic("t", 2)
    for number, value in enumerate(NEW):
        cluster.append("t", NewRecord(value, timestamp=1), partition=number % 2)


async def hears_of_it(cluster: Cluster, consumer: Consumer) -> None:
    """Wait until the consumer's metadata have the topic that exists now."""
    metadata = consumer._runtime.cluster_client.metadata
    while metadata.cluster.topic_id("t") != cluster._state.topics.named("t").topic_id:
        metadata.request_update()
        await metadata.changed.wait()


async def gather(consumer: Consumer, seconds: float) -> list[bytes]:
    """Return the values that the consumer gets within this time."""
    loop = asyncio.get_running_loop()
    until, values = loop.time() + seconds, []
    while loop.time() < until:
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            values += [bytes(record.value or b"") for record in batch]
    return values


async def began(cluster: Cluster, consumer: Consumer) -> Hold:
    """Let the consumer read the old topic, then recreate it. No heartbeat arrives meanwhile: it holds the old topic."""
    for value in OLD:
        cluster.append("t", value)
    assert await read(consumer, len(OLD)) == OLD
    await shared(consumer)
    unheard = Hold()
    cluster.intercept(ConsumerGroupHeartbeatRequest, unheard, times=None, where=of_client("a"))
    return unheard


@pytest.mark.parametrize("commits", [False, True])
def test_no_two_members_read_the_same_partition_of_a_recreated_topic(commits: bool) -> None:
    """The coordinator gives the new topic to a second member before the first one hears that the old one is gone."""

    async def story(cluster: Cluster) -> None:
        one = consumer_of(cluster, client_id="a", enable_auto_commit=commits, auto_commit_interval_ms=100)
        async with one:
            unheard = await began(cluster, one)
            recreate(cluster)
            async with consumer_of(cluster, client_id="b") as two:
                await hears_of_it(cluster, one)
                mine, theirs = await asyncio.gather(gather(one, 4), gather(two, 4))
                assert mine == []
                assert len(theirs) == 15
                await two.commit()
                assert list(cluster.committed("g").values()) == [15], "nobody else has committed anything"
                cluster.heal()
                unheard.release()
                rest = await asyncio.gather(gather(one, 20), gather(two, 20))
                assert sorted([*theirs, *rest[0], *rest[1]]) == sorted(NEW)
                assert one.assignment() | two.assignment() == BOTH

    virtually(story)


@pytest.mark.parametrize("reset", ["earliest", "latest", "by_duration:PT1H"])
def test_the_only_member_goes_on_with_the_new_topic_at_once(reset: str) -> None:
    """When the metadata tell that the topic was recreated, the member asks the coordinator without waiting.

    With each reset: the records of the new topic were written after this member had read the old one.
    """

    async def story(cluster: Cluster) -> None:
        told, loop = Told(), asyncio.get_running_loop()
        options: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
        async with consumer_of(cluster, told, auto_offset_reset=reset, **options) as consumer:
            await gather(consumer, 1)
            for value in OLD:
                cluster.append("t", value)
            assert await read(consumer, len(OLD)) == OLD
            recreate(cluster)
            since = loop.time()
            assert sorted(await read(consumer, len(NEW))) == sorted(NEW)
            assert loop.time() - since < 2.5
            changes = [("assigned", BOTH), ("revoked", BOTH), ("gave up", BOTH), ("assigned", BOTH)]
            assert [event for event in told.events if event[1]] == changes
            await gather(consumer, 1)
            assert sorted(cluster.committed("g").values()) == [15, 15]

    virtually(story)


@pytest.mark.parametrize(
    "what", ["batch", "offsets", "everything", "its offsets", "new offsets", "sought", "looked up"]
)
def test_who_was_assigned_the_old_topic_commits_no_offset_for_the_new_one(what: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, client_id="a") as consumer:
            for value in OLD:
                cluster.append("t", value)
            batch = await consumer.getmany(timeout_ms=5_000)
            assert len(batch[T0]) == len(OLD)
            unheard = Hold()
            cluster.intercept(ConsumerGroupHeartbeatRequest, unheard, times=None, where=of_client("a"))
            recreate(cluster)
            await hears_of_it(cluster, consumer)
            await unheard.arrived()
            asked = asked_of(cluster)
            new = OffsetAndMetadata(10, topic_id=cluster._state.topics.named("t").topic_id)
            given: dict[str, Any] = {
                "batch": batch,
                "offsets": {T0: 20},
                "its offsets": batch.next_offsets,
                "new offsets": {T0: new},
                "sought": {T1: 5},
                "looked up": {T1: 5},
            }
            if what == "sought":
                consumer.seek(T1, 5)
            if what == "looked up":  # by name, so in the new topic
                await consumer.seek_to_beginning(T1)
                await asyncio.sleep(1)
                assert asked.of(ListOffsetsRequest)
            with pytest.raises(CommitFailed):
                await consumer.commit(given.get(what))
            if what in ("sought", "looked up"):
                await consumer.getmany(timeout_ms=0)
                await consumer.commit()
            assert asked.of(OffsetCommitRequest) == []
            assert asked.of(FetchRequest) == []
            cluster.heal()
            unheard.release()
            assert sorted(await read(consumer, len(NEW))) == sorted(NEW)
            await consumer.commit()
            assert sorted(cluster.committed("g").values()) == [15, 15]

    virtually(story)


def test_a_coordinator_that_is_behind_is_asked_every_second() -> None:
    """Brokers hear of a new topic one by one."""

    async def story(cluster: Cluster) -> None:
        asked, loop = asked_of(cluster), asyncio.get_running_loop()

        def knows_nothing(exchange: Exchange) -> ConsumerGroupHeartbeatResponse:
            epoch = exchange.request.member_epoch
            return ConsumerGroupHeartbeatResponse(error_code=0, member_epoch=epoch, heartbeat_interval_ms=5_000)

        async with consumer_of(cluster) as consumer:
            for value in OLD:
                cluster.append("t", value)
            assert await read(consumer, len(OLD)) == OLD
            await shared(consumer)
            cluster.intercept(ConsumerGroupHeartbeatRequest, knows_nothing, times=3)
            recreate(cluster)
            since = loop.time()
            assert sorted(await read(consumer, len(NEW))) == sorted(NEW)
            times = [when - since for when, _ in heartbeats(asked) if when > since]
            assert times[:4] == pytest.approx([times[0], times[0] + 1, times[0] + 2, times[0] + 3], abs=0.1)
            assert times[0] < 1

    virtually(story)


def test_with_none_a_recreated_topic_has_no_offset() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer_of(cluster, auto_offset_reset="none") as consumer:
            await consumer.wait_assigned()
            consumer.seek(T0, 0)
            consumer.seek(T1, 0)
            for value in OLD:
                cluster.append("t", value)
            assert await read(consumer, len(OLD)) == OLD
            await consumer.commit()
            recreate(cluster)
            with pytest.raises(NoOffsetForPartition):
                await gather(consumer, 5)

    virtually(story)
