"""When a member sends its ConsumerGroupHeartbeats: one at a time, at the coordinator's pace, or at once with news."""

from __future__ import annotations

import math
from typing import Final

from ...backoff import Backoff
from ..events import MemberToken
from ..loop_watch import HeartbeatPlan, grace_of
from .events import Contents, MemberHeartbeat

# Seconds. The coordinator says in each answer when it wants the next heartbeat; until the first answer this is assumed.
_FIRST_INTERVAL: Final = 5.0
# No answer says how long a session lasts. By default it is nine intervals, and it can hardly be less than three.
_LEAST_SESSION: Final = 3
# A heartbeat is given up after two intervals, so that another connection, or another coordinator, gets the next one in
# time. No wait is shorter than a second, because a wait that times out ends a connection.
_PATIENCE: Final = 2
_LEAST_PATIENCE: Final = 1.0
# Others give up partitions for a member that has joined with their next heartbeats, each at its own moment within an
# interval. The new member hears of that with its next one. So it sends four in an interval, for a little longer than an
# interval: at the usual pace it would wait up to two intervals for what is free long since.
_SETTLING_BEATS: Final = 4
_SETTLING_INTERVALS: Final = 1.25
_LEAST_SETTLING_STEP: Final = 0.25


class Heartbeats:
    """The heartbeats of one membership. Times in seconds.

    ``unanswered`` is the heartbeat that is under way. An answer to any other heartbeat of the loop is late: it may
    describe a membership that is over.
    """

    def __init__(self, backoff: Backoff) -> None:
        self.unanswered: MemberHeartbeat | None = None
        self._backoff = backoff
        self._interval = _FIRST_INTERVAL
        self._number = 0
        self._sent_at = -math.inf
        self._next = -math.inf
        self._not_before = -math.inf
        self._refused_until = -math.inf  # then another membership may begin
        self._another = False  # at once, behind the one that is under way
        self._settles_until = -math.inf

    def deadline(self, *, has_news: bool) -> float:
        """When to send the next heartbeat; infinity while one is under way."""
        if self.unanswered is not None:
            return math.inf
        return self._not_before if has_news else max(self._next, self._not_before)

    def send(self, member: MemberToken, contents: Contents, now: float) -> MemberHeartbeat:
        self._number += 1
        self._sent_at = now
        self._next = now + self._interval
        self._another = False
        patience = max(self._interval * _PATIENCE, _LEAST_PATIENCE)
        self.unanswered = MemberHeartbeat(self._number, member, patience, contents=contents)
        return self.unanswered

    def at_once(self) -> None:
        """Send the next heartbeat as soon as none is under way, even if it has nothing to tell."""
        self._next = -math.inf
        self._another = self.unanswered is not None

    def within(self, seconds: float, now: float) -> None:
        """Send the next heartbeat after ``seconds`` at the latest."""
        self._next = min(self._next, now + seconds)

    def joined(self, now: float) -> None:
        """The member has joined: for somewhat more than an interval it asks more often what it may hold."""
        self._settles_until = now + self._interval * _SETTLING_INTERVALS
        self.within(self._settling_step, now)

    def is_settling(self, now: float) -> bool:
        """Whether the member has joined so recently that it asks more often."""
        return now < self._settles_until

    @property
    def _settling_step(self) -> float:
        return max(self._interval / _SETTLING_BEATS, _LEAST_SETTLING_STEP)

    def answered(self, interval: float | None, now: float) -> None:
        """The coordinator answered. ``interval``: None where it does not say when it wants the next heartbeat."""
        if interval is not None:
            self._interval = interval
        # The watchdog thread's heartbeat was sent while the loop was blocked: when, the loop does not know.
        sent_at = now if self.unanswered is None else self._sent_at
        self._next = -math.inf if self._another else sent_at + self._interval
        if self.is_settling(now):
            self.within(self._settling_step, now)
        self.unanswered = None
        self._not_before = -math.inf
        self.forget_refusals()

    def failed(self, now: float) -> None:
        """No answer will come, or one that asks for patience: try again after a backoff."""
        self.unanswered = None
        self._next = -math.inf
        self._not_before = now + self._backoff.next()

    def refused(self, now: float) -> None:
        """The coordinator refuses the member. The next membership begins after a backoff, which grows.

        An application that takes the error for a passing one, and polls again at once, would ask without a pause.
        """
        self.unanswered = None
        self._refused_until = now + self._backoff.next()

    def forget_refusals(self) -> None:
        """The next membership begins at once."""
        self._refused_until = -math.inf
        self._backoff.reset()

    def end(self) -> None:
        """The membership is over: an answer to the heartbeat that is under way would be stale."""
        self.unanswered = None

    def begin(self) -> None:
        """A new membership begins: its first heartbeat goes out at once, unless the one before was refused."""
        self.unanswered = None
        self._settles_until = self._next = -math.inf
        self._not_before = self._refused_until

    def wait(self) -> None:
        """Send nothing until ``begin``."""
        self._not_before = math.inf

    def plan(self, heartbeat: MemberHeartbeat, max_poll_interval: float) -> HeartbeatPlan:
        """Return what the watchdog thread needs to go on with these heartbeats."""
        grace = grace_of(self._interval, _LEAST_SESSION * self._interval)
        return HeartbeatPlan(heartbeat, max(self._next, self._not_before), grace, self._interval, max_poll_interval)
