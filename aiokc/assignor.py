"""Assignors of one's own: what they get to know about a group, and what they answer.

The members of a group agree on one assignor by its name; the group's leader runs it. ``range``, ``roundrobin``,
``sticky`` and ``cooperative-sticky`` are there already (the same as Java's), and whatever has the methods of Assignor
can stand beside their names in ``partition_assignment_strategy``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol, runtime_checkable

from .types import TopicPartition


class RebalanceProtocol(IntEnum):
    """How members rebalance (KIP-429): EAGER ones give up everything first, COOPERATIVE ones only what they must."""

    EAGER = 0
    COOPERATIVE = 1


EAGER_ONLY: Final = frozenset({RebalanceProtocol.EAGER})


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member was assigned last, and in which generation of the group (-1: in none that it knows)."""

    partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1


NO_CLAIM: Final = Claim()


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member told the group when it joined (Kafka's ConsumerProtocolSubscription).

    ``owned`` is what a cooperative member still reads, and ``generation_id`` since when it may (-1: unknown): two
    members can claim one partition, and the newer generation is right. ``rack_id`` is its ``client_rack``.
    """

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    user_data: bytes | None = None
    rack_id: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group as its leader sees it.

    ``partition_counts`` has the topics of all members that exist. ``racks`` names the racks of each partition's
    replicas; it is empty where no member has a rack.
    """

    partition_counts: Mapping[str, int]
    members: Mapping[str, MemberSubscription]
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one member gets: partitions, and whatever else the assignor has to tell it."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


@runtime_checkable
class Assignor(Protocol):
    """How a group decides who reads what. Derive from this to have the defaults.

    Only ``name`` and ``assign`` are a must. ``user_data`` and ``on_assignment`` run on the event loop, in every member
    and with each rebalance; ``assign`` runs in the leader alone, once at a time, in a worker thread where the group is
    large. What ``user_data`` or ``assign`` raises, and an assignment that breaks the rules below, ends the membership
    with AssignmentFailed. What ``on_assignment`` raises does not: the consumer's next call raises it as
    AssignmentFailed.
    """

    @property
    def name(self) -> str:
        """What the members agree on it by. All members that offer this name must mean the same."""
        ...

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        """The ways to rebalance that ``assign`` is right for. Default: EAGER.

        A member uses the newest one that all its assignors have in common, as in Java.
        """
        return EAGER_ONLY

    def user_data(self, topics: frozenset[str], last: Claim) -> bytes | None:
        """Return what the leader finds as ``MemberSubscription.user_data`` of this member. Default: None.

        ``topics`` is what it subscribes to, ``last`` its newest assignment.
        """
        return None

    def assign(self, group: Group) -> Mapping[str, Assignment | Iterable[TopicPartition]]:
        """Return the partitions of each member, by member id; one that is left out gets none.

        Each partition goes to one member at most, and only to one that subscribes to its topic. With COOPERATIVE, what
        a member owns goes to it or to nobody: it gives up what it does not get, and the next round hands that on.
        """
        ...

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """This member has got ``assignment``, in ``generation_id``. Default: nothing happens."""
        return None
