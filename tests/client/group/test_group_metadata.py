"""group_metadata() for transactional producers: after a loss, its name is not valid for committing what was read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokc import GroupMetadata, TopicPartition
from aiokc.testing import Cluster

from ..listening import Noting, Polling, listening

pytestmark = pytest.mark.timeout(30)

T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", *(b"%d" % number for number in range(10)))
        yield cluster


async def test_before_it_has_joined_it_has_no_name(cluster: Cluster) -> None:
    async with listening(cluster, group_instance_id="i") as consumer:
        assert consumer.group_metadata() == GroupMetadata("g", -1, "", "i")


async def test_a_member_that_is_not_polled_is_out_under_its_last_name(cluster: Cluster) -> None:
    """A coordinator accepts a transaction's offsets from a consumer without a name, which would fence no consumer."""
    listener = Noting()
    async with listening(cluster, "t", listener=listener, max_poll_interval_ms=600_000) as consumer:
        await consumer.getmany(max_records=1)
        before = consumer.group_metadata()
        membership = consumer._runtime.membership
        assert membership is not None
        membership._polls.last -= 600.0
        await listener.heard("assigned", "lost")
        assert consumer.health().generation == -1
        assert consumer.group_metadata() == before
        assert before.generation_id > 0
        assert before.member_id


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_member_that_has_joined_again_names_a_lost_batch_by_the_member_that_got_it(
    cluster: Cluster, strategy: str
) -> None:
    """The member joins again while the application still holds records that other members read by now. Until its next
    poll, group_metadata() names the old member."""
    listener = Noting()
    async with listening(cluster, "t", listener=listener, partition_assignment_strategy=[strategy]) as consumer:
        await consumer.getmany(max_records=1)
        before = consumer.group_metadata()
        cluster.expire_member("g")
        await listener.heard("assigned", "lost", "assigned")
        now = consumer.health()
        assert now.member_id != before.member_id
        assert consumer.group_metadata() == before
        await consumer.getmany(max_records=1)
        assert consumer.group_metadata() == GroupMetadata("g", now.generation, now.member_id)


async def test_a_batch_that_is_kept_goes_on_into_the_next_generation(cluster: Cluster) -> None:
    """A member may commit for partitions that it keeps: it must not give the generation in which it read them."""
    listener = Noting()
    cooperative = ["cooperative-sticky"]
    async with listening(cluster, "t", listener=listener, partition_assignment_strategy=cooperative) as consumer:
        await consumer.getmany(max_records=1)
        before = consumer.group_metadata()
        consumer.enforce_rebalance()
        await listener.heard("assigned", "assigned")
        assert consumer.group_metadata().generation_id == consumer.health().generation > before.generation_id


async def test_after_unsubscribe_it_is_refused_once_it_has_left_and_by_hand_it_has_no_name(cluster: Cluster) -> None:
    listener = Noting()
    async with listening(cluster, "t", listener=listener) as consumer:
        await consumer.getmany(max_records=1)
        before = consumer.group_metadata()
        consumer.unsubscribe()
        async with asyncio.timeout(20):
            while consumer.health().generation >= 0:
                await consumer._runtime.changed.wait(0.01)
        assert consumer.group_metadata() == before
        consumer.assign([T0])
        assert consumer.group_metadata() == GroupMetadata("g")


async def test_a_member_that_waits_for_records_is_the_one_that_the_group_knows(cluster: Cluster) -> None:
    listener = Noting()
    async with listening(cluster, "t", listener=listener) as consumer, Polling(consumer) as polling:
        await polling.has(10)
        cluster.expire_member("g")
        await listener.heard("assigned", "lost", "assigned")
        health = consumer.health()
        assert consumer.group_metadata() == GroupMetadata("g", health.generation, health.member_id)
