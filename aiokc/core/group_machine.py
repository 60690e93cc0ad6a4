"""What a group membership machine is to its driver, whichever protocol it speaks."""

from __future__ import annotations

from typing import Protocol

from .group_protocol import Effect, Event, MemberToken
from .vigil import Vigil


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
    def vigil(self) -> Vigil | None:
        """What one has to know to speak for this member while the event loop cannot; None where nothing is to be said.

        It is for the newest event only. While a JoinGroup is under way there is none: the old generation is over, and
        the new one has no number yet.
        """
        ...

    @property
    def watched_topics(self) -> frozenset[str]:
        """The topics whose partition counts it wants to hear of: those of the whole group, while it leads that."""
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
