"""Static members of a consumer group: two that live with one instance id, and one that unsubscribes for a while."""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Client
from aiokc.error_codes import ErrorCode
from aiokc.errors import MemberFenced
from aiokc.testing import Cluster
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest

from ...virtually import virtually
from .group_stories import BOTH, Told, asked_of, consumer_of, heartbeats, polls, read, shared


def test_a_twin_of_a_live_static_member_is_refused_and_disturbs_nobody() -> None:
    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told, group_instance_id="i") as one:
            assert await read(one, 1) == [b"one"]
            await one.commit()
            async with consumer_of(cluster, group_instance_id="i") as twin:
                for _ in range(3):
                    with pytest.raises(MemberFenced, match="another consumer with the same group_instance_id"):
                        await twin.getmany(timeout_ms=10_000)
                assert isinstance(twin.health().error, MemberFenced)
                await polls(one, 60.0)
                assert told.events == [("assigned", BOTH)]
                ours = one.group_metadata().member_id
                theirs = [sent for _, sent in heartbeats(asked) if sent.member_id != ours]
                assert [sent.member_epoch for sent in theirs] == [0]  # it does not fight for the instance
                cluster.append("t", b"two")
                assert await read(one, 1) == [b"two"]
                await one.commit()
                await one.stop()
                twin.unsubscribe()
                twin.subscribe(["t"])
                cluster.append("t", b"three")
                assert await read(twin, 1) == [b"three"]

    virtually(story)


def test_a_member_whose_twin_joined_after_an_administrator_removed_it_never_comes_back_by_itself() -> None:
    """Two consumers that take the instance from each other would do so for ever."""

    async def story(cluster: Cluster) -> None:
        asked, told = asked_of(cluster), Told()
        cluster.append("t", b"one")
        async with consumer_of(cluster, told, group_instance_id="i") as one:
            assert await read(one, 1) == [b"one"]
            former = one.group_metadata().member_id
            async with Client(bootstrap_servers=cluster.bootstrap) as client:
                await client.remove_members("g", instances=["i"])
            assert cluster.members("g") == []
            async with consumer_of(cluster, group_instance_id="i") as twin:
                assert await read(twin, 1) == [b"one"]
                await twin.commit()
                polling = asyncio.ensure_future(polls(twin, 60.0))
                with pytest.raises(MemberFenced, match="another consumer joined with the same group_instance_id"):
                    await one.getmany(timeout_ms=30_000)
                assert told.events == [("assigned", BOTH), ("lost", BOTH)]
                fenced_at = asyncio.get_running_loop().time()
                for _ in range(3):
                    with pytest.raises(MemberFenced):
                        await one.getmany(timeout_ms=1_000)
                await polling
                assert twin.assignment() == BOTH
                after = [sent.member_epoch for when, sent in heartbeats(asked, former) if when > fenced_at]
                assert after == [-2]  # a farewell, which the coordinator refuses
                assert cluster.members("g") == [twin.group_metadata().member_id]

    virtually(story)


def test_a_static_member_that_unsubscribes_parks_its_partitions() -> None:
    """No heartbeat says that it subscribes to nothing: the coordinator would hand them on."""

    async def story(cluster: Cluster) -> None:
        told, leisurely = Told(), Told(seconds=3.0)
        async with (
            consumer_of(cluster, told) as other,
            consumer_of(cluster, leisurely, group_instance_id="i") as static,
        ):
            await shared(other, static)
            held, before = static.assignment(), list(told.events)
            static.unsubscribe()
            await polls(other, 20.0)
            static.subscribe(["t"])
            await shared(other, static)
            assert static.assignment() == held
            assert told.events == before

    virtually(story)


@pytest.mark.parametrize("instance", [None, "i"], ids=["dynamic", "static"])
def test_a_member_whose_group_is_gone_joins_again_without_an_error(instance: str | None) -> None:
    """A coordinator that has lost its log knows neither the group nor its members."""

    async def story(cluster: Cluster) -> None:
        told = Told()
        async with consumer_of(cluster, told, group_instance_id=instance) as consumer:
            await shared(consumer)
            gone = cluster.intercept(ConsumerGroupHeartbeatRequest, ErrorCode.GROUP_ID_NOT_FOUND, times=1)
            await polls(consumer, 30.0)
            assert gone.hits == 1
            assert [what for what, _ in told.events] == ["assigned", "lost", "assigned"]
            cluster.append("t", b"one")
            assert await read(consumer, 1) == [b"one"]

    virtually(story)
