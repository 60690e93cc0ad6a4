"""Sequences of events in groups: each step gets the same answers from the Cluster and from a real Kafka."""

from __future__ import annotations

import asyncio

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.wire.messages.group import JoinGroupResponse, JoinGroupResponseMember, MemberIdentity, SyncGroupResponse
from aiokc.wire.messages.group_admin import DeleteGroupsRequest

from .group_scene import PARKED, Actor, Scene, answered, subscription, tried_again

pytestmark = pytest.mark.every_kafka


async def _until_code(actor: Actor, code: ErrorCode) -> None:
    """Send heartbeats until this is the answer."""
    while await actor.heartbeat() != code:
        pass


# What the answers say


async def test_a_member_id_is_required(scene: Scene) -> None:
    newcomer = await scene.actor()
    for version, name in ((4, ""), (6, ""), (7, None), (9, None)):
        answer: JoinGroupResponse = await newcomer.ask(newcomer.join_request(), version)
        assert answer.member_id.startswith("tests-")  # the client id
        assert answer == JoinGroupResponse(
            error_code=ErrorCode.MEMBER_ID_REQUIRED,
            generation_id=-1,
            protocol_name=name,
            leader="",
            member_id=answer.member_id,
            members=[],
        )


async def test_a_refused_member_hears_its_own_id(scene: Scene) -> None:
    stranger = await scene.actor()
    stranger.member_id = "who"
    unknown: JoinGroupResponse = await stranger.ask(stranger.join_request(), 9)
    short: JoinGroupResponse = await stranger.ask(stranger.join_request(session_timeout_ms=1), 9)
    nowhere: JoinGroupResponse = await stranger.ask(stranger.join_request(group_id=""), 9)
    assert [one.member_id for one in (unknown, short, nowhere)] == ["who"] * 3
    assert [one.generation_id for one in (unknown, short, nowhere)] == [-1] * 3


async def test_the_leader_gets_the_list_of_members(scene: Scene) -> None:
    leader, follower = await scene.completing(static=True)
    to_leader: JoinGroupResponse = await leader.ask(leader.join_request())
    to_follower: JoinGroupResponse = await follower.ask(follower.join_request())
    metadata = subscription(scene.topic)
    members = [
        JoinGroupResponseMember(member_id=one.member_id, group_instance_id=one.instance, metadata=metadata)
        for one in (leader, follower)
    ]
    assert sorted(to_leader.members, key=str) == sorted(members, key=str)
    assert to_follower.members == []
    assert follower.member_id.startswith("instance-")
    for answer, member in ((to_leader, leader), (to_follower, follower)):
        assert (answer.generation_id, answer.protocol_type, answer.protocol_name) == (2, "consumer", "range")
        assert (answer.leader, answer.member_id, answer.skip_assignment) == (leader.member_id, member.member_id, False)


async def test_a_description_has_what_members_sent(scene: Scene) -> None:
    members = await scene.stable(static=True)
    described = {one.member_id: one for one in (await scene.described()).members}
    for member in members:
        found = described[member.member_id]
        assert (found.group_instance_id, found.client_id, found.client_host) == (member.instance, "tests", "/127.0.0.1")
        assert found.member_metadata == subscription(scene.topic)
        assert found.member_assignment == member.member_id.encode()


# Joining


async def test_a_rebalance_waits_for_a_member_that_was_given_an_id(scene: Scene) -> None:
    leader, follower = await scene.stable()
    newcomer, other = await scene.actor(), await scene.actor()
    for one in (newcomer, other):
        one.member_id = (await one.ask(one.join_request())).member_id
    assert await leader.heartbeat() == 0  # to be given an id begins nothing
    joins = [leader.join_later()]
    await scene.until("PreparingRebalance")
    joins += [follower.join_later(), newcomer.join_later()]
    assert await answered(joins[0]) == PARKED
    left = await other.leave()
    assert [one.error_code for one in left.members] == [0]
    assert [(await join).generation_id for join in joins] == [3, 3, 3]


async def test_an_id_that_was_given_expires(scene: Scene) -> None:
    async def story(scene: Scene, longer: int) -> None:
        leader, follower = await scene.stable()
        newcomer = await scene.actor()
        await newcomer.ask(newcomer.join_request(session_timeout_ms=2000 * longer))
        await follower.leave()
        join = leader.join_later()
        assert await answered(join) == PARKED
        assert (await join).generation_id == 3

    await tried_again(scene, story)


async def test_an_id_that_was_given_is_no_static_member(scene: Scene) -> None:
    newcomer = await scene.actor()
    newcomer.member_id = (await newcomer.ask(newcomer.join_request())).member_id
    answer = await newcomer.ask(newcomer.join_request(group_instance_id="instance"))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_the_protocol_with_the_most_votes(scene: Scene) -> None:
    leader = await scene.actor()
    assert (await leader.join(protocols=["range", "roundrobin", "sticky"])).protocol_name == "range"
    await leader.sync(leader)
    second, third = await scene.actor(), await scene.actor()
    joins = [one.join_later(3, protocols=["sticky", "roundrobin"]) for one in (second, third)]
    while len((await scene.described()).members) < 3:
        pass
    assert (await leader.join(protocols=["range", "roundrobin", "sticky"])).protocol_name == "sticky"
    assert {(await join).protocol_name for join in joins} == {"sticky"}


async def test_generations_are_counted_through_an_empty_group(scene: Scene) -> None:
    leader, _ = await scene.empty()
    described = await scene.described()
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])
    leader.member_id = ""
    assert (await leader.join()).generation_id == 4  # the third one was that without members


async def test_a_changed_member_begins_a_rebalance(scene: Scene) -> None:
    leader, follower = await scene.completing()
    sync = leader.later(leader.sync_request(member_id=follower.member_id))
    changed = follower.join_later(protocols=["roundrobin", "range"])
    assert await sync == SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b"")
    await leader.join()
    assert (await changed).generation_id == leader.generation == 3


# Assignments


async def test_a_member_that_is_not_assigned_anything_gets_nothing(scene: Scene) -> None:
    leader, follower = await scene.completing()
    sync = follower.later(follower.sync_request())
    assert await answered(sync) == PARKED
    assert (await leader.sync(leader)).assignment == leader.member_id.encode()
    assert await sync == SyncGroupResponse(
        error_code=0, protocol_type="consumer", protocol_name="range", assignment=b""
    )
    assert (await leader.sync(follower)).assignment == leader.member_id.encode()  # too late


async def test_a_member_that_leaves_gets_no_assignment(scene: Scene) -> None:
    leader, follower = await scene.completing()
    sync = follower.later(follower.sync_request())
    assert await answered(sync) == PARKED
    await scene.admin.leave(MemberIdentity(member_id=follower.member_id))
    await leader.join()
    assert (leader.generation, await answered(sync)) == (3, PARKED)


async def test_a_member_that_never_asks_for_its_assignment_is_removed(scene: Scene) -> None:
    async def story(scene: Scene, longer: int) -> None:
        leader, follower = await scene.actor(), await scene.actor()
        await leader.join(rebalance_timeout_ms=2000 * longer)
        await leader.sync(leader)
        join = follower.join_later(3, rebalance_timeout_ms=2000 * longer)
        await scene.until("PreparingRebalance")
        await leader.join(rebalance_timeout_ms=2000 * longer)
        follower.joined(await join)
        await leader.sync(leader, follower)
        await _until_code(leader, ErrorCode.REBALANCE_IN_PROGRESS)
        assert await follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    await tried_again(scene, story)


# Sessions and timeouts


async def test_a_silent_member_is_removed(scene: Scene) -> None:
    async def story(scene: Scene, longer: int) -> None:
        leader, follower = await scene.stable()
        changed = follower.join_later(session_timeout_ms=2000 * longer, protocols=["range"])
        await leader.join()
        follower.joined(await changed)
        sync = follower.later(follower.sync_request())
        await leader.sync(leader, follower)
        await sync
        assert await leader.heartbeat() == 0
        await _until_code(leader, ErrorCode.REBALANCE_IN_PROGRESS)
        assert await follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        answer = await leader.join()
        assert (answer.generation_id, [one.member_id for one in answer.members]) == (4, [leader.member_id])

    await tried_again(scene, story)


async def test_a_member_that_waits_in_join_group_is_not_silent(scene: Scene) -> None:
    leader, follower = await scene.stable()
    join = follower.join_later(session_timeout_ms=1000, protocols=["range"])
    await _until_code(leader, ErrorCode.REBALANCE_IN_PROGRESS)
    assert not (await asyncio.wait({join}, timeout=1.5))[0]
    assert len((await leader.join()).members) == 2


async def test_a_member_that_does_not_join_in_time_is_removed(scene: Scene) -> None:
    async def story(scene: Scene, longer: int) -> None:
        leader, follower = await scene.actor(), await scene.actor()
        await leader.join(rebalance_timeout_ms=1000 * longer)
        await leader.sync(leader)
        answer = follower.joined(await follower.ask(follower.join_request(rebalance_timeout_ms=500 * longer), 3))
        assert (answer.generation_id, answer.leader, len(answer.members)) == (2, follower.member_id, 1)
        assert await leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    await tried_again(scene, story)


async def test_the_next_one_leads_when_the_leader_leaves(scene: Scene) -> None:
    leader, follower = await scene.stable()
    await leader.leave()
    assert await follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    answer = await follower.join()
    assert (answer.leader, answer.generation_id, len(answer.members)) == (follower.member_id, 3, 1)


async def test_leaving_ends_a_rebalance(scene: Scene) -> None:
    leader, follower = await scene.preparing()
    join = leader.join_later()
    assert await answered(join) == PARKED
    await follower.leave()
    assert len((await join).members) == 2


async def test_a_member_that_is_removed_while_it_joins_joins_anew(scene: Scene) -> None:
    _, follower = await scene.preparing()
    join = follower.join_later()
    assert await answered(join) == PARKED
    await scene.admin.leave(MemberIdentity(member_id=follower.member_id))
    answer: JoinGroupResponse = await join
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


async def test_several_members_leave_at_once(scene: Scene) -> None:
    leader, follower = await scene.stable(static=True)
    answer = await scene.admin.leave(
        MemberIdentity(member_id=leader.member_id),
        MemberIdentity(member_id="who"),
        MemberIdentity(member_id="", group_instance_id="instance"),
        MemberIdentity(member_id="", group_instance_id=None),
        version=3,
    )
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in answer.members] == [
        (leader.member_id, None, 0),
        ("who", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "instance", 0),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert await follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await scene.described()).group_state == "Empty"


@pytest.mark.every_kafka(since="4.0")
async def test_a_deleted_group_starts_from_nothing(scene: Scene) -> None:
    leader, _ = await scene.empty()
    assert await scene.admin.commit() == 0
    await scene.admin.ask(DeleteGroupsRequest(groups_names=[scene.group]))
    assert (await scene.described()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    leader.member_id = ""
    assert (await leader.join()).generation_id == 1
