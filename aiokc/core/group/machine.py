"""The pure parts of a GroupProtocol (client/group/protocol.py): GroupMachine decides, Keepalive is for the watchdog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...wire import Request, Response
from .events import Effect, Event, MemberToken, SendHeartbeat
from .loop_watch import HeartbeatPlan


class GroupMachine(Protocol):
    """The membership state machine of one group protocol: it makes every decision, without a socket or a clock."""

    def on(self, event: Event, now: float) -> list[Effect]:
        """Handle an event that happened at ``now`` (monotonic seconds). Return the effects to perform, in order."""
        ...

    @property
    def deadline(self) -> float:
        """When the machine needs the next Tick; infinity where it needs none."""
        ...

    @property
    def member(self) -> MemberToken:
        """The current member id and generation."""
        ...

    @property
    def last_member(self) -> MemberToken:
        """The member id and generation of the newest generation that this member was in, even if it has ended."""
        ...

    @property
    def plan(self) -> HeartbeatPlan | None:
        """What the watchdog thread needs to send heartbeats for a blocked loop; None where it must send nothing.

        A plan is valid until the next event. While a JoinGroup is under way there is none: the old generation is over,
        and the new one has no number yet.
        """
        ...

    @property
    def has_left(self) -> bool:
        """Whether a Leave has been carried out to its end."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether a Fatal has ended the membership. A Polled makes the machine try again, where that can help."""
        ...

    @property
    def is_rebalancing(self) -> bool:
        """Whether the member is between a JoinGroup and the assignment that follows from it."""
        ...

    @property
    def needs_poll(self) -> bool:
        """Whether the machine waits for a Polled, because the application has stopped polling."""
        ...

    @property
    def is_settling(self) -> bool:
        """Whether the member is on its way to an assignment. That begins when it starts to give up partitions."""
        ...

    def commit_token(self) -> MemberToken:
        """Return the member that a commit must name. Raises CommitFailed, or BrokerError with REBALANCE_IN_PROGRESS."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """A request type, how to build it in a version that the broker speaks, and which event its answer means."""

    request: type[Request[Any]]
    build: Callable[[int], Request[Any]]
    event: Callable[[Response], Event | None]


class Keepalive(Protocol):
    """The requests that the watchdog thread sends for a member whose event loop is blocked.

    It holds immutable values only, so that the thread can use it safely.
    """

    @property
    def group_id(self) -> str: ...

    def heartbeat(self, sent: SendHeartbeat) -> Question:
        """Return the heartbeat. The loop handles the event of its answer once it runs again."""
        ...

    def after(self, answer: Event, sent: SendHeartbeat) -> SendHeartbeat:
        """Return the next heartbeat that the thread sends, if ``sent`` had this ``answer``."""
        ...

    def unheard(self, answer: Event | None, sent: SendHeartbeat) -> Event | None:
        """Return the event that the loop handles if it had gone on when ``answer`` came (None: there was no answer)."""
        ...

    def goodbye(self, last: SendHeartbeat, reason: str) -> Question:
        """Return the request by which the member of the ``last`` heartbeat leaves.

        Its answer means no event: the member has left in any case.
        """
        ...
