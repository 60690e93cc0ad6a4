"""What one group protocol is to its driver: a machine that decides, and what another thread can say for the member."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...wire import Request, Response
from .events import Effect, Event, MemberToken, SendHeartbeat, SendLeave
from .loop_watch import HeartbeatPlan


class GroupMachine(Protocol):
    """A group membership: every decision of one protocol, without a socket and without a clock."""

    def on(self, event: Event, now: float) -> list[Effect]:
        """Take in what happened at ``now`` (monotonic seconds); return what to do, in order."""
        ...

    @property
    def deadline(self) -> float:
        """When the next Tick is due; infinity where nothing is."""
        ...

    @property
    def member(self) -> MemberToken:
        """Who this member is at the moment."""
        ...

    @property
    def last_member(self) -> MemberToken:
        """Who this member was in the newest generation that it has been in, whether that is over or not."""
        ...

    @property
    def plan(self) -> HeartbeatPlan | None:
        """What one has to know to speak for this member while the event loop cannot; None where nothing is to be said.

        It is for the newest event only. While a JoinGroup is under way there is none: the old generation is over, and
        the new one has no number yet.
        """
        ...

    @property
    def has_left(self) -> bool:
        """Whether Leave is done with."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether it was told of something Fatal. A Polled lets it try again, where that can help."""
        ...

    @property
    def is_rebalancing(self) -> bool:
        """Whether it is on its way from a JoinGroup to the assignment that this leads to."""
        ...

    @property
    def needs_poll(self) -> bool:
        """Whether it waits for a Polled, because the user had stopped asking for records."""
        ...

    @property
    def is_settling(self) -> bool:
        """Whether it is on its way to an assignment, from the first partition that it hands over on."""
        ...

    def commit_token(self) -> MemberToken:
        """Return whom a commit may come from now. Raises CommitFailed, or BrokerError with REBALANCE_IN_PROGRESS."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """A request in the version that the broker speaks, and the event that its answer means."""

    request: type[Request[Any]]
    build: Callable[[int], Request[Any]]
    event: Callable[[Response], Event | None]


class Keepalive(Protocol):
    """What a thread can say for a member whose event loop is blocked: values only, so that no thread can do harm."""

    @property
    def group_id(self) -> str: ...

    def heartbeat(self, sent: SendHeartbeat) -> Question:
        """Say that the member is alive. The answer's event is told to the loop when that is back."""
        ...

    def goodbye(self, sent: SendLeave) -> Question:
        """Say that the member leaves. The answer means nothing: it has left."""
        ...
