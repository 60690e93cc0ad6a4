"""What only the consumer protocol (KIP-848) knows: the contents of its heartbeat, and the events of its answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from ....errors import KafkaError
from ....types import TopicPartition
from ..events import Alive, ProtocolEvent, SendHeartbeat, SendLeave

#: The member epochs with a meaning of their own: join; leave; a static member leaves, and will be back.
JOIN: Final = 0
LEAVE: Final = -1
LEAVE_STATIC: Final = -2


class TopicIdPartition(NamedTuple):
    topic_id: UUID
    partition: int


def topic_ids_of(partitions: Iterable[TopicIdPartition]) -> frozenset[UUID]:
    """The topics of these partitions. Those of one topic mostly share one UUID, and to hash it takes a call in Python:
    it is hashed once."""
    return frozenset({id(tp.topic_id): tp.topic_id for tp in partitions}.values())


@dataclass(frozen=True, slots=True)
class Interests:
    """What a member subscribes to: topics by their names, and by a regular expression (RE2J) that the broker matches.

    Together they mean the union. ``regex`` is "" for none: on the wire, null means "unchanged". ``names`` is None where
    a heartbeat leaves the topics' names as they are.
    """

    names: frozenset[str] | None = frozenset()
    regex: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """What one heartbeat tells the coordinator. None means "as in the last heartbeat", as null does on the wire.

    ``is_full``: it repeats everything else as well (the rebalance timeout, the assignor; to join, the rack).
    """

    interests: Interests | None = None
    owned: frozenset[TopicIdPartition] | None = None
    is_full: bool = False


KEEPALIVE: Final = Contents()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat(SendHeartbeat):
    """Send a ConsumerGroupHeartbeat. A member without an epoch (-1) asks to join by it."""

    contents: Contents

    @property
    def joins(self) -> bool:
        return self.member.generation_id < 0


@dataclass(frozen=True, slots=True)
class LeaveByHeartbeat(SendLeave):
    """Send the last heartbeat. The epoch of ``member`` says how it leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAlive(Alive):
    """The coordinator answered a ConsumerGroupHeartbeat without an error.

    epoch       the member epoch from here on
    interval    seconds until the next heartbeat; None: as before
    assignment  all partitions that this member may read from here on; None: nothing has changed
    names       of the assignment's topics, those that the metadata name
    nonsense    what no coordinator should say, in words, and was passed over; "": nothing
    absent      assigned partitions that their topics do not have, by the metadata of some time now
    """

    sent: MemberHeartbeat
    epoch: int
    interval: float | None
    assignment: frozenset[TopicIdPartition] | None
    names: Mapping[UUID, str] = field(default_factory=dict)
    nonsense: str = ""
    absent: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Unheard(ProtocolEvent):
    """A heartbeat of the watchdog thread was not answered, or so late that the loop had gone on by then.

    When the coordinator handled it, nobody knows: before what the loop has said and heard since, or after.
    """

    sent: MemberHeartbeat


@dataclass(frozen=True, slots=True)
class TopicsNamed(ProtocolEvent):
    """The newest metadata: the names of topic ids. Ids that were named before, and are not here, keep their names.

    ``former`` are the ids of topics that were recreated since, and ``forbidden`` the names of topics that the principal
    may not describe, as far as the metadata know.
    """

    names: Mapping[UUID, str]
    former: frozenset[UUID] = frozenset()
    forbidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JoinDeclined(ProtocolEvent):
    """The coordinator takes this member by another protocol at most: KIP-848 is off, or the group stays classic.

    Or the coordinator's Metadata name no topic ids, by which it assigns.
    """

    sent: MemberHeartbeat
    error: KafkaError


@dataclass(frozen=True, slots=True)
class InstanceUnreleased(ProtocolEvent):
    """The coordinator refused a join, because the static member of this instance has not left (KIP-848)."""

    sent: MemberHeartbeat
    error: KafkaError
