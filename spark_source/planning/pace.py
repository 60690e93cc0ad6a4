"""How often a stream asks the cluster for the ends of its logs: Spark would ask an idle query every 10 ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# An idle query asks once in this time, multiplied by the number of leaders, but not less than once in a second: the
# pause is within the query, and holds up its trigger and its other sources. So up to four leaders get 4 ListOffsets
# requests a second in all, and each of more leaders gets one. Besides there is half a Metadata request a second. While
# a new partition waits for minOffsetsPerTrigger, its start is asked for, too: so the query asks half as often.
_IDLE_SECONDS: Final = 0.25
_LONGEST_IDLE_SECONDS: Final = 1.0
_BUSY_SECONDS: Final = 0.05


class Pace:
    """Sleeps in a call that follows the last one too closely."""

    def __init__(self, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._clock, self._sleep = clock, sleep
        self._asked = self._not_before = clock()

    def keep(self) -> None:
        """Sleep until the cluster may be asked again."""
        wait = self._not_before - self._clock()
        if wait > 0:
            self._sleep(wait)

    def asked(self, *, leaders: int, rounds: int, is_idle: bool) -> None:
        """Note that the cluster was asked just now, in so many ``rounds``; ``is_idle``: it had nothing for a batch."""
        idle = min(_IDLE_SECONDS * max(1, leaders), _LONGEST_IDLE_SECONDS) * rounds
        self._asked = self._clock()
        self._not_before = self._asked + (idle if is_idle else _BUSY_SECONDS)

    def batch_begins(self) -> None:
        """Note that the query has a new batch, perhaps only of another source: it must not wait as an idle one does."""
        self._not_before = min(self._not_before, self._asked + _BUSY_SECONDS)
