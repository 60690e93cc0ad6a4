"""The interface between a membership and its group protocol: what each group protocol has to implement."""

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


@dataclass(frozen=True, slots=True)
class ProtocolInUse:
    """``name`` is "classic" or "consumer"; None while "auto" has not decided yet. ``reason`` says why, for people.

    ``remedy``: what to do for a consumer that speaks the other protocol; "" where only its cluster can help.
    """

    name: str | None
    reason: str
    remedy: str = ""


class GroupProtocol(Protocol):
    """One group protocol, spoken by one consumer with one group.

    ``machine`` decides, ``perform`` carries out the requests it decided on, and ``keepalive`` makes the requests that
    the watchdog thread can send. Everything else about a membership is the same in every protocol: its clock, the
    coordinator's lookup, the changes of the assignment, commits, the watchdog. ``rest`` is for how many seconds after a
    request to join the watchdog has nothing to do. ``is_cooperative`` says whether the member reads on while its group
    rebalances.
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

    @property
    def follows_epochs(self) -> bool:
        """Whether a commit is sent in the member's newest generation, if its partitions were held all the time.

        Otherwise it is sent in the generation in which it was called for, or not at all.
        """
        ...

    @property
    def revocation_margin(self) -> float:
        """For how many seconds more than ``max_poll_interval`` the group waits until a revocation is carried out."""
        ...

    @property
    def in_use(self) -> ProtocolInUse:
        """Which group protocol the member speaks, and why that one."""
        ...

    def start(self, joining: Callable[[], None]) -> None:
        """To be called once. ``joining`` is called whenever a request to join, which may take long, has gone out."""
        ...

    def close(self) -> None:
        """Free what the protocol holds. To be called once, after all calls of ``perform`` have ended."""
        ...

    async def perform(self, request: Request) -> Event:
        """Send ``request``, or do its work, and return the result as an event. No error of Kafka's is raised."""
        ...

    def refused_commit(self, member: MemberToken, error_code: int) -> Event:
        """Return the event for the machine: the coordinator refused a commit of ``member`` with ``error_code``."""
        ...

    def assigned(self, change: Assign) -> None:
        """The member takes over the assignment ``change``: tell its assignor.

        Raises AssignmentFailed for what an assignor of the application raises.
        """
        ...

    def moved(self) -> None:
        """The machine has taken in an event, and the driver has begun all of its effects."""
        ...

    def news(self) -> Event | None:
        """Return the event that new metadata mean to the machine, if they mean anything to it."""
        ...


@dataclass(frozen=True, slots=True)
class GroupParts:
    """The parts of one consumer that its group protocol may use. ``config`` has a group_id."""

    config: ConsumerConfig
    group_id: str
    lookup: CoordinatorLookup
    metadata: Metadata
    subscription: Subscription
    polls: PollClock
    random: Random
    pattern: PatternTopics | None = None


#: Makes the protocol of one consumer. PROTOCOLS in choice.py has one for each value of group_protocol.
NewProtocol: TypeAlias = Callable[[GroupParts], GroupProtocol]
