"""Static members (KIP-345) at the Cluster and at a real Kafka."""

from __future__ import annotations

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.wire.messages.group import JoinGroupResponse, MemberIdentity, SyncGroupResponse

from .group_scene import PARKED, Actor, Scene, answered, tried_again
from .group_transactions import commit_in_transaction

pytestmark = pytest.mark.every_kafka

FENCED = ErrorCode.FENCED_INSTANCE_ID


async def _reborn(scene: Scene) -> Actor:
    """Return a client that has the instance id and no member id yet."""
    born = await scene.actor()
    born.instance = "instance"
    return born


async def test_one_that_comes_back_has_its_assignment_without_a_rebalance(scene: Scene) -> None:
    leader, old = await scene.stable(static=True)
    new = await _reborn(scene)
    answer = await new.join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 2, leader.member_id)
    assert (answer.members, answer.skip_assignment) == ([], False)
    assert new.member_id != old.member_id
    assert (await new.sync()).assignment == old.member_id.encode()
    assert [await leader.heartbeat(), await new.heartbeat()] == [0, 0]
    assert (await scene.described()).group_state == "Stable"


async def test_the_one_before_is_fenced_everywhere(scene: Scene) -> None:
    _, old = await scene.stable(static=True)
    await (await _reborn(scene)).join()
    assert await old.heartbeat() == FENCED
    assert (await old.sync()).error_code == FENCED
    assert await old.commit() == FENCED
    assert await commit_in_transaction(old) == FENCED
    assert [one.error_code for one in (await old.leave()).members] == [FENCED]
    refused: JoinGroupResponse = await old.ask(old.join_request())
    assert (refused.error_code, refused.member_id) == (FENCED, old.member_id)


async def test_without_its_instance_id_the_one_before_is_unknown(scene: Scene) -> None:
    _, old = await scene.stable(static=True)
    await (await _reborn(scene)).join()
    old.instance = None
    assert await old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


async def _static_leader(scene: Scene) -> Actor:
    leader = await _reborn(scene)
    await leader.join()
    await leader.sync(leader)
    assert leader.leader == leader.member_id
    return leader


@pytest.mark.every_kafka(since="3.9")
async def test_a_leader_that_comes_back_skips_the_assignment(scene: Scene) -> None:
    """KIP-814: it leads, knows the members, and must not assign."""
    old = await _static_leader(scene)
    new = await _reborn(scene)
    answer = await new.join()
    assert (answer.leader, answer.skip_assignment, answer.generation_id) == (new.member_id, True, 1)
    assert [one.member_id for one in answer.members] == [new.member_id]
    assert (await new.sync()).assignment == old.member_id.encode()


async def test_a_leader_of_an_old_client_that_comes_back_takes_itself_for_a_follower(scene: Scene) -> None:
    old = await _static_leader(scene)
    answer = await (await _reborn(scene)).join(8)
    assert (answer.leader, answer.members, answer.skip_assignment) == (old.member_id, [], False)


async def test_one_that_comes_back_with_another_choice_begins_a_rebalance(scene: Scene) -> None:
    leader, _ = await scene.stable(static=True)
    join = (await _reborn(scene)).join_later(protocols=["roundrobin"])
    assert await answered(join) == PARKED
    assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await leader.join()).protocol_name == (await join).protocol_name == "roundrobin"


async def test_one_that_comes_back_amid_an_assignment_begins_a_rebalance(scene: Scene) -> None:
    leader, old = await scene.completing(static=True)
    sync = old.later(old.sync_request())
    assert await answered(sync) == PARKED
    join = (await _reborn(scene)).join_later()
    assert await sync == SyncGroupResponse(error_code=FENCED, assignment=b"")
    assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert len((await leader.join()).members) == 2
    assert (await join).generation_id == 3


async def test_one_that_comes_back_in_a_rebalance_takes_its_place(scene: Scene) -> None:
    leader, old = await scene.preparing(static=True)
    waiting = old.join_later()
    assert await answered(waiting) == PARKED
    new = await _reborn(scene)
    join = new.join_later()
    fenced: JoinGroupResponse = await waiting
    assert (fenced.error_code, fenced.member_id) == (FENCED, old.member_id)
    assert len((await leader.join()).members) == 3
    assert (await join).generation_id == 3


async def test_one_that_does_not_join_in_time_stays(scene: Scene) -> None:
    """A rebalance goes on without it; only the end of its session removes it."""

    async def story(scene: Scene, longer: int) -> None:
        leader, follower = await scene.actor(), await _reborn(scene)
        await leader.join(rebalance_timeout_ms=2000 * longer)
        await leader.sync(leader)
        join = follower.join_later(rebalance_timeout_ms=2000 * longer)
        await scene.until("PreparingRebalance")
        await leader.join(rebalance_timeout_ms=2000 * longer)
        follower.joined(await join)
        sync = follower.later(follower.sync_request())
        await leader.sync(leader, follower)
        await sync
        answer = await leader.join(rebalance_timeout_ms=2000 * longer)  # the follower does not join
        assert (answer.generation_id, len(answer.members)) == (3, 2)
        assert await follower.heartbeat() == ErrorCode.ILLEGAL_GENERATION

    await tried_again(scene, story)


async def test_an_administrator_removes_one_by_its_instance_id(scene: Scene) -> None:
    _, follower = await scene.stable(static=True)
    removed = MemberIdentity(member_id="", group_instance_id="instance")
    assert [one.error_code for one in (await scene.admin.leave(removed)).members] == [0]
    assert await follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
