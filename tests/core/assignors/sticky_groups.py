"""A short notation of groups, for the tests of the sticky assignors."""

from __future__ import annotations

from collections.abc import Iterable

from aiokc.assignor import Claim, MemberSubscription
from aiokc.core.assignors.sticky_claims import sticky_user_data
from aiokc.core.assignors.values import GroupAssignment
from aiokc.types import TopicPartition


def partitions(text: str) -> list[TopicPartition]:
    """ "A0 B12" -> [A-0, B-12]; topics have names of one letter."""
    return [TopicPartition(name[0], int(name[1:])) for name in text.split()]


def member(topics: Iterable[str], held: Iterable[TopicPartition] = (), generation_id: int = 5) -> MemberSubscription:
    """A member that claims ``held`` in its user data (for sticky) and in its subscription (for cooperative-sticky)."""
    held = tuple(held)
    return MemberSubscription(frozenset(topics), held, generation_id, sticky_user_data(Claim(held, generation_id)))


def group(**said: str) -> dict[str, MemberSubscription]:
    """c0="AB: A0 B1 @4" -> a member that subscribes to A and B and owned A-0 and B-1 in generation 4 (default: 5)."""
    members = {}
    for member_id, text in said.items():
        topics, _, held = text.partition(":")
        held, _, generation_id = held.partition("@")
        members[member_id] = member(topics, partitions(held), int(generation_id or 5))
    return members


def short(assignment: GroupAssignment) -> dict[str, str]:
    """{"c0": [B-0, A-1]} -> {"c0": "A1 B0"}"""
    return {member_id: " ".join(f"{t}{p}" for t, p in sorted(held)) for member_id, held in assignment.items()}
