"""What an assignor gets to know about a group, and what it answers.

Whoever writes his own makes an Assignor of two functions on these values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from ..types import TopicPartition


class RebalanceProtocol(IntEnum):
    """How members rebalance (KIP-429): EAGER ones give up everything first, COOPERATIVE ones only what they must."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member says that it held, and in which generation (-1: in none that it knows)."""

    partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1


NO_CLAIM: Final = Claim()


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member of a group told the leader (Kafka's ConsumerProtocolSubscription).

    ``owned`` and ``generation_id`` say what the member holds and since when: sticky assignors build on them.
    """

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    user_data: bytes | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None


PartitionCounts: TypeAlias = Mapping[str, int]
Members: TypeAlias = Mapping[str, MemberSubscription]
#: member id -> partitions; every member has an entry, an empty one where it gets nothing.
GroupAssignment: TypeAlias = dict[str, list[TopicPartition]]


def no_user_data(claim: Claim) -> bytes | None:
    return None


@dataclass(frozen=True, slots=True)
class Assignor:
    """How a group decides who reads what, and the name that members agree on it by (partition.assignment.strategy).

    ``assign`` runs in the group's leader: it gets the partition counts of the topics that exist and what each member
    said when it joined, and returns the partitions of every member. ``user_data`` runs in each member that joins: what
    it returns for the member's last assignment is what the leader finds in MemberSubscription.user_data. ``protocols``
    are those that its assignments are right for: a cooperative one gives nobody what another member still owns.
    """

    name: str
    assign: Callable[[PartitionCounts, Members], GroupAssignment]
    user_data: Callable[[Claim], bytes | None] = no_user_data
    protocols: frozenset[RebalanceProtocol] = frozenset({RebalanceProtocol.EAGER})


def subscribed(counts: PartitionCounts, members: Members) -> list[str]:
    """The topics that somebody subscribes to and that exist; one without metadata is no error (it may come)."""
    wanted: set[str] = set().union(*(member.topics for member in members.values()))
    return sorted(topic for topic in wanted if counts.get(topic, 0) > 0)


def java_order(text: str) -> bytes:
    """Java compares strings by UTF-16 code units: "c10" < "c2", and U+1F600 < U+FF5E."""
    return text.encode("utf-16-be", "surrogatepass")
