"""Which partitions the members of a group claim to own, and which claim is valid: what sticky assignments start from.

A member that missed a rebalance still claims what it owned before. So each claim counts with its generation. Of several
claims to one partition the newest wins. Two claims of the same generation cancel each other out, because the group
leader cannot tell which of the two members reads the partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...assignor import NO_CLAIM, Claim, MemberSubscription
from ...errors import MalformedResponse
from ...types import TopicPartition
from ...wire import Message, Struct, decode_prefix, encode, field
from ...wire.primitives import Int32, String
from ..by_topic import by_topic
from .values import PartitionCounts, java_order


class StickyAssignorUserDataTopicPartition(Struct):
    topic: String
    partitions: list[Int32]


class StickyAssignorUserData(Message, versions="0-1"):
    """The user data of a member with ``sticky`` (version 1: KIP-341). The version itself is not on the wire."""

    previous_assignment: list[StickyAssignorUserDataTopicPartition]
    generation: Int32 = field("1+", default=-1, ignorable=True)


class CooperativeStickyAssignorUserData(Message, versions="0"):
    """The user data of a member with ``cooperative-sticky``: the generation of its owned partitions."""

    generation: Int32


@dataclass(frozen=True, slots=True)
class Claims:
    """The result of weighing the claims of all members.

    ``holders``: the member whose claim to each partition is valid. ``previous``: the member that claims it from before
    the group's newest generation, and may have it back where that helps the balance. ``contested``: partitions that two
    members claim in one generation, so that they have no holder.
    """

    holders: Mapping[TopicPartition, str]
    previous: Mapping[TopicPartition, str]
    contested: frozenset[TopicPartition]


def settle(claims: Mapping[str, Claim], counts: PartitionCounts) -> Claims:
    """Weigh the claims of all members to the partitions that exist."""
    order = sorted(claims, key=lambda member_id: (-claims[member_id].generation_id, java_order(member_id)))
    newest = claims[order[0]].generation_id if order else -1
    holders: dict[TopicPartition, str] = {}
    previous: dict[TopicPartition, str] = {}
    contested: set[TopicPartition] = set()
    for member_id in order:
        claim = claims[member_id]
        for tp in claim.partitions:
            if not 0 <= tp.partition < counts.get(tp.topic, 0):
                continue
            holder = holders.setdefault(tp, member_id)
            if holder != member_id and claims[holder].generation_id == claim.generation_id:
                contested.add(tp)
            if claim.generation_id < newest:
                previous.setdefault(tp, member_id)
    for tp in contested:
        del holders[tp]
    return Claims(holders, previous, frozenset(contested))


def sticky_user_data(claim: Claim) -> bytes | None:
    """Return the user data of a member with ``sticky``; None before its first assignment."""
    if claim.generation_id < 0:
        return None
    message = StickyAssignorUserData(
        previous_assignment=[
            StickyAssignorUserDataTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(claim.partitions).items()
        ],
        generation=claim.generation_id,
    )
    return encode(message, StickyAssignorUserData.max_version)


def cooperative_user_data(claim: Claim) -> bytes | None:
    """Return the user data of a member with ``cooperative-sticky``, for group leaders older than KIP-792."""
    return encode(CooperativeStickyAssignorUserData(generation=claim.generation_id), 0)


def sticky_claim(member: MemberSubscription) -> Claim:
    """Return what a member with ``sticky`` claims, by its user data: as an eager member, it owns nothing when it joins.

    User data that cannot be read is no claim, as in Java: that costs stickiness, but never fails a rebalance.
    """
    data = memoryview(member.user_data or b"")
    for version in (1, 0):
        try:
            message, _ = decode_prefix(StickyAssignorUserData, data, version)
        except MalformedResponse:
            continue
        partitions = (TopicPartition(t.topic, number) for t in message.previous_assignment for number in t.partitions)
        return Claim(tuple(partitions), message.generation)
    return NO_CLAIM


def cooperative_claim(member: MemberSubscription) -> Claim:
    """Return what a member with ``cooperative-sticky`` claims: its owned partitions.

    Their generation is in the subscription from its version 2 on (KIP-792); before, it was in the user data.
    """
    if member.generation_id >= 0:
        return Claim(member.owned, member.generation_id)
    try:
        message, _ = decode_prefix(CooperativeStickyAssignorUserData, memoryview(member.user_data or b""), 0)
    except MalformedResponse:
        return Claim(member.owned)
    return Claim(member.owned, message.generation)
