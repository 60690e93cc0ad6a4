"""Groups and the cluster around them: coordinators that move, die and come back; deleted topics; transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

import aiokc
from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.wire.messages.group import JoinGroupRequest
from aiokc.wire.messages.group_admin import ListGroupsRequest

from ..wire_client import connected
from .group_scene import Actor, Scene, open_scene
from .group_transactions import Transaction

pytestmark = pytest.mark.any_loop

GROUP = "g"
PLACE = aiokc.TopicPartition("events", 0)


@asynccontextmanager
async def _scene(cluster: Cluster) -> AsyncIterator[Scene]:
    """A scene at the cluster's first broker, which is the group's coordinator."""
    cluster.move_coordinator(GROUP, to=1)
    async with open_scene(cluster.bootstrap, GROUP) as opened:
        opened.topic = "events"
        yield opened


async def test_parked_requests_are_answered_when_the_coordinator_has_moved() -> None:
    async with Cluster(brokers=2, topics={"events": 2}) as cluster, _scene(cluster) as scene:
        leader, follower = await scene.stable()
        joins = cluster.intercept(JoinGroupRequest, lambda exchange: None)
        parked = follower.join_later(protocols=["range"])
        await joins.caught()
        assert cluster.move_coordinator(GROUP) == cluster.coordinator(GROUP) == 2
        assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
        assert await leader.heartbeat() == ErrorCode.NOT_COORDINATOR
        listed = await scene.admin.ask(ListGroupsRequest())
        assert listed.groups == []
        cluster.move_coordinator(GROUP, to=1)
        assert await leader.heartbeat() == 0  # the group is as it was when it was stable
        assert cluster.members(GROUP) == [leader.member_id, follower.member_id]


async def test_a_join_whose_connection_has_ended_leaves_nothing_behind() -> None:
    """Its member joins again over another one, which gets the answer: the coordinator forgets the first request."""
    async with Cluster(topics={"events": 2}) as cluster, _scene(cluster) as scene, asyncio.timeout(20):
        leader, follower = await scene.stable()
        broker = cluster._brokers[1]
        before = set(broker.serving)
        joins = cluster.intercept(JoinGroupRequest, lambda exchange: None)
        for number in range(20):
            async with connected(cluster.bootstrap) as client:
                client.send(follower.join_request(protocols=["range"]), 9)
                await joins.caught(number + 1)
        again = follower.join_later(protocols=["range"])
        await joins.caught(21)
        rejoined = leader.join_later()
        assert (await again).error_code == (await rejoined).error_code == 0
        await asyncio.gather(*broker.serving - before, return_exceptions=True)  # they end with their connections


async def test_a_coordinator_that_has_to_load_first() -> None:
    async with Cluster(topics={"events": 2}) as cluster, _scene(cluster) as scene:
        leader, _ = await scene.stable()
        for loading in (0.02, 5.0):  # a busy machine may be late with the first request
            cluster.move_coordinator(GROUP, to=1, loading=loading)
            code = await leader.commit()
            if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
        assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while (code := await leader.commit()) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        assert code == 0


async def test_what_is_due_at_once_is_done() -> None:
    """uvloop has no timer for it, but a handle that cannot tell when it is for; the next alarm is set beside it."""
    async with Cluster(topics={"events": 2}) as cluster, _scene(cluster) as scene:
        leader, _ = await scene.stable()
        cluster.move_coordinator("another", to=1, loading=1e-9)
        cluster.move_coordinator(GROUP, to=1, loading=1e-9)
        while (code := await leader.commit()) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        assert code == 0


async def _codes(cluster: Cluster, scene: Scene, *actors: Actor) -> list[int]:
    """Send a heartbeat of each member, over a new connection to its coordinator."""
    addresses = cluster.bootstrap.split(",")
    scene.bootstrap = addresses[cluster.coordinator(GROUP) - 1]
    codes = []
    for actor in actors:
        actor.client = (await scene.actor()).client
        codes.append(await actor.heartbeat())
    return codes


async def test_a_group_survives_its_coordinators() -> None:
    async with Cluster(brokers=3, topics={"events": 2}) as cluster, _scene(cluster) as scene:
        leader, follower = await scene.stable()
        assert await leader.commit(offset=7) == 0
        for died in (1, 2):
            cluster.take_down(died)
            assert await _codes(cluster, scene, leader, follower) == [0, 0]
            assert cluster.coordinator(GROUP) == died + 1
        cluster.take_down(3)
        cluster.bring_up(2)
        await _until_up(cluster, 2)
        assert await _codes(cluster, scene, leader, follower) == [0, 0]
        assert (cluster.coordinator(GROUP), cluster.committed(GROUP)) == (2, {PLACE: 7})


async def _until_up(cluster: Cluster, node_id: int) -> None:
    """Connect again and again until the broker accepts."""
    while True:
        try:
            async with connected(cluster.bootstrap, node_id):
                return
        except ConnectionRefusedError:
            pass


async def test_a_member_expires_by_hand() -> None:
    async with Cluster(topics={"events": 2}) as cluster, _scene(cluster) as scene:
        leader, follower = await scene.stable(static=True)
        assert cluster.expire_member(GROUP, "instance") == follower.member_id
        assert cluster.members(GROUP) == [leader.member_id]
        assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        with pytest.raises(LookupError, match="no member 'nobody'"):
            cluster.expire_member(GROUP, "nobody")
        assert cluster.expire_member(GROUP) == leader.member_id
        assert cluster.members(GROUP) == []


async def test_what_was_committed_goes_with_the_topic() -> None:
    async with Cluster(topics={"events": 2, "other": 1}) as cluster, _scene(cluster) as scene:
        leader, _ = await scene.stable()
        assert [await leader.commit(offset=7), await leader.commit(offset=9, topic="other")] == [0, 0]
        cluster.recreate_topic("events")
        assert cluster.committed(GROUP) == {aiokc.TopicPartition("other", 0): 9}


@pytest.mark.parametrize("committed", [True, False])
async def test_offsets_of_a_transaction_count_when_it_is_committed(committed: bool) -> None:
    async with Cluster(topics={"events": 2}) as cluster, _scene(cluster) as scene:
        leader, _ = await scene.stable()
        transaction = Transaction(leader)
        await transaction.begin()
        assert await transaction.commit_offset(5) == 0
        assert cluster.committed(GROUP) == {}
        await transaction.end(committed=committed)
        assert cluster.committed(GROUP) == ({PLACE: 5} if committed else {})


async def test_a_transaction_that_takes_too_long_leaves_no_offsets() -> None:
    async with Cluster(topics={"events": 2}) as cluster, _scene(cluster) as scene:
        leader, _ = await scene.stable()
        for timeout_ms in (500, 5_000):  # a busy machine may be too late for the first one
            transaction = Transaction(leader, timeout_ms=timeout_ms)
            with suppress(AssertionError):
                await transaction.begin()
                assert await transaction.commit_offset(5) == 0
                break
        else:
            raise AssertionError("no offset was committed")
        while await transaction.add_offsets() == 0:
            pass
        assert cluster.committed(GROUP) == {}
