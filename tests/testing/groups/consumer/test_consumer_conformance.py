"""Heartbeats, commits and descriptions of a consumer group: the Cluster and a real Kafka give the answers below."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.wire.messages.discovery import MetadataRequest, MetadataRequestTopic
from aiokc.wire.messages.group import MemberIdentity
from aiokc.wire.messages.group_admin import (
    DeleteGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokc.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic

from ...conftest import Kafka
from ..group_scene import Scene
from ..group_transactions import Transaction
from .consumer_scene import HELD, Member, described, member_of, topic_is_known

pytestmark = pytest.mark.every_kafka(since="4.3")

FENCED = ErrorCode.FENCED_MEMBER_EPOCH
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STALE = ErrorCode.STALE_MEMBER_EPOCH
INVALID = ErrorCode.INVALID_REQUEST
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


@pytest.fixture
async def group(scene: Scene) -> Scene:
    await topic_is_known(scene)
    return scene


async def _alone(group: Scene, member_id: str = "one", **changes: Any) -> Member:
    """Return a member that has joined first, and has acknowledged its assignment."""
    member = await member_of(group, member_id)
    assert (await member.join(server_assignor="range", **changes)).error_code == 0
    await member.beat(owned=HELD)
    return member


async def _pair(group: Scene) -> tuple[Member, Member]:
    """Return two members that have one partition each: "one" has 0, "two" has 1."""
    one, two = await _alone(group), await member_of(group, "two")
    await two.join(server_assignor="range")
    await one.settle()
    await one.settle()
    await two.settle()
    assert one.held == {(group.topic, 0)}
    assert two.held == {(group.topic, 1)}
    return one, two


# Requests that are refused

REFUSED: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "no member id": ({"member_id": ""}, INVALID),
    "no group id": ({"group_id": ""}, INVALID),
    "no instance id": ({"instance_id": ""}, INVALID),
    "no rack": ({"rack_id": ""}, INVALID),
    "no timeout": ({"rebalance_timeout_ms": -1}, INVALID),
    "owned is null": ({"topic_partitions": None}, INVALID),
    "no subscription": ({"subscribed_topic_names": None, "subscribed_topic_regex": None}, INVALID),
    "epoch -3": ({"member_epoch": -3}, INVALID),
    "-2 without an instance": ({"member_epoch": -2}, INVALID),
    "assignor": ({"server_assignor": "what"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    "pattern": ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    "look-ahead": ({"subscribed_topic_regex": "(?=a)b"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    "back-reference": ({"subscribed_topic_regex": r"(a)\1"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    "no such group": ({"member_epoch": 3}, NOT_FOUND),
    "leave no group": ({"member_epoch": -1}, NOT_FOUND),
}


@pytest.mark.parametrize("cell", [*REFUSED])
async def test_a_request_that_is_refused_and_creates_no_group(scene: Scene, cell: str) -> None:
    changes, code = REFUSED[cell]
    member = await member_of(scene, "one")
    answer = await member.join(**changes)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (code, 0, None)
    assert answer.error_message
    assert (await described(scene)).error_code == NOT_FOUND


# Epochs and what a member may hold


async def test_the_first_member(group: Scene) -> None:
    one = await member_of(group, "one")
    answer = await one.join()
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("one", 2, 500)
    assert len(one.held) == 2
    assert (await one.beat(owned=HELD)).assignment is None
    assert (await one.beat()).member_epoch == 2
    assert (await described(group)).group_state == "Stable"


async def test_a_partition_is_given_to_the_other_member_once_it_is_acknowledged(group: Scene) -> None:
    one, two = await _alone(group), await member_of(group, "two")
    joined = await two.join(server_assignor="range")
    assert (joined.member_epoch, two.held) == (3, frozenset())
    assert (await two.beat()).assignment is None
    taken = await one.beat()
    assert taken.member_epoch == 2
    assert one.held == {(group.topic, 0)}
    assert (await two.beat()).assignment is None  # it is not released yet
    assert (await one.beat()).assignment is None  # a keepalive acknowledges nothing
    assert (await two.beat()).assignment is None
    assert (await one.beat(owned=HELD)).member_epoch == 3
    await two.beat()
    assert two.held == {(group.topic, 1)}


async def test_an_epoch_that_is_not_the_coordinators(group: Scene) -> None:
    one, _ = await _pair(group)
    assert one.epoch == 3
    assert (await one.beat(member_epoch=4)).error_code == FENCED
    assert (await one.beat(member_epoch=2)).error_code == FENCED  # a keepalive one epoch behind
    assert (await one.beat(member_epoch=2, owned=[(group.topic, 0), (group.topic, 1)])).error_code == FENCED
    assert (await one.beat(member_epoch=2, owned=HELD)).error_code == 0  # what it owns is a subset
    assert (await one.beat(member_epoch=2, owned=())).error_code == 0
    assert (await one.beat(member_epoch=1, owned=HELD)).error_code == FENCED
    assert (await one.beat(owned=[(group.topic, 0), (group.topic, 1)])).error_code == 0  # too much passes unnoticed
    assert (await one.beat(member_id="who")).error_code == UNKNOWN


async def test_a_known_member_that_joins_again_keeps_epoch_and_assignment(group: Scene) -> None:
    one, two = await _pair(group)
    answer = await one.join()
    assert (answer.error_code, answer.member_epoch) == (0, 3)
    assert one.held == {(group.topic, 0)}
    assert (await two.beat()).assignment is None


async def test_a_full_heartbeat_is_answered_with_the_assignment(group: Scene) -> None:
    one = await _alone(group)
    answer = await one.full()
    assert answer.assignment is not None
    assert len(one.held) == 2


async def test_a_heartbeat_is_full_without_names_and_leaves_them_as_they_are(group: Scene) -> None:
    """That there is no pattern is enough of a subscription. Like each full one it may come one epoch behind."""
    one, _ = await _pair(group)
    answer = await one.full(member_epoch=2, subscribed_topic_names=None, subscribed_topic_regex="")
    assert (answer.error_code, answer.member_epoch) == (0, 3)
    assert answer.assignment is not None
    assert one.held == {(group.topic, 0)}
    found = (await described(group)).members
    assert {(*one.subscribed_topic_names, one.subscribed_topic_regex) for one in found} == {(group.topic, "")}
    unknown = await one.full(member_id="who", subscribed_topic_names=None, subscribed_topic_regex="")
    assert unknown.error_code == UNKNOWN


async def test_a_topic_that_is_not_subscribed_any_more_is_taken_away_at_once(group: Scene) -> None:
    one = await _alone(group)
    answer = await one.beat(subscribed_topic_names=[])
    assert (answer.member_epoch, one.held) == (2, frozenset())
    assert (await described(group)).group_state == "Reconciling"
    assert (await one.beat(owned=())).member_epoch == 3
    assert (await described(group)).group_state == "Stable"


async def test_a_member_that_does_not_give_up_in_time_is_removed_though_it_sends_heartbeats(group: Scene) -> None:
    one, two = await _alone(group, rebalance_timeout_ms=1_000), await member_of(group, "two")
    await two.join(server_assignor="range")
    while (code := (await one.beat()).error_code) == 0:
        pass
    assert code == UNKNOWN
    await two.settle()
    assert len(two.held) == 2


async def test_range_moves_partitions_that_could_stay(group: Scene) -> None:
    """A newcomer with a low id shifts everybody: "a" takes the partition of "b", which takes that of "c"."""
    members = [await member_of(group, name) for name in "bca"]
    for member in members:
        await member.join(server_assignor="range")
        for _ in range(3):
            for one in members:
                if one.epoch:
                    await one.beat(owned=HELD)
    b, c, a = members
    assert [one.held for one in (a, b, c)] == [{(group.topic, 0)}, {(group.topic, 1)}, frozenset()]


async def test_a_topic_that_is_created_later_is_assigned_by_somebodys_heartbeat(group: Scene, either: Kafka) -> None:
    one, late = await member_of(group, "one"), f"{group.group}-late"
    assert (await one.join(group.topic, late)).error_code == 0
    await one.beat(owned=HELD)
    assert len(one.held) == 2
    either.create_topic(late, 3)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=late)], allow_auto_topic_creation=False)
    one.topics[late] = (await group.admin.ask(asked, 12)).topics[0].topic_id
    while len(one.held) < 5:
        await one.beat(owned=HELD)
    assert one.epoch == 3


async def test_a_group_that_all_members_have_left(group: Scene) -> None:
    one, two = await _pair(group)
    assert [await one.leave(), await two.leave()] == [0, 0]
    assert await one.leave() == UNKNOWN
    found = await described(group)
    assert (found.group_state, found.group_epoch, found.members) == ("Empty", 5, [])


# Static members


async def _static(group: Scene, member_id: str = "one") -> Member:
    member = await member_of(group, member_id)
    member.instance = "i"
    assert (await member.join()).error_code == 0
    await member.beat(owned=HELD)
    return member


async def test_an_instance_that_has_not_left_is_not_released(group: Scene) -> None:
    one = await _static(group)
    twin = await member_of(group, "twin")
    twin.instance = "i"
    assert (await twin.join()).error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert (await one.join()).error_code == ErrorCode.UNRELEASED_INSTANCE_ID  # its own, too
    assert (await one.join(instance_id=None)).error_code == 0
    assert (await one.beat(member_id="twin", member_epoch=2)).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert (await one.beat(instance_id="other", member_epoch=2)).error_code == UNKNOWN


async def test_a_static_member_comes_back_under_another_id(group: Scene) -> None:
    one = await _static(group)
    held = one.held
    assert await one.leave(-2) == 0
    found = await described(group)
    assert (found.group_state, found.group_epoch, found.members[0].member_epoch) == ("Reconciling", 2, -2)
    twin = await member_of(group, "twin")
    twin.instance = "i"
    assert (await twin.join()).member_epoch == 2
    assert twin.held == held
    assert (await one.beat(member_epoch=2)).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert (await described(group)).group_state == "Stable"


async def test_a_static_member_that_says_that_it_left_may_join_again_under_its_own_id(group: Scene) -> None:
    """As one does whose join was not answered: it would be refused for a whole session."""
    one = await _static(group)
    held = one.held
    assert await one.leave(-2) == 0
    assert (await one.join()).member_epoch == 2
    assert one.held == held


async def test_what_a_successor_does_not_say_stays_as_its_predecessor_has_said_it(group: Scene) -> None:
    """Names alone leave a pattern in force."""
    one = await member_of(group, "one")
    one.instance, pattern = "i", group.topic[:-1] + "."
    await one.join(subscribed_topic_names=[], subscribed_topic_regex=pattern)
    assert await one.leave(-2) == 0
    twin = await member_of(group, "twin")
    twin.instance = "i"
    assert (await twin.join(subscribed_topic_regex=None)).error_code == 0
    (member,) = (await described(group)).members
    assert (member.member_id, member.subscribed_topic_regex) == ("twin", pattern)
    assert (await twin.beat(subscribed_topic_regex="")).error_code == 0
    (member,) = (await described(group)).members
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([group.topic], "")


@pytest.mark.long  # two sessions, less a few seconds
async def test_to_leave_for_now_does_not_prolong_the_session(group: Scene) -> None:
    loop = asyncio.get_running_loop()
    one = await _static(group)
    began = loop.time()
    await asyncio.sleep(4.0)
    assert await one.leave(-2) == 0
    while (await described(group)).members:
        pass
    assert 5.0 <= loop.time() - began <= 9.9, "a session is 6 s"


# Offsets


async def test_offsets_of_a_group_without_members(group: Scene) -> None:
    """Without a member id and an epoch they can be read and written, and a group that nobody knows has none."""
    nobody = await member_of(group, "")
    assert await nobody.fetch(-1, None) == -1
    assert await nobody.commit(0, epoch=-1, offset=7) == [0]
    assert await nobody.fetch(-1, None) == 7
    nobody.member_id = "who"
    assert await nobody.commit(0, epoch=3) == [UNKNOWN]


async def test_offsets_of_topics_that_somebody_subscribes_to_cannot_be_deleted(group: Scene) -> None:
    one = await _alone(group)
    assert await one.commit(0) == [0]
    topic = OffsetDeleteRequestTopic(name=group.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    request = OffsetDeleteRequest(group_id=group.group, topics=[topic])

    async def deleted() -> int:
        return int((await group.admin.ask(request)).topics[0].partitions[0].error_code)

    assert await deleted() == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    await one.beat(subscribed_topic_names=[])
    assert await deleted() == 0
    assert await one.fetch(None, "one") == -1


async def test_commits_by_epoch(group: Scene) -> None:
    one, two = await _pair(group)
    assert await one.commit(0, 1) == [0, 0]  # by its newest epoch a member may commit any partition
    assert await one.commit(0, epoch=2) == [0]  # it has partition 0 since epoch 2,
    assert await one.commit(0, 1, epoch=2) == [STALE, STALE]  # and the other one not any more
    assert await two.commit(1, epoch=2) == [STALE]
    assert await one.commit(0, epoch=4) == [STALE]
    assert await one.commit(0, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    assert await one.commit(0, version=10) == [0]
    one.member_id = ""
    assert await one.commit(0, epoch=-1) == [UNKNOWN]


@pytest.mark.long  # a session, and a little more
async def test_commits_do_not_keep_a_session_alive(group: Scene) -> None:
    one, loop = await _alone(group), asyncio.get_running_loop()
    began = loop.time()
    while (await one.commit(0))[0] == 0:
        pass
    assert loop.time() - began >= 5.0, "a session is 6 s, and this loop would have no end if commits kept it alive"
    assert (await one.beat()).error_code in (UNKNOWN, NOT_FOUND)


async def test_what_is_being_given_up_can_still_be_committed(group: Scene) -> None:
    one, two = await _alone(group), await member_of(group, "two")
    await two.join(server_assignor="range")
    await one.beat()
    assert await one.commit(0, 1) == [0, 0]


async def test_offsets_are_told_by_epoch(group: Scene) -> None:
    one, _ = await _pair(group)
    assert await one.fetch(None, "one") == -1
    await one.commit(0, offset=7)
    assert await one.fetch(None, "one") == 7
    assert await one.fetch(-1, None) == 7
    assert [await one.fetch(2, "one"), await one.fetch(4, "one")] == [STALE, STALE]
    assert await one.fetch(None, "who") == UNKNOWN


@pytest.mark.parametrize("version", [9, 10])
async def test_a_commit_with_a_topic_that_does_not_exist(group: Scene, version: int) -> None:
    """The other topics' offsets are stored."""
    one = await _alone(group)
    nowhere = UUID(int=77)
    topics = [
        OffsetCommitRequestTopic(
            name=name if version < 10 else "",
            topic_id=topic_id,
            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")],
        )
        for name, topic_id in ((f"{group.topic}-nowhere", nowhere), (group.topic, group.topic_id))
    ]
    request = OffsetCommitRequest(
        group_id=group.group, generation_id_or_member_epoch=one.epoch, member_id="one", topics=topics
    )
    answer = await one.client.ask(request, version)
    codes = {topic.name if version < 10 else topic.topic_id: topic.partitions[0].error_code for topic in answer.topics}
    if version < 10:
        assert codes == {f"{group.topic}-nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, group.topic: 0}
    else:
        assert codes == {nowhere: ErrorCode.UNKNOWN_TOPIC_ID, group.topic_id: 0}
    assert await one.fetch(None, "one") == 3


async def test_offsets_in_a_transaction_by_epoch(group: Scene) -> None:
    """Versions before 6 of TxnOffsetCommit have no word for a stale epoch."""
    one, _ = await _pair(group)
    actor = await group.actor()
    actor.member_id, actor.generation = "one", one.epoch
    transaction = Transaction(actor)
    await transaction.begin()
    assert await transaction.commit_offset(5, partition=0) == 0
    assert await transaction.commit_offset(generation_id_or_member_epoch=one.epoch + 1) == ErrorCode.ILLEGAL_GENERATION
    assert (
        await transaction.commit_offset(generation_id_or_member_epoch=one.epoch - 1, partition=1)
        == ErrorCode.ILLEGAL_GENERATION
    )
    assert await transaction.commit_offset(member_id="who") == UNKNOWN
    await transaction.end(committed=True)
    while await one.fetch(None, "one") != 5:
        pass


# Patterns


async def test_a_pattern_is_resolved_in_the_background(group: Scene) -> None:
    one = await member_of(group, "one")
    answer = await one.join(subscribed_topic_names=[], subscribed_topic_regex=group.topic[:-1] + ".")
    assert (answer.error_code, one.held) == (0, frozenset())
    while not one.held:
        await one.beat()
    assert len(one.held) == 2
    await one.beat(owned=HELD)
    await one.beat(subscribed_topic_regex="")
    assert one.held == frozenset()


async def test_a_pattern_that_replaces_the_only_one_takes_all_away_and_is_resolved_at_once(group: Scene) -> None:
    """A group that has another pattern still would have to wait: its patterns are resolved each 10 s at most."""
    one = await member_of(group, "one")
    await one.join(subscribed_topic_names=[], subscribed_topic_regex=group.topic[:-1] + ".")
    while not one.held:
        await one.beat()
    await one.beat(owned=HELD)
    await one.beat(subscribed_topic_regex=group.topic[:-1] + "[^x]")
    assert one.held == frozenset()
    async with asyncio.timeout(8.0):
        while not one.held:
            await one.beat(owned=HELD)


async def test_a_pattern_matches_whole_names_and_goes_with_its_last_member(group: Scene) -> None:
    """The patterns of those that stay are resolved already: nobody has to wait, and nothing is taken away."""
    one, two, three, four = [await member_of(group, name) for name in ("one", "two", "three", "four")]
    part, mine, other = group.topic[:-1], group.topic[:-1] + ".", group.topic[:-1] + "[^x]"
    for member, pattern in ((one, mine), (two, mine), (three, other), (four, part)):
        await member.join(subscribed_topic_names=[], subscribed_topic_regex=pattern, server_assignor="range")
    while not (one.held == {(group.topic, 0)} and three.held == {(group.topic, 1)}):  # range goes by member ids
        for member in (one, two, three, four):
            await member.beat(owned=HELD)
    assert two.held == four.held == frozenset()
    assert await three.leave() == await four.leave() == 0
    while not two.held:
        await one.beat(owned=HELD)
        await two.beat(owned=HELD)
    assert one.held | two.held == {(group.topic, 0), (group.topic, 1)}
    found = await described(group)
    assert {member.subscribed_topic_regex for member in found.members} == {mine}
    three.epoch = 0
    await three.join(subscribed_topic_names=[], subscribed_topic_regex=other)  # it is new to the group again
    assert three.held == frozenset()


# Administration


async def test_descriptions(group: Scene) -> None:
    await _pair(group)
    found = await described(group)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 3, 3)
    assert found.assignor_name == "range"
    first = min(found.members, key=lambda one: one.member_id)
    assert (first.member_id, first.member_epoch, first.member_type) == ("one", 3, 1)
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == ([group.topic], "")
    assert [(one.topic_name, one.partitions) for one in first.assignment.topic_partitions] == [(group.topic, [0])]
    assert first.target_assignment == first.assignment
    classic = await group.described()
    assert (classic.error_code, classic.group_state) == (NOT_FOUND, "Dead")
    assert classic.error_message == f"Group {group.group} is not a classic group."


async def test_lists_and_deletions(group: Scene) -> None:
    one = await _alone(group)
    listed = await group.admin.ask(ListGroupsRequest(types_filter=["Consumer"], states_filter=["STABLE"]))
    (mine,) = [each for each in listed.groups if each.group_id == group.group]
    assert (mine.protocol_type, mine.group_state, mine.group_type) == ("consumer", "Stable", "consumer")
    delete = DeleteGroupsRequest(groups_names=[group.group])
    assert (await group.admin.ask(delete)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await one.leave()
    assert (await group.admin.ask(delete)).results[0].error_code == 0
    assert (await described(group)).error_message == f"Group {group.group} not found."


async def test_an_administrator_removes_a_member(group: Scene) -> None:
    one, two = await _pair(group)
    await group.admin.leave(MemberIdentity(member_id="one"))
    assert (await one.beat()).error_code == UNKNOWN
    await two.settle()
    assert len(two.held) == 2
