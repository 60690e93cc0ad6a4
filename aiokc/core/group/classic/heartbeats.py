"""When a member of a group sends its heartbeats, and when the silence has lasted too long."""

from __future__ import annotations

from typing import Final

from ...backoff import Backoff
from ..events import Effect, ForgetCoordinator, MemberToken, SendHeartbeat
from ..loop_watch import HeartbeatPlan, grace_of

# A cooperative rebalance has a second round as soon as somebody has given up what others shall have (KIP-429), and all
# who gave up nothing hear of it by a heartbeat only: with one in 3 s, most of such a rebalance would be waiting for it.
# So the pauses after an assignment are 0.1 s, 0.3 s, 0.9 s and so on, up to the usual one.
_SOON: Final = 0.1
_GROWTH: Final = 3.0

# A heartbeat is waited for until two thirds of what the session has left are over. Only one is under way at a time, and
# the session goes on since the last answer: whoever waited for the whole of it would be out of the group by one request
# that was lost. The last third is for another connection, to another coordinator perhaps, and for the next heartbeat,
# which has two thirds of that. No attempt is cut shorter than this part of the session: it ends a connection.
_PATIENCE: Final = 2 / 3
_LEAST_PATIENCE: Final = 1 / 15


class Heartbeats:
    """The heartbeats of one membership: at most one under way, the next one ``interval`` after it was sent.

    After ``expect_another_round`` the first few come sooner.

    ``deadline`` is when ``due`` has something to say.
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
        """The coordinator has just spoken to this member: its session lasts from now on."""
        self._last_answer = now
        self._pause = self._interval
        self._next = now + self._pause
        self._unanswered = None

    def expect_another_round(self, now: float) -> None:
        """The group may be about to rebalance once more."""
        self._pause = min(_SOON, self._interval)
        self._next = min(self._next, now + self._pause)

    @property
    def deadline(self) -> float:
        silence = self._last_answer + self._session_timeout
        return silence if self._unanswered is not None else min(silence, self._next)

    def plan(self, member: MemberToken, max_poll_interval: float) -> HeartbeatPlan:
        """Return what another one has to know to go on with these heartbeats, those left out that come too soon."""
        due = max(self._next, self._last_answer + self._interval)
        return HeartbeatPlan(member, due, self._grace, self._interval, max_poll_interval)

    def due(self, member: MemberToken, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self._last_answer + self._session_timeout <= now:
            # The coordinator is silent: that it has evicted this member is for it (or its successor) to say.
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
        """The coordinator answered, late perhaps: either way it knows that this member lives."""
        self._last_answer = now
        if self._unanswered == sent:
            self._unanswered = None

    def failed(self, sent: SendHeartbeat, now: float) -> None:
        """No answer will come: try again soon, and not only after the interval."""
        if self._unanswered == sent:
            self._unanswered = None
            self._next = now + self._backoff.next()
