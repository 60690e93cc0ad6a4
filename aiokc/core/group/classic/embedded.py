"""The subscription and the assignment of a member as bytes inside JoinGroup and SyncGroup: how to write and read them.

An int16 with the version comes before each message. Versions only ever append fields, so a version newer than those
known here is read as the newest known one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

from ....assignor import Assignment, MemberSubscription
from ....errors import MalformedResponse
from ....types import TopicPartition
from ....wire import Message, decode, decode_prefix, encode, prepare
from ....wire.messages.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from ...by_topic import by_topic

prepare(ConsumerProtocolSubscription, ConsumerProtocolAssignment)

M = TypeVar("M", bound=Message)


def write_subscription(member: MemberSubscription) -> bytes:
    return _with_version(
        ConsumerProtocolSubscription(
            topics=sorted(member.topics),
            user_data=member.user_data,
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(member.owned).items()
            ],
            generation_id=member.generation_id,
            rack_id=member.rack_id,
        )
    )


def read_subscription(metadata: bytes, group_instance_id: str | None) -> MemberSubscription:
    """Return what a member told the group when it joined. Raises MalformedResponse."""
    message = _as_far_as_it_goes(metadata)
    return MemberSubscription(
        frozenset(message.topics),
        tuple(TopicPartition(owned.topic, number) for owned in message.owned_partitions for number in owned.partitions),
        message.generation_id,
        bytes(message.user_data) if message.user_data is not None else None,
        message.rack_id,
        group_instance_id,
    )


def write_assignment(assignment: Assignment) -> bytes:
    return _with_version(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(assignment.partitions).items()
            ],
            user_data=assignment.user_data,
        )
    )


def read_assignment(data: bytes) -> Assignment:
    """Return a member's assignment, each partition once, even if named twice. Raises MalformedResponse."""
    message = _without_version(ConsumerProtocolAssignment, data)
    partitions = dict.fromkeys(
        TopicPartition(topic.topic, number) for topic in message.assigned_partitions for number in topic.partitions
    )
    return Assignment(tuple(partitions), bytes(message.user_data) if message.user_data is not None else None)


def _with_version(message: Message) -> bytes:
    version = message.max_version
    return version.to_bytes(2, "big") + encode(message, version)


def _as_far_as_it_goes(metadata: bytes) -> ConsumerProtocolSubscription:
    """Read a subscription. One that lacks the last fields of its version is read as the version that ends there.

    Some clients write version 1, and nothing behind the user data.
    """
    try:
        return _without_version(ConsumerProtocolSubscription, metadata)
    except MalformedResponse:
        for version in reversed(range(min(_version(metadata), ConsumerProtocolSubscription.max_version))):
            with suppress(MalformedResponse):
                return decode(ConsumerProtocolSubscription, memoryview(metadata)[2:], version)
        raise


def _without_version(cls: type[M], data: bytes) -> M:
    version = _version(data)
    if len(data) < 2 or version < cls.min_version:
        raise MalformedResponse(f"{cls.__name__}: no version in {bytes(data[:2])!r}")
    message, _ = decode_prefix(cls, memoryview(data)[2:], min(version, cls.max_version))
    return message


def _version(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)
