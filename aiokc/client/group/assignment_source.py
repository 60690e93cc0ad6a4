"""What decides which partitions a consumer reads: a group, or (without one) the metadata. The same calls serve both."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from ...core.counters import GroupCounters, RequestCounter
from ...errors import KafkaError
from ..aio.supervisor import Driver


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What health() and metrics() tell of it. Without a group: nothing has happened, and nothing failed."""

    error: KafkaError | None = None
    last_error: KafkaError | None = None
    generation: int = -1
    member_id: str = ""
    group: GroupCounters = field(default_factory=GroupCounters)
    commits: RequestCounter = field(default_factory=RequestCounter)


class AssignmentSource(Protocol):
    """Decides about the assignment of one consumer, and hears what its user does."""

    @property
    def asked_to_join(self) -> asyncio.Event | None:
        """Set when the first request to join a group is on its way; None where there is none to join."""
        ...

    @property
    def drivers(self) -> list[Driver]:
        """What has to run in the background."""
        ...

    @property
    def has_assigned(self) -> bool:
        """Whether all that is subscribed to has been assigned, as far as it is there, and the listener is done."""
        ...

    def subscription_changed(self) -> None:
        """The user has changed what he wants to read. To be called before anything else can happen."""
        ...

    def polling_begins(self) -> None:
        """The user waits for records from here on. To be called after Subscription.release()."""
        ...

    def polling_ends(self) -> None:
        """The user is at work again."""
        ...

    def polled(self) -> None:
        """The user asked for records, and holds none. To be called after Subscription.release()."""
        ...

    def raise_error(self) -> None:
        """Raise what only the user can repair."""
        ...

    def run_callbacks(self) -> None:
        """Run the callbacks of commits that are due. What one raises is raised, and the rest is for the next call."""
        ...

    async def leave(self, timeout: float, leave_group: bool | None) -> None:
        """Finish what is under way, hand over all partitions, tell the listener. Ends within ``timeout`` seconds."""
        ...

    def close(self) -> None:
        """Nothing is decided any more: what still waits is told that it has failed."""
        ...

    def loop_is_closed(self) -> None:
        """Nothing runs any more that could end what runs in threads. Any thread may call this."""
        ...

    def report(self) -> SourceReport: ...
