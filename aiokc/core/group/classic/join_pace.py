"""When a classic member sends its next JoinGroup, and looks after one that the coordinator parks."""

from __future__ import annotations

import math
from typing import Final

from ...backoff import Backoff

# So many joins of one rebalance are sent without a pause: the first, one after REBALANCE_IN_PROGRESS from SyncGroup,
# and one after the coordinator did not know the member any more. Any further one has no hurry.
_PROMPT: Final = 3
# The coordinator parks a JoinGroup for minutes, and the member sends no heartbeats meanwhile. So nobody would notice:
# 1. The broker freezes, or loses its network. No packet says so, and the JoinGroup waits on.
# 2. The cluster moves the group. The new coordinator expects heartbeats, and removes the member after its session.
# 3. A cooperative member reads on all the time, and so does the next owner of its partitions.
# So the member asks the coordinator whether it still is that, after each third of a session, and waits a third for the
# answer. The last third is for finding the new coordinator and joining there.
_SHARE: Final = 1 / 3
# How long a member that goes before it knows its member id waits for that, in seconds: usually one round trip.
_FAREWELL: Final = 2.0


class JoinPace:
    """``due`` is when a JoinGroup that was put off must be sent, ``check_at`` when to ask after one that was sent.

    Both are infinity where there is none. ``patience``: how long to wait for the answer to that question. Where the
    member waits for its id only to leave, ``due`` is when it leaves without it.
    """

    def __init__(self, backoff: Backoff, session_timeout: float) -> None:
        self._backoff = backoff
        self._prompt = _PROMPT
        self.patience = session_timeout * _SHARE
        self.due = self.check_at = math.inf

    def at_once(self) -> bool:
        """Return whether a JoinGroup may be sent now. If so, it counts as sent."""
        if self._prompt == 0:
            return False
        self._prompt -= 1
        return True

    def put_off(self, now: float) -> None:
        self.due, self.check_at = now + self._backoff.next(), math.inf

    def sent(self, now: float) -> None:
        """A JoinGroup was sent."""
        self.due, self.check_at = math.inf, now + self.patience

    def checked(self, now: float) -> None:
        """The coordinator is being asked after it. A member that goes waits no longer for that."""
        self.check_at = now + self.patience

    def answered(self) -> None:
        """The JoinGroup was answered, or failed."""
        self.due = self.check_at = math.inf

    def waits_for_id(self, now: float) -> bool:
        """Return whether a member that goes waits for the answer to its JoinGroup, or waits on for it."""
        is_out = self.check_at < math.inf
        if is_out and self.due == math.inf:
            self.due = now + _FAREWELL
        return is_out and now < self.due

    def rebalance_is_over(self) -> None:
        """The first joins of the next rebalance are again sent without a pause."""
        self._prompt = _PROMPT
