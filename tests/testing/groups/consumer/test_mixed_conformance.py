"""Classic members of consumer groups, and groups that change their protocol: the Cluster and a real Kafka agree."""

from __future__ import annotations

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.wire import encode
from aiokc.wire.messages.embedded import ConsumerProtocolSubscription

from ..group_scene import Scene, tried_again
from .consumer_scene import HELD, classic_group, described, member_of, partitions_of, topic_is_known

pytestmark = pytest.mark.every_kafka(since="4.3")

REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
NOTHING = b"\0\0" + encode(ConsumerProtocolSubscription(topics=[]), 0)


@pytest.fixture
async def group(scene: Scene) -> Scene:
    await topic_is_known(scene)
    return scene


async def test_the_first_member_of_the_consumer_protocol_converts_the_group(group: Scene) -> None:
    classic, new = await classic_group(group), await member_of(group, "zzz")
    generation = classic.generation
    joined = await new.join(server_assignor="range")
    assert (joined.error_code, joined.member_epoch, new.held) == (0, generation + 1, frozenset())
    found = await described(group)
    types = {one.member_id: one.member_type for one in found.members}
    assert types == {classic.member_id: 0, "zzz": 1}
    assert await classic.heartbeat() == REBALANCING
    answer = await classic.join()  # an eager member: what it does not name, it has given up
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, generation + 1, "")
    assert (answer.protocol_name, answer.members) == ("range", [])
    assert partitions_of((await classic.sync()).assignment) == [0]
    await new.settle()
    assert new.held == {(group.topic, 1)}
    assert await classic.heartbeat() == 0
    assert await classic.commit() == 0
    assert (await described(group)).group_state == "Stable"


async def test_a_cooperative_member_gives_up_under_the_generation_that_it_has(group: Scene) -> None:
    """Its generation is the same over a rejoin that takes something away, and grows once that is acknowledged."""
    classic, new = await classic_group(group), await member_of(group, "zzz")
    generation = classic.generation
    await new.join(server_assignor="range")
    assert await classic.heartbeat() == REBALANCING
    assert (await classic.join(owned=[0, 1])).generation_id == generation
    assert partitions_of((await classic.sync()).assignment) == [0]
    await new.beat(owned=HELD)
    assert new.held == frozenset()
    assert await classic.heartbeat() == REBALANCING
    assert (await classic.join(owned=[0])).generation_id == generation + 1
    assert partitions_of((await classic.sync()).assignment) == [0]
    await new.settle()
    assert new.held == {(group.topic, 1)}
    assert await classic.heartbeat() == 0


@pytest.mark.parametrize("joins_again", [False, True])
async def test_a_classic_member_that_does_not_do_its_part_in_time_is_removed(group: Scene, joins_again: bool) -> None:
    """It has its rebalance timeout to join again, and once more to ask for its assignment. No heartbeat prolongs it."""

    async def story(group: Scene, longer: int) -> None:
        classic, new = await group.actor(), await member_of(group, "zzz")
        await new.join(server_assignor="range")
        await new.beat(owned=HELD)
        assert (await classic.join(rebalance_timeout_ms=1_500 * longer)).error_code == 0
        assert (await classic.sync()).error_code == 0
        await new.settle()
        while await classic.heartbeat() != REBALANCING:
            pass
        if joins_again:
            assert (await classic.join(rebalance_timeout_ms=1_500 * longer)).error_code == 0
        while (code := await classic.heartbeat()) in (0, REBALANCING):
            pass
        assert code == ErrorCode.UNKNOWN_MEMBER_ID
        assert [one.member_id for one in (await described(group)).members] == ["zzz"]

    await tried_again(group, story)


async def test_the_last_member_of_the_consumer_protocol_takes_it_along(group: Scene) -> None:
    new = await member_of(group, "--")
    await new.join(server_assignor="range")
    await new.beat(owned=HELD)
    classic = await group.actor()
    assert (await classic.join()).generation_id == 3
    await new.settle()
    while await classic.heartbeat() != REBALANCING:
        pass
    assert (await classic.join()).error_code == 0
    assert partitions_of((await classic.sync()).assignment) == [1]
    assert await new.leave() == 0
    assert (await group.described()).group_state == "PreparingRebalance"
    assert await classic.heartbeat() == REBALANCING
    again = await classic.join()
    assert (again.error_code, again.generation_id, again.leader) == (0, 4, classic.member_id)
    assert (await new.beat()).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_classic_member_that_is_behind_when_the_group_becomes_classic_loses_everything(group: Scene) -> None:
    new, other = await member_of(group, "--"), await member_of(group, "-a")
    await new.join(server_assignor="range")
    await new.beat(owned=HELD)
    classic = await group.actor()
    behind = (await classic.join()).generation_id
    await new.settle()
    while await classic.heartbeat() != REBALANCING:
        pass
    assert (await classic.join()).error_code == 0
    assert partitions_of((await classic.sync()).assignment) == [1]
    assert await classic.heartbeat() == 0
    await other.join(server_assignor="range")  # the group goes on by two epochs, and the classic member has not joined
    assert await other.leave() == 0
    assert await new.leave() == 0
    assert (await group.described()).protocol_type == "consumer"
    assert await classic.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert await classic.commit() == ErrorCode.ILLEGAL_GENERATION
    again = await classic.join()
    assert (again.error_code, again.leader) == (0, classic.member_id)
    assert again.generation_id > behind + 1


async def test_a_group_with_an_assignor_of_its_own_stays_classic(group: Scene) -> None:
    await classic_group(group, b"mine")
    new = await member_of(group, "new")
    answer = await new.join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "custom assignor" in (answer.error_message or "")
    assert (await group.described()).group_state == "Stable"


async def test_members_may_have_different_protocols_with_one_in_common(group: Scene) -> None:
    new, one, two, odd = await member_of(group, "new"), await group.actor(), await group.actor(), await group.actor()
    await new.join()
    assert (await one.join(protocols=["range", "roundrobin"])).protocol_name == "range"
    assert (await two.join(protocols=["roundrobin", "range"])).protocol_name == "roundrobin"
    assert (await odd.join(protocols=["sticky"])).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("is_classic", [False, True])
@pytest.mark.parametrize(("reader", "left"), [("--", [0]), ("zzz", [])], ids=["first", "last"])
async def test_a_new_member_that_subscribes_to_nothing_while_an_assignment_is_due(
    group: Scene, reader: str, left: list[int], is_classic: bool
) -> None:
    """It counts as a member that subscribes to what the others do: it takes a share, or, if it is first, everything."""
    reads, leaves = await member_of(group, reader), await member_of(group, "other")
    await reads.join(server_assignor="range")
    await leaves.join(server_assignor="range")
    await leaves.leave()
    if is_classic:
        assert (await (await group.actor()).join(metadata=NOTHING)).error_code == 0
    else:
        idle = await member_of(group, "idle")
        assert (await idle.join(subscribed_topic_names=[])).error_code == 0
    await reads.settle()
    assert sorted(number for _, number in reads.held) == left
    await reads.full(subscribed_topic_names=[group.topic, "another"])  # the next epoch puts it right
    await reads.settle()
    assert sorted(number for _, number in reads.held) == [0, 1]


async def test_a_generation_or_a_protocol_that_is_not_the_members(group: Scene) -> None:
    new, classic = await member_of(group, "new"), await group.actor()
    await new.join()
    await classic.join()
    assert (await classic.sync(generation_id=77)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert (await classic.sync(protocol_name="sticky")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await classic.heartbeat(generation_id=77) == ErrorCode.ILLEGAL_GENERATION
    assert await classic.heartbeat(member_id="new", generation_id=2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await classic.commit(generation_id_or_member_epoch=77) == ErrorCode.ILLEGAL_GENERATION


async def test_a_member_changes_its_protocol_under_its_id(group: Scene) -> None:
    other, classic = await member_of(group, "other"), await group.actor()
    await other.join()
    await classic.join()
    same = await member_of(group, classic.member_id)
    assert (await same.join()).error_code == 0
    assert await classic.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    answer = await classic.join()
    assert (answer.error_code, answer.leader) == (0, "")
    assert (await same.beat()).error_code == 0  # and a heartbeat of the current epoch takes it back


async def test_a_static_twin_of_the_other_protocol_replaces_a_member_that_has_not_left(group: Scene) -> None:
    keeps = await member_of(group, "keeps")
    await keeps.join()
    classic = await group.actor()
    classic.instance = "i"
    assert (await classic.join()).error_code == 0
    twin = await member_of(group, "twin")
    twin.instance = "i"
    assert (await twin.join()).error_code == 0
    assert await classic.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    back = await group.actor()
    back.instance = "i"
    assert (await back.join()).error_code == 0
    assert (await twin.beat()).error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_an_empty_group_becomes_a_classic_one_and_keeps_its_offsets(group: Scene) -> None:
    one = await member_of(group, "one")
    await one.join()
    assert await one.commit(0, offset=5) == [0]
    await one.leave()
    classic = await group.actor()
    assert (await classic.join()).error_code == 0
    assert (await group.described()).group_state == "CompletingRebalance"
    assert await one.fetch(-1, None) == 5
