"""Groups that are converted or described in the middle of a change: the Cluster and a real Kafka agree."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc.error_codes import ErrorCode

from ..group_scene import Actor, Scene
from .consumer_scene import HELD, classic_group, described, member_of, partitions_of, topic_is_known

pytestmark = pytest.mark.every_kafka(since="4.3")

REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


@pytest.fixture
async def group(scene: Scene) -> Scene:
    await topic_is_known(scene)
    return scene


async def _parked_join(group: Scene) -> tuple[Actor, asyncio.Task[Any]]:
    """Let another classic member join, which waits for those that are there."""
    actor = await group.actor()
    actor.member_id = (await actor.ask(actor.join_request())).member_id
    joining = actor.join_later()
    await group.until("PreparingRebalance")
    return actor, joining


async def _completing(group: Scene, classic: Actor) -> Actor:
    """Let another one join, and the first one again; nobody has asked for an assignment. Return the other one."""
    other, joining = await _parked_join(group)
    classic.joined(await classic.ask(classic.join_request()))
    other.joined(await joining)
    return other


# Classic groups that are converted in the middle of a rebalance


async def test_a_parked_join_is_told_that_the_group_rebalances_and_keeps_its_member(group: Scene) -> None:
    classic = await classic_group(group)
    other, joining = await _parked_join(group)
    new = await member_of(group, "--")
    assert (await new.join(server_assignor="range")).error_code == 0
    assert new.held == frozenset(), "the classic member has it still"
    assert (await joining).error_code == REBALANCING
    assert {one.member_id for one in (await described(group)).members} == {classic.member_id, other.member_id, "--"}
    assert await classic.heartbeat() == REBALANCING


async def test_a_parked_sync_is_told_that_the_group_rebalances(group: Scene) -> None:
    classic = await classic_group(group)
    follower = next(one for one in (await _completing(group, classic), classic) if one.leader != one.member_id)
    syncing = follower.later(follower.sync_request())
    new = await member_of(group, "--")
    assert (await new.join(server_assignor="range")).error_code == 0
    assert new.held == frozenset(), "the classic member has it still"
    assert (await syncing).error_code == REBALANCING


async def test_a_group_that_rebalances_again_before_its_leader_has_assigned_has_forgotten_who_had_what(
    group: Scene,
) -> None:
    """So the member that converts it gets its partition at once, while the classic one may read it still."""
    classic = await classic_group(group)
    await _completing(group, classic)
    _, joining = await _parked_join(group)
    new = await member_of(group, "--")
    assert (await new.join(server_assignor="range")).error_code == 0
    assert new.held == {(group.topic, 0)}
    assert (await joining).error_code == REBALANCING


async def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(group: Scene) -> None:
    classic = await classic_group(group)
    assert await classic.commit(offset=5) == 0
    await classic.leave()
    one = await member_of(group, "one")
    assert (await one.join()).error_code == 0
    assert await one.fetch(None, "one") == 5
    assert (await described(group)).error_code == 0


async def test_a_classic_member_that_syncs_after_the_group_has_gone_on_is_sent_back(group: Scene) -> None:
    one, two, classic = await member_of(group, "one"), await member_of(group, "two"), await group.actor()
    await one.join(server_assignor="range")
    assert (await classic.join()).error_code == 0
    await two.join(server_assignor="range")
    assert (await classic.sync()).error_code == REBALANCING
    assert (await classic.join()).error_code == 0
    answer = await classic.sync()
    assert answer.error_code == 0
    assert partitions_of(answer.assignment) == []


# In the middle of a reconciliation


async def test_a_description_lists_what_is_being_given_up(group: Scene) -> None:
    one, two = await member_of(group, "one"), await member_of(group, "two")
    await one.join(server_assignor="range")
    await one.beat(owned=HELD)
    await two.join(server_assignor="range")
    await one.beat()
    assert one.held == {(group.topic, 0)}
    found = await described(group)
    members = {member.member_id: member for member in found.members}

    def listed(assignment: Any) -> list[int]:
        return sorted(number for topic in assignment.topic_partitions for number in topic.partitions)

    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Reconciling", 3, 3)
    assert (listed(members["one"].assignment), listed(members["one"].target_assignment)) == ([0, 1], [0])
    assert (listed(members["two"].assignment), listed(members["two"].target_assignment)) == ([], [1])
    assert (members["one"].member_epoch, members["two"].member_epoch) == (2, 3)


async def test_a_static_member_that_leaves_for_now_gives_up_what_it_was_to_give_up(group: Scene) -> None:
    one, two = await member_of(group, "one"), await member_of(group, "two")
    one.instance = "i"
    await one.join(server_assignor="range")
    await one.beat(owned=HELD)
    await two.join(server_assignor="range")
    await one.beat()
    await two.beat()
    assert one.held == {(group.topic, 0)}
    assert two.held == frozenset()
    assert await one.leave(-2) == 0
    await two.settle()
    assert two.held == {(group.topic, 1)}


async def test_a_static_member_that_leaves_for_good_frees_its_instance(group: Scene) -> None:
    one, twin = await member_of(group, "one"), await member_of(group, "twin")
    one.instance = twin.instance = "i"
    await one.join()
    await one.beat(owned=HELD)
    epoch = one.epoch
    assert await one.leave() == 0
    assert (await described(group)).members == []
    assert (await twin.join()).member_epoch > epoch
    assert len(twin.held) == 2


async def test_a_partition_that_comes_back_while_it_is_given_up_has_one_owner(group: Scene) -> None:
    """Until it is acknowledged, it counts as held by the one that gives it up, and is not given to it anew."""
    one, two = await member_of(group, "one"), await member_of(group, "two")
    await one.join(server_assignor="range")
    await one.beat(owned=HELD)
    await two.join(server_assignor="range")
    await one.beat()
    assert await two.leave() == 0
    assert (await one.beat()).assignment is None
    assert one.held == {(group.topic, 0)}
    await one.settle()
    assert one.held == {(group.topic, 0), (group.topic, 1)}
