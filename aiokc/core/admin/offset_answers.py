"""Requests for all offsets of groups, and for changing a group from outside; what their answers say, item by item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ...error_codes import ErrorCode
from ...errors import CommitFailed, KafkaError, MalformedResponse, broker_error
from ...types import OffsetAndMetadata, TopicPartition, named
from ...wire.messages.group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ...wire.messages.group_admin import (
    DeleteGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ...wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from ..by_topic import by_topic
from .group_answers import group_refusal

#: OffsetFetch asks for several groups from this version on (KIP-709).
MANY_GROUPS: Final = 8
#: LeaveGroup names several members, and instances, from this version on (KIP-345).
MANY_MEMBERS: Final = 3
_REQUIRE_STABLE: Final = 7  # KIP-447

Offsets: TypeAlias = dict[TopicPartition, OffsetAndMetadata]

#: After these errors of an outsider's commit the group has members.
_HAS_MEMBERS: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


def all_offsets_request(group_ids: Sequence[str], version: int, *, stable: bool) -> OffsetFetchRequest:
    """Ask for everything that groups have committed. Before version 8 that is for the first group alone.

    ``stable``: with an error for an offset that an open transaction is about to replace.
    """
    stable = stable and version >= _REQUIRE_STABLE
    if version < MANY_GROUPS:
        return OffsetFetchRequest(group_id=group_ids[0], topics=None, require_stable=stable)
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
    return OffsetFetchRequest(groups=groups, require_stable=stable)


def all_offsets(
    response: OffsetFetchResponse, group_ids: Sequence[str], version: int
) -> dict[str, Offsets | KafkaError]:
    """Return the offsets of each group. An error of one partition is that of its group, whose answer it makes partial.

    A group that does not exist has committed nothing.
    """
    if version < MANY_GROUPS:
        old = {
            TopicPartition(topic.name, one.partition_index): (
                one.error_code,
                one.committed_offset,
                one.committed_leader_epoch,
                one.metadata,
            )
            for topic in response.topics
            for one in topic.partitions
        }
        return {group_ids[0]: _offsets(group_ids[0], response.error_code, old)}
    return {
        group.group_id: _offsets(
            group.group_id,
            group.error_code,
            {
                TopicPartition(topic.name, one.partition_index): (
                    one.error_code,
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.metadata,
                )
                for topic in group.topics
                for one in topic.partitions
            },
        )
        for group in response.groups
    }


def _offsets(
    group_id: str, code: int, told: Mapping[TopicPartition, tuple[int, int, int, str | None]]
) -> Offsets | KafkaError:
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    if code != ErrorCode.NONE:
        return group_refusal(code, group_id)
    for tp, (one_code, *_) in told.items():
        if one_code != ErrorCode.NONE:
            return broker_error(one_code, f"group {group_id!r}, {tp}", needs="DESCRIBE")
    return {
        tp: OffsetAndMetadata(offset, metadata or "", epoch if epoch >= 0 else None)
        for tp, (_, offset, epoch, metadata) in sorted(told.items())
        if offset >= 0
    }


# Changes


class Leaving(NamedTuple):
    """A member to remove, by its id, or by its instance id."""

    name: str
    is_instance: bool


def leave_request(group_id: str, leaving: Sequence[Leaving], reason: str, version: int) -> LeaveGroupRequest:
    """Remove these members; before version 3 the first one alone, which must be named by its member id."""
    if version < MANY_MEMBERS:
        return LeaveGroupRequest(group_id=group_id, member_id=leaving[0].name)
    return LeaveGroupRequest(
        group_id=group_id,
        members=[
            MemberIdentity(
                member_id="" if one.is_instance else one.name,
                group_instance_id=one.name if one.is_instance else None,
                reason=reason or None,
            )
            for one in leaving
        ],
    )


def left_members(response: LeaveGroupResponse, leaving: Sequence[Leaving], version: int) -> dict[Leaving, int]:
    """Return the error code of each member that the answer is about. Raises MalformedResponse if one is missing."""
    if version < MANY_MEMBERS or response.error_code != ErrorCode.NONE:
        return dict.fromkeys(leaving[:1] if version < MANY_MEMBERS else leaving, response.error_code)
    codes: dict[Leaving, int] = {}
    for one in response.members:
        # The coordinator answers a static member with its instance id, and with the id "" that was sent.
        name, is_instance = (one.group_instance_id, True) if one.group_instance_id else (one.member_id, False)
        codes[Leaving(name or "", is_instance)] = one.error_code
        codes.setdefault(Leaving(one.member_id, False), one.error_code)
    missing = [one.name for one in leaving if one not in codes]
    if missing:
        raise MalformedResponse(f"the answer to LeaveGroup says nothing about {', '.join(missing)}")
    return {one: codes[one] for one in leaving}


def deleted_groups(response: DeleteGroupsResponse) -> dict[str, KafkaError | None]:
    return {
        one.group_id: group_refusal(one.error_code, one.group_id, one.error_message, needs="DELETE")
        if one.error_code
        else None
        for one in response.results
    }


def delete_offsets_request(group_id: str, partitions: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
            )
            for topic, numbers in by_topic(partitions).items()
        ],
    )


def deleted_offsets(response: OffsetDeleteResponse, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the error code of each partition: that of the group, where the answer as a whole has one."""
    if response.error_code != ErrorCode.NONE:
        return dict.fromkeys(partitions, response.error_code)
    codes = {
        TopicPartition(topic.name, one.partition_index): one.error_code
        for topic in response.topics
        for one in topic.partitions
    }
    missing = [tp for tp in partitions if tp not in codes]
    if missing:
        raise MalformedResponse(f"the answer to OffsetDelete says nothing about {named(missing)}")
    return {tp: codes[tp] for tp in partitions}


def commit_refusal(code: int, group_id: str, tp: TopicPartition) -> KafkaError | None:
    """Return why an outsider's commit was refused; None where it was not."""
    if code == ErrorCode.NONE:
        return None
    if code in _HAS_MEMBERS:
        return CommitFailed(code, f"group {group_id!r}, {tp}: the group has members, and only they may commit")
    return broker_error(code, f"group {group_id!r}, {tp}", needs="READ")
