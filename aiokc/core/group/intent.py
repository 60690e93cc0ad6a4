"""What the application wants of a group member: which topics, or to leave; and whether it still polls in time."""

from __future__ import annotations

from collections.abc import Iterable

from ...types import TopicPartition
from .events import PollClock, Subscribed


class SubscriptionIntent:
    """``topics`` are those that the application subscribes to, ``told`` those that the newest JoinGroup named.

    ``pattern``: the pattern that the coordinator matches (KIP-848); "" is none, and in the classic protocol there is
    none. ``matched``: the topics, or none, are those that the client's own pattern matches. ``leaves``: the consumer
    closes. ``had_left``: the application has unsubscribed from all topics, and the member has not yet acted on that. An
    application that does not poll for ``max_poll_interval`` seconds has stopped polling: until it polls again, its
    member is in no group.
    """

    def __init__(self, polls: PollClock, max_poll_interval: float) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern = ""
        self.matched = False
        self.told: frozenset[str] = frozenset()
        self.leaves = False
        self.had_left = False
        self.has_stopped_polling = False
        self.max_poll_interval = max_poll_interval
        self._polls = polls

    @property
    def goal(self) -> frozenset[str]:
        """The topics that the application wants to read in the end."""
        return frozenset() if self.leaves else self.topics

    @property
    def is_subscribed(self) -> bool:
        """Whether the application subscribes to anything."""
        return bool(self.topics or self.pattern)

    @property
    def wants_nothing(self) -> bool:
        """Whether the application has unsubscribed, or never subscribed: to no pattern without a match, either."""
        return not (self.is_subscribed or self.matched)

    @property
    def is_awaited(self) -> bool:
        """Whether the application is to poll: it subscribes to something, and be it a pattern without a match."""
        return not (self.wants_nothing or self.leaves)

    @property
    def is_membership(self) -> bool:
        """Whether the application wants to be in the group at all, and polls in time for that."""
        return self.is_subscribed and not self.leaves and not self.has_stopped_polling

    @property
    def is_news(self) -> bool:
        """Whether the subscription differs from the one that the group knows."""
        return self.topics != self.told

    def subscribe(self, event: Subscribed, now: float) -> None:
        """Take over what the application subscribes to from ``now`` on."""
        was_awaited = self.is_awaited
        self.topics, self.pattern, self.matched = event.topics, event.pattern, event.matched
        # After unsubscribe() the last poll is no matter any more: its listener has max_poll_interval for the revocation
        # of everything, also on a loop that it blocks. If the application subscribes anew before that is over, that
        # last poll may be longer ago than max_poll_interval, though nobody had to poll.
        if self.is_awaited != was_awaited:
            self.begins(now)

    def leave(self, now: float) -> None:
        """The consumer closes: ``max_poll_interval`` counts for its last revocation, and no poll is waited for."""
        if not self.leaves:
            self.begins(now)
        self.leaves = True

    def not_subscribed(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The topics of these partitions to which the application does not subscribe by name, sorted."""
        return sorted({tp.topic for tp in partitions} - self.topics)

    # Polling

    @property
    def poll_limit(self) -> float:
        """When the application must have polled again."""
        return self._polls.last + self.max_poll_interval

    def time_passes(self, now: float) -> None:
        """An application that waits inside a poll is polling all the time."""
        if self._polls.waiting:
            self._polls.last = now

    def begins(self, now: float) -> None:
        """``max_poll_interval`` counts from ``now`` on: the member begins to join, or to give up everything."""
        self._polls.last = now

    def stop_polling(self) -> str:
        """The application did not poll in time. Return the reason to name to the coordinator."""
        self.has_stopped_polling = True
        limit = f"max_poll_interval_ms={self.max_poll_interval * 1e3:.0f}"
        return f"it was not polled for {limit}: poll more often, process less at a time, or raise that limit"
