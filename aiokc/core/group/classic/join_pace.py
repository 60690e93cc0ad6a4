"""When a member sends its next JoinGroup: at once as a rule, and in growing intervals where that leads nowhere."""

from __future__ import annotations

import math
from typing import Final

from ...backoff import Backoff

# Joins in one rebalance that are sent without a pause: the first, and one each for REBALANCE_IN_PROGRESS from
# SyncGroup and for an identity that the coordinator does not know any more. Whoever needs more is not in a hurry.
_PROMPT: Final = 3


class JoinPace:
    """``due`` is when a JoinGroup that was put off goes out; infinity where none was."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._prompt = _PROMPT
        self.due = math.inf

    def at_once(self) -> bool:
        """Whether one may go out now. It counts as sent then."""
        if self._prompt == 0:
            return False
        self._prompt -= 1
        return True

    def put_off(self, now: float) -> None:
        self.due = now + self._backoff.next()

    def sent(self) -> None:
        self.due = math.inf

    def rebalance_is_over(self) -> None:
        """The next rebalance begins without a pause."""
        self._prompt = _PROMPT
