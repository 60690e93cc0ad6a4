"""Reads what coordinators answer about groups: lists, and descriptions in three protocols, as one type of values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...admin import GroupDescription, GroupListing, MemberDescription
from ...assignor import MemberSubscription
from ...error_codes import ErrorCode
from ...errors import KafkaError, MalformedResponse, UnsupportedVersion, broker_error
from ...types import TopicPartition
from ...wire.messages.group_admin import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from ...wire.messages.group_description import (
    Assignment,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    DescribedShareGroup,
    ShareGroupDescribeResponse,
    ShareGroupMember,
)
from ..group.classic.embedded import read_assignment, read_subscription
from ..one_line import one_line
from .cluster_answers import operations

#: Types of groups, and of their protocols.
_CONSUMER: Final = "consumer"
_SHARE: Final = "share"
_DEAD: Final = "Dead"
_CLASSIC_MEMBER: Final = 0  # a member type of ConsumerGroupDescribe (KIP-1099)
_UNKNOWN_MEMBER: Final = -1

Described = dict[str, GroupDescription | KafkaError]


def listed_groups(response: ListGroupsResponse, coordinator: int) -> list[GroupListing]:
    return [
        GroupListing(one.group_id, one.group_type.lower(), one.group_state, one.protocol_type, coordinator)
        for one in response.groups
    ]


def group_refusal(code: int, group_id: str, why: str | None = None, *, needs: str = "DESCRIBE") -> KafkaError:
    return broker_error(code, f"group {group_id!r}" + (f": {one_line(why)}" if why else ""), needs=needs)


#: The API is there also where its feature (group.version, share.version) is off: then the answer is the second code.
_NOT_OF_THIS_KIND: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


def is_not_found(found: object) -> bool:
    """Whether the broker has no such group of the kind that it was asked for, or has that kind switched off."""
    return isinstance(found, KafkaError) and getattr(found, "code", None) in _NOT_OF_THIS_KIND


def is_undescribed(found: object) -> bool:
    """Whether the broker describes no such group, which may exist all the same: of another kind, or unknown to the API
    that the broker does not offer.
    """
    return is_not_found(found) or isinstance(found, UnsupportedVersion)


# Groups of the consumer protocol, and share groups


def described_consumer_groups(response: ConsumerGroupDescribeResponse, coordinator: int) -> Described:
    return {
        one.group_id: _described(one, _CONSUMER, tuple(map(_consumer_member, one.members)), coordinator)
        for one in response.groups
    }


def described_share_groups(response: ShareGroupDescribeResponse, coordinator: int) -> Described:
    return {
        one.group_id: _described(one, _SHARE, tuple(map(_share_member, one.members)), coordinator)
        for one in response.groups
    }


def _described(
    one: DescribedConsumerGroup | DescribedShareGroup,
    kind: str,
    members: tuple[MemberDescription, ...],
    coordinator: int,
) -> GroupDescription | KafkaError:
    """The two kinds are described in the same words, except for their members."""
    if one.error_code != ErrorCode.NONE:
        return group_refusal(one.error_code, one.group_id, one.error_message)
    return GroupDescription(
        group_id=one.group_id,
        type=kind,
        state=one.group_state,
        coordinator=coordinator,
        members=members,
        assignor=one.assignor_name,
        protocol_type=kind,
        epoch=one.group_epoch,
        assignment_epoch=one.assignment_epoch,
        authorized_operations=operations(one.authorized_operations),
    )


def _consumer_member(one: ConsumerGroupMember) -> MemberDescription:
    return MemberDescription(
        member_id=one.member_id,
        client_id=one.client_id,
        host=one.client_host,
        group_instance_id=one.instance_id,
        rack=one.rack_id,
        subscription=tuple(sorted(one.subscribed_topic_names)),
        subscription_pattern=one.subscribed_topic_regex or None,
        assignment=_partitions(one.assignment),
        target=_partitions(one.target_assignment),
        epoch=one.member_epoch,
        is_classic=None if one.member_type == _UNKNOWN_MEMBER else one.member_type == _CLASSIC_MEMBER,
    )


def _share_member(one: ShareGroupMember) -> MemberDescription:
    return MemberDescription(
        member_id=one.member_id,
        client_id=one.client_id,
        host=one.client_host,
        rack=one.rack_id,
        subscription=tuple(sorted(one.subscribed_topic_names)),
        assignment=_partitions(one.assignment),
        epoch=one.member_epoch,
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return _sorted(
        TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    )


# Groups of the classic protocol


def described_classic_groups(response: DescribeGroupsResponse, coordinator: int) -> Described:
    """Before Kafka 4.0 a group that does not exist is described as one that is Dead (KIP-1043): it becomes an error."""
    found: Described = {}
    for one in response.groups:
        code = one.error_code
        if code == ErrorCode.NONE and one.group_state == _DEAD:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        if code != ErrorCode.NONE:
            found[one.group_id] = group_refusal(code, one.group_id, one.error_message)
        else:
            found[one.group_id] = _classic_group(one, coordinator)
    return found


def _classic_group(one: DescribedGroup, coordinator: int) -> GroupDescription:
    is_of_consumers = one.protocol_type == _CONSUMER
    return GroupDescription(
        group_id=one.group_id,
        type="classic",
        state=one.group_state,
        coordinator=coordinator,
        members=tuple(_classic_member(member, is_of_consumers) for member in one.members),
        assignor=one.protocol_data,
        protocol_type=one.protocol_type,
        authorized_operations=operations(one.authorized_operations),
    )


def _classic_member(one: DescribedGroupMember, is_of_consumers: bool) -> MemberDescription:
    """Other users of groups, such as Kafka Connect, put bytes of their own where consumers have topics."""
    subscription = _subscription(one) if is_of_consumers else None
    return MemberDescription(
        member_id=one.member_id,
        client_id=one.client_id,
        host=one.client_host,
        group_instance_id=one.group_instance_id,
        rack=subscription.rack_id if subscription is not None else None,
        subscription=tuple(sorted(subscription.topics)) if subscription is not None else (),
        assignment=_assignment(one) if is_of_consumers else (),
    )


def _subscription(one: DescribedGroupMember) -> MemberSubscription | None:
    """Return None where the group is in a rebalance: then its coordinator does not tell."""
    try:
        return read_subscription(bytes(one.member_metadata), one.group_instance_id) if one.member_metadata else None
    except MalformedResponse:  # of a client that calls itself a consumer and is none; the others are still told
        return None


def _assignment(one: DescribedGroupMember) -> tuple[TopicPartition, ...]:
    try:
        return _sorted(read_assignment(bytes(one.member_assignment)).partitions) if one.member_assignment else ()
    except MalformedResponse:
        return ()


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partitions))
