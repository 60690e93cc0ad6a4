"""Auto-commit of what the user leaves by his own wish: unsubscribe(), and another assign()."""

from __future__ import annotations

import pytest

from aiokc.types import TopicPartition
from aiokc.wire.messages.group import LeaveGroupRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest

from .group_member import GroupMember, soon
from .scripted_group import ScriptedGroup, scripted_group

pytestmark = pytest.mark.timeout(30)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
SLOW = {"auto_commit_interval_ms": 60_000}


def commits(brokers: ScriptedGroup) -> list[tuple[int, dict[int, int]]]:
    """Each OffsetCommit: the generation that it named, and its offsets by partition."""
    return [
        (
            request.generation_id_or_member_epoch,
            {part.partition_index: part.committed_offset for topic in request.topics for part in topic.partitions},
        )
        for request in brokers.of(OffsetCommitRequest)
    ]


async def test_unsubscribe_commits_what_earlier_calls_returned_before_it_leaves_the_group() -> None:
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", "t", **SLOW) as member:
        await member.assigned(2)
        member.take(ZERO, 5)
        member.take(ONE, 3)
        member.poll()
        member.take(ZERO, 9)
        member.unsubscribe()
        assert not member.assignment
        await brokers.until(lambda: bool(brokers.of(LeaveGroupRequest)))
        assert commits(brokers) == [(1, {0: 5, 1: 3})], "as a member, and without what is in the user's hands"
        kinds = [type(asked.request) for asked in brokers.asked]
        assert kinds.index(OffsetCommitRequest) < kinds.index(LeaveGroupRequest)


async def test_unsubscribe_commits_nothing_twice() -> None:
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", "t", **SLOW) as member:
        await member.assigned(2)
        member.take(ZERO, 5)
        await member.coordinator.commit(member.subscription.consumed(), timeout=10)
        member.unsubscribe()
        await brokers.until(lambda: bool(brokers.of(LeaveGroupRequest)))
        assert commits(brokers) == [(1, {0: 5})]


async def test_unsubscribe_and_stop_at_once() -> None:
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", "t", **SLOW) as member:
        await member.assigned(2)
        member.take(ZERO, 5)
        member.poll()
        member.unsubscribe()
        await soon(member.leave())
        assert brokers.committed == {ZERO: 5}


async def test_another_subscription_right_after_unsubscribe_loses_no_commit() -> None:
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", "t", **SLOW) as member:
        await member.assigned(2)
        member.take(ZERO, 5)
        member.poll()
        member.unsubscribe()
        member.subscribe("t")
        await member.assigned(2)
        assert brokers.committed == {ZERO: 5}


async def test_another_assignment_by_hand_commits_the_former_one_at_once() -> None:
    async with scripted_group() as brokers, GroupMember(brokers.bootstrap, "g", **SLOW) as member:
        member.assign(ZERO)
        member.take(ZERO, 5)
        member.poll()
        member.assign(ONE)
        await brokers.until(lambda: brokers.committed == {ZERO: 5})
        assert commits(brokers) == [(-1, {0: 5})], "outside of the group"
        member.take(ONE, 7)
        member.poll()
        member.unsubscribe()
        await brokers.until(lambda: brokers.committed == {ZERO: 5, ONE: 7})
