"""A member of a consumer group: what it has told of itself, and what the coordinator has given it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeAlias
from uuid import UUID

#: A partition, by its topic's id.
TopicIdPartition: TypeAlias = tuple[UUID, int]

#: Member epochs with a meaning of their own: join; leave; a static member leaves, and will be back.
JOIN: Final = 0
LEAVE: Final = -1
LEAVE_STATIC: Final = -2


class MemberState(Enum):
    """How far a member is on its way to its target assignment."""

    STABLE = "stable"
    UNREVOKED = "unrevoked partitions"  # it has to give up partitions first
    UNRELEASED = "unreleased partitions"  # it waits for partitions that other members have to give up


@dataclass(frozen=True, slots=True)
class Holding:
    """What a member may hold at this moment. Each partition has the assignment epoch at which the member got it.

    assigned    what it may read
    revoking    what it has to give up, and has not acknowledged to have given up; nobody else gets it until then
    """

    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    revoking: Mapping[TopicIdPartition, int] = field(default_factory=dict)

    @property
    def partitions(self) -> frozenset[TopicIdPartition]:
        """What it may hold, also what it has not acknowledged to have given up."""
        return frozenset((*self.assigned, *self.revoking))

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def left_for_now(self) -> Holding:
        """Return what a static member holds that will be back: the same, which it may claim by its next epoch."""
        return replace(
            self, epoch=LEAVE_STATIC, assigned=dict.fromkeys(self.assigned, 0), revoking={}, previous_epoch=self.epoch
        )


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member has that speaks the classic protocol in a consumer group: its protocols and its session timeout."""

    protocols: Mapping[str, bytes]
    session_timeout: float


@dataclass(eq=False)
class ConsumerMember:
    """A member of a consumer group. Times in seconds. ``classic`` is None where it speaks the consumer protocol."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: float = 0.0
    names: frozenset[str] = frozenset()
    regex: str | None = None
    assignor: str | None = None
    holding: Holding = field(default_factory=Holding)
    target: frozenset[TopicIdPartition] = frozenset()
    classic: ClassicSide | None = None

    @property
    def epoch(self) -> int:
        return self.holding.epoch
