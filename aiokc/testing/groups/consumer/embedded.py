"""What classic consumers tell each other through the coordinator: subscriptions and assignments, as bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ....error_codes import ErrorCode
from ....errors import MalformedResponse
from ....wire import decode_prefix, encode
from ....wire.messages.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from ...refusal import Refusal
from ..topic_lookup import TopicLookup
from .members import TopicIdPartition

_NEWEST = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """A classic member's subscription. ``owned`` is what it holds; an eager member holds nothing when it joins."""

    topics: frozenset[str]
    owned: frozenset[TopicIdPartition]
    rack_id: str | None


def subscription_of(protocols: Mapping[str, bytes], topics: TopicLookup) -> Subscription:
    """Return the subscription of a member's first protocol. Raises Refusal where it can't be read."""
    metadata = memoryview(next(iter(protocols.values()), b""))
    version = min(int.from_bytes(metadata[:2], signed=True), _NEWEST)
    try:
        found, _ = decode_prefix(ConsumerProtocolSubscription, metadata[2:], version)
    except (MalformedResponse, ValueError) as error:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"unreadable subscription: {error}") from error
    owned = frozenset((topics.id_of(one.topic), number) for one in found.owned_partitions for number in one.partitions)
    return Subscription(frozenset(found.topics), owned, found.rack_id)


def partitions_in(assignment: bytes, topics: TopicLookup) -> frozenset[TopicIdPartition]:
    """Return the partitions of a classic member's assignment.

    Raises Refusal where it has user data: they are an assignor's of the clients' own, which the group can't do without.
    """
    if not assignment:
        return frozenset()
    view = memoryview(assignment)
    version = min(int.from_bytes(view[:2], signed=True), _NEWEST)
    try:
        found, _ = decode_prefix(ConsumerProtocolAssignment, view[2:], version)
    except (MalformedResponse, ValueError) as error:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"unreadable assignment: {error}") from error
    if found.user_data:
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, "a custom assignor with user data")
    return frozenset(
        (topics.id_of(one.topic), number)
        for one in found.assigned_partitions
        for number in one.partitions
        if topics.has_partition(one.topic, number)
    )


def assignment_of(
    partitions: Collection[TopicIdPartition], protocols: Mapping[str, bytes], topics: TopicLookup
) -> bytes:
    """Return an assignment as bytes, in the version in which the member has subscribed."""
    metadata = next(iter(protocols.values()), b"\0\0")
    version = max(0, min(int.from_bytes(metadata[:2], signed=True), _NEWEST))
    numbers: dict[str, list[int]] = {}
    for topic_id, number in sorted(partitions):
        name = topics.name_of(topic_id)
        if name is not None:
            numbers.setdefault(name, []).append(number)
    assigned = [
        ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=found) for name, found in numbers.items()
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=b"")
    return version.to_bytes(2) + encode(message, version)
