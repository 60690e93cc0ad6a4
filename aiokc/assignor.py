"""The interface for an application's own partition assignor: the group that it is given, the assignment it returns.

The members of a group agree on one assignor by its name, and the group leader runs it (Java's
ConsumerPartitionAssignor). aiokc brings ``range``, ``roundrobin``, ``sticky`` and ``cooperative-sticky``, the same as
Java's. Any object with the methods of Assignor can stand beside their names in ``partition_assignment_strategy``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol, runtime_checkable

from .types import TopicPartition


class RebalanceProtocol(IntEnum):
    """How members rebalance (KIP-429).

    With EAGER a member gives up all its partitions before it joins. With COOPERATIVE it gives up only those that the
    new assignment does not leave to it.
    """

    EAGER = 0
    COOPERATIVE = 1


EAGER_ONLY: Final = frozenset({RebalanceProtocol.EAGER})


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member tells the assignor that it owns: its last assignment, and the generation of that (-1: unknown)."""

    partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1


NO_CLAIM: Final = Claim()


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member told the group when it joined (Kafka's ConsumerProtocolSubscription).

    ``owned`` are the partitions that a cooperative member still reads, and ``generation_id`` is the generation of its
    last assignment (KIP-792; -1: unknown). If two members claim one partition, the newer generation is right.
    ``rack_id`` is the member's ``client_rack`` (KIP-881).
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

    ``partition_counts`` has the number of partitions of each topic that a member subscribes to and that exists.
    ``members`` are the subscriptions by member id. ``racks`` has the racks of each partition's replicas; it is empty
    where no member has a rack.
    """

    partition_counts: Mapping[str, int]
    members: Mapping[str, MemberSubscription]
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one member gets: its partitions, and ``user_data`` for its assignor's ``on_assignment``."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


@runtime_checkable
class Assignor(Protocol):
    """Decides which member of a group reads which partitions. Derive from this class to have the defaults.

    Only ``name`` and ``assign`` are required. Every member calls ``user_data`` and ``on_assignment`` on its event loop,
    in each rebalance. Only the group leader calls ``assign``: one call at a time, in a worker thread where the group is
    large. An exception of ``user_data`` or ``assign``, or an assignment that breaks the rules below, ends the
    membership with AssignmentFailed. An exception of ``on_assignment`` does not end it: the consumer's next call raises
    AssignmentFailed.
    """

    @property
    def name(self) -> str:
        """The name by which the members agree on it. All members that offer a name must mean the same assignor."""
        ...

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols that ``assign`` supports. Default: EAGER.

        A member uses the newest one that all its assignors have in common, as in Java.
        """
        return EAGER_ONLY

    def user_data(self, topics: frozenset[str], last: Claim) -> bytes | None:
        """Return what the group leader gets as ``MemberSubscription.user_data`` of this member. Default: None.

        ``topics`` are those that this member subscribes to, ``last`` is its newest assignment.
        """
        return None

    def assign(self, group: Group) -> Mapping[str, Assignment | Iterable[TopicPartition]]:
        """Return the partitions of each member, by member id; a member that is left out gets none.

        Each partition goes to one member at most, and only to one that subscribes to its topic. With COOPERATIVE, a
        partition that a member owns goes to that member or to none: the member gives up what it does not get, and the
        next rebalance assigns that to another one.
        """
        ...

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Called when this member has got ``assignment``, in ``generation_id``. Default: does nothing."""
        return None
