"""The interface to what decides a subscribed consumer's partitions: its group, or without a group the metadata."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from ...core.counters import GroupCounters
from ...core.stopwatch import RequestCounter
from ...errors import KafkaError
from ..aio.supervisor import Driver
from .protocol import ProtocolInUse


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What health() and metrics() report of an AssignmentSource; the defaults are for a consumer without a group.

    ``polled_at``: what max_poll_interval_ms counts from (loop time); None where nothing counts it.
    """

    error: KafkaError | None = None
    last_error: KafkaError | None = None
    protocol: ProtocolInUse | None = None
    generation: int = -1
    member_id: str = ""
    coordinator: int | None = None
    polled_at: float | None = None
    group: GroupCounters = field(default_factory=GroupCounters)
    commits: RequestCounter = field(default_factory=RequestCounter)


class AssignmentSource(Protocol):
    """Decides about the assignment of one consumer, and is told of the application's calls."""

    @property
    def asked_to_join(self) -> asyncio.Event | None:
        """Set when the first request to join the group has gone out; None without a group."""
        ...

    @property
    def drivers(self) -> list[Driver]:
        """The coroutine functions that the consumer has to run in the background."""
        ...

    @property
    def has_assigned(self) -> bool:
        """Whether everything subscribed to that exists has been assigned, and the listener is done."""
        ...

    def subscription_changed(self) -> None:
        """The application has changed its subscription. To be called in the same tick of the event loop."""
        ...

    def polling_begins(self) -> None:
        """The application waits for records from here on. To be called after Subscription.mark_processed()."""
        ...

    def polling_ends(self) -> None:
        """The application does not wait for records any more: it is at work with them."""
        ...

    def polled(self) -> None:
        """The application asked for records, and holds none. To be called after Subscription.mark_processed()."""
        ...

    def raise_error(self) -> None:
        """Raise the error, if there is one, that only the application can repair."""
        ...

    def run_callbacks(self) -> None:
        """Run the due callbacks of commits. What a callback raises is raised; the next call runs those after it."""
        ...

    async def leave(self, timeout: float, leave_group: bool | None) -> None:
        """Finish what is under way, give up all partitions, call the listener. Ends within ``timeout`` seconds."""
        ...

    def close(self) -> None:
        """Report the commits that still wait as failed. To be called once nothing runs in the background any more."""
        ...

    def loop_is_closed(self) -> None:
        """The event loop is closed: end the threads, which no task can end any more. Any thread may call this."""
        ...

    def report(self) -> SourceReport: ...
