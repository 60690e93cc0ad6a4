"""When a classic group member sends its next JoinGroup: at once at first, after growing pauses where joins fail."""

from __future__ import annotations

import math
from typing import Final

from ...backoff import Backoff

# So many joins of one rebalance are sent without a pause: the first, one after REBALANCE_IN_PROGRESS from SyncGroup,
# and one after the coordinator did not know the member any more. Any further one has no hurry.
_PROMPT: Final = 3


class JoinPace:
    """``due`` is when a JoinGroup that was put off must be sent; infinity where none was put off."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._prompt = _PROMPT
        self.due = math.inf

    def at_once(self) -> bool:
        """Return whether a JoinGroup may be sent now. If so, it counts as sent."""
        if self._prompt == 0:
            return False
        self._prompt -= 1
        return True

    def put_off(self, now: float) -> None:
        self.due = now + self._backoff.next()

    def sent(self) -> None:
        self.due = math.inf

    def rebalance_is_over(self) -> None:
        """The first joins of the next rebalance are again sent without a pause."""
        self._prompt = _PROMPT
