"""What the user of a group member wants: to read topics, or to leave; and whether he still comes back for records."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import AssignmentFailed
from ...types import TopicPartition
from .events import PollClock


class SubscriptionIntent:
    """``topics`` are those that he subscribes to, ``told`` those that the newest JoinGroup named.

    ``had_left``: he has unsubscribed from all topics, and the member has not got there yet.
    Who does not come back for ``max_poll_interval`` seconds has stopped polling, until he does: he is in no group then.
    """

    def __init__(self, polls: PollClock, max_poll_interval: float) -> None:
        self.topics: frozenset[str] = frozenset()
        self.told: frozenset[str] = frozenset()
        self.leaves = False
        self.had_left = False
        self.has_stopped_polling = False
        self.max_poll_interval = max_poll_interval
        self._polls = polls

    @property
    def goal(self) -> frozenset[str]:
        """The topics that he wants to end up with."""
        return frozenset() if self.leaves else self.topics

    @property
    def is_membership(self) -> bool:
        """Whether he wants to be in the group at all."""
        return bool(self.topics) and not self.leaves and not self.has_stopped_polling

    @property
    def is_news(self) -> bool:
        """Whether the group does not know it yet."""
        return self.topics != self.told

    def unwanted(self, partitions: Iterable[TopicPartition]) -> AssignmentFailed | None:
        """Return what is to be said of an assignment that holds topics which he does not subscribe to."""
        foreign = {tp.topic for tp in partitions} - self.topics
        if not foreign:
            return None
        return AssignmentFailed(
            f"the leader of the group gave this member partitions of {', '.join(sorted(foreign))}, to which it does "
            "not subscribe; it has taken nothing, and joins again until the leader's assignor heeds subscriptions"
        )

    # Polling

    @property
    def poll_limit(self) -> float:
        """When he must have come back."""
        return self._polls.last + self.max_poll_interval

    def time_passes(self, now: float) -> None:
        """Whoever waits for records is polling all the time."""
        if self._polls.waiting:
            self._polls.last = now

    def begins(self, now: float) -> None:
        """The time to come back counts from here on."""
        self._polls.last = now

    def stop_polling(self) -> str:
        """He did not come back; return what is to be said of that."""
        self.has_stopped_polling = True
        limit = f"max_poll_interval_ms={self.max_poll_interval * 1e3:.0f}"
        return f"it was not polled for {limit}: poll more often, process less at a time, or raise that limit"
