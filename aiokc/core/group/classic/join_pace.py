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
# How long a member that goes before it knows its member id waits for that, in seconds: usually one round trip. In the
# 2 s that the driver gives a member for its farewell, this leaves half a second to send the LeaveGroup.
_FAREWELL: Final = 1.5


class JoinPace:
    """``due`` is when a JoinGroup that was put off must be sent, ``check_at`` when to ask after one that was sent.

    ``goes_at`` is when a member that waits for its id only to leave goes without it. All are infinity where there is
    nothing of the kind. ``patience``: how long to wait for the answer to the question after a JoinGroup.
    """

    def __init__(self, backoff: Backoff, session_timeout: float) -> None:
        self._backoff = backoff
        self._prompt = _PROMPT
        self.patience = session_timeout * _SHARE
        self.due = self.check_at = self.goes_at = math.inf

    @property
    def deadline(self) -> float:
        return min(self.due, self.check_at, self.goes_at)

    def at_once(self) -> bool:
        """Return whether a JoinGroup may be sent now. If so, it counts as sent."""
        if self._prompt == 0:
            return False
        self._prompt -= 1
        return True

    def put_off(self, now: float) -> None:
        self.due, self.check_at, self.goes_at = now + self._backoff.next(), math.inf, math.inf

    def sent(self, now: float) -> None:
        """A JoinGroup was sent."""
        self.due, self.check_at, self.goes_at = math.inf, now + self.patience, math.inf

    def checked(self, now: float) -> None:
        """The coordinator is being asked after it."""
        self.check_at = now + self.patience

    def waits_for_id(self, now: float) -> None:
        """The member wants to go, and waits for the answer to its JoinGroup, or waits on for it."""
        self.goes_at = min(self.goes_at, now + _FAREWELL)

    def stays(self) -> None:
        """The application wants the member after all."""
        self.goes_at = math.inf

    def rebalance_is_over(self) -> None:
        """The first joins of the next rebalance are again sent without a pause."""
        self._prompt = _PROMPT
