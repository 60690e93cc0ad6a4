"""What the built-in assignors share: their type aliases, the topics to assign, and Java's order of members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from ...assignor import MemberSubscription
from ...types import TopicPartition

PartitionCounts: TypeAlias = Mapping[str, int]
Racks: TypeAlias = Mapping[TopicPartition, frozenset[str]]
Members: TypeAlias = Mapping[str, MemberSubscription]
NO_RACKS: Final[Racks] = {}
#: member id -> partitions; every member has an entry, an empty one where it gets nothing.
GroupAssignment: TypeAlias = dict[str, list[TopicPartition]]


def subscribed(counts: PartitionCounts, members: Members) -> list[str]:
    """Return the existing topics that any member subscribes to. One that does not exist is no error: it may come."""
    wanted: set[str] = set().union(*(member.topics for member in members.values()))
    return sorted(topic for topic in wanted if counts.get(topic, 0) > 0)


def java_order(text: str) -> bytes:
    """Return a key that sorts as Java compares strings, by UTF-16 code units: "c10" < "c2", and U+1F600 < U+FF5E."""
    return text.encode("utf-16-be", "surrogatepass")


def in_order(members: Members) -> list[str]:
    """Return the member ids as Java orders them: static members by instance id, then dynamic ones by member id.

    So a static member keeps its place, and with it its partitions, although each restart gives it a new member id.
    """

    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, java_order(member_id if instance_id is None else instance_id)

    return sorted(members, key=place)
