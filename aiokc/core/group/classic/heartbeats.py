"""When a classic group member sends its heartbeats, and when it gives up on a coordinator that does not answer."""

from __future__ import annotations

from typing import Final

from ...backoff import Backoff
from ..events import Effect, ForgetCoordinator, MemberToken, SendHeartbeat
from ..loop_watch import HeartbeatPlan, by_the_thread, grace_of

# A cooperative rebalance has a second round as soon as a member has given up partitions that others get (KIP-429). The
# members that gave up nothing hear of it only by a heartbeat: with one in 3 s, most of the rebalance would be waiting
# for that. So the pauses after an assignment are 0.1 s, 0.3 s, 0.9 s and so on, up to the usual one.
_SOON: Final = 0.1
_GROWTH: Final = 3.0

# A member waits for the answer to a heartbeat for two thirds of what its session has left. Only one heartbeat is under
# way at a time, and the session runs since the last answer: a member that waited for all of it would be out of the
# group after one lost request. The last third is for another connection, perhaps to another coordinator, and for the
# next heartbeat, which gets two thirds of that third. No wait is shorter than _LEAST_PATIENCE of the session, because
# a wait that times out ends a connection.
_PATIENCE: Final = 2 / 3
_LEAST_PATIENCE: Final = 1 / 15


class Heartbeats:
    """The heartbeats of one membership: at most one is under way, and the next one follows ``interval`` after it.

    After ``expect_another_round`` the first few follow sooner. ``deadline`` is when ``due`` next has an effect.
    """

    def __init__(self, interval: float, session_timeout: float, backoff: Backoff) -> None:
        self._interval = self._pause = interval
        self._session_timeout = session_timeout
        self._grace = grace_of(interval, session_timeout)
        self._backoff = backoff
        self._sent = 0
        self._unanswered: SendHeartbeat | None = None
        self._next = 0.0
        self._last_answer = 0.0

    def start(self, now: float) -> None:
        """The coordinator has just answered this member's JoinGroup, so its session begins now."""
        self._last_answer = now
        self._pause = self._interval
        self._next = now + self._pause
        self._unanswered = None

    def expect_another_round(self, now: float) -> None:
        """Send the next few heartbeats soon, because the group may be about to rebalance once more."""
        self._pause = min(_SOON, self._interval)
        self._next = min(self._next, now + self._pause)

    @property
    def deadline(self) -> float:
        silence = self._last_answer + self._session_timeout
        return silence if self._unanswered is not None else min(silence, self._next)

    def plan(self, member: MemberToken, max_poll_interval: float) -> HeartbeatPlan:
        """Return what the watchdog thread needs to go on with these heartbeats. It always keeps the full interval."""
        due = max(self._next, self._last_answer + self._interval)
        return HeartbeatPlan(by_the_thread(member), due, self._grace, self._interval, max_poll_interval)

    def due(self, member: MemberToken, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self._last_answer + self._session_timeout <= now:
            # The coordinator does not answer. It may have removed this member: only it, or its successor, can say so.
            effects.append(ForgetCoordinator(None))
            self._last_answer = self._next = now
            self._unanswered = None
        if self._unanswered is None and self._next <= now:
            self._sent += 1
            left = self._last_answer + self._session_timeout - now
            patience = max(left * _PATIENCE, self._session_timeout * _LEAST_PATIENCE)
            self._unanswered = SendHeartbeat(self._sent, member, patience)
            self._pause = min(self._pause * _GROWTH, self._interval)
            self._next = now + self._pause
            effects.append(self._unanswered)
        return effects

    def answered(self, sent: SendHeartbeat, now: float) -> None:
        """The coordinator answered ``sent``. Even a late answer shows that it knows this member to be alive."""
        self._last_answer = now
        if self._unanswered == sent:
            self._unanswered = None

    def failed(self, sent: SendHeartbeat, now: float) -> None:
        """No answer to ``sent`` will come: try again after a backoff, not only after the interval."""
        if self._unanswered == sent:
            self._unanswered = None
            self._next = now + self._backoff.next()
