"""The seam between a membership and the protocol that it speaks: what a group protocol has to bring with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeAlias

from ...config import ConsumerConfig
from ...core.group.events import Assign, Event, MemberToken, PollClock, Request
from ...core.group.machine import GroupMachine, Keepalive
from ...core.subscription.state import Subscription
from ..cluster.coordinator_lookup import CoordinatorLookup
from ..cluster.metadata import Metadata
from ..cluster.pattern_topics import PatternTopics


class GroupProtocol(Protocol):
    """One group protocol, spoken by one consumer with one group.

    ``machine`` decides, ``perform`` does what it has decided, ``keepalive`` is what the watchdog's thread can say. All
    else about a membership is the same in every protocol: its clock, the coordinator's lookup, the changes of the
    assignment, commits, the watchdog. ``rest``: so many seconds after a request to join the watchdog has nothing to
    look at. ``is_cooperative``: the member reads on while its group rebalances.
    """

    @property
    def group_id(self) -> str: ...

    @property
    def machine(self) -> GroupMachine: ...

    @property
    def keepalive(self) -> Keepalive: ...

    @property
    def rest(self) -> float: ...

    @property
    def is_cooperative(self) -> bool: ...

    def start(self, joining: Callable[[], None]) -> None:
        """To be called once. ``joining`` is called whenever a request to join, which may take long, has gone out."""
        ...

    def close(self) -> None:
        """Do nothing more. To be called once, after all that ``perform`` was called for has ended."""
        ...

    async def perform(self, request: Request) -> Event:
        """Send ``request``, or do it, and return what came of that. Nothing that Kafka can do is raised."""
        ...

    def refused_commit(self, member: MemberToken, error_code: int) -> Event:
        """Return what it means for the membership that a commit of ``member`` was refused so."""
        ...

    def assigned(self, change: Assign) -> None:
        """Partitions are about to be read. Raises AssignmentFailed for what a user's assignor raises."""
        ...

    def moved(self) -> None:
        """The machine has taken in an event, and what it decided is under way."""
        ...

    def news(self) -> Event | None:
        """Return what the machine has to know of new metadata, if anything."""
        ...


@dataclass(frozen=True, slots=True)
class GroupParts:
    """What a group protocol may build on, of one consumer. ``config`` has a group_id."""

    config: ConsumerConfig
    group_id: str
    lookup: CoordinatorLookup
    metadata: Metadata
    subscription: Subscription
    polls: PollClock
    random: Random
    pattern: PatternTopics | None = None


#: Makes the protocol of one consumer.
NewProtocol: TypeAlias = Callable[[GroupParts], GroupProtocol]
