"""A rate limit for log messages that repeat: one of each kind in an interval; the others are counted."""

from __future__ import annotations

from typing import Final

#: So many kinds are kept, however old: to look through them takes a fraction of a millisecond.
_FEW: Final = 256
#: A count of events that were held back is kept for so many intervals, where no other event of its kind comes.
_COUNT_KEPT: Final = 10


def and_more(held_back: int) -> str:
    """Return the end of a message: how many messages of its kind were held back before it."""
    return f" ({held_back} more since the last such message)" if held_back else ""


class RateLimit:
    """Lets one event of each kind (anything hashable) through per ``interval`` seconds and counts the others.

    Kinds that do not come again are let go of in time: a kind may be a topic or a partition, of which there come ever
    new ones.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._seen: dict[object, tuple[float, int]] = {}
        self._most = _FEW  # kinds, before some are let go of

    def admit(self, kind: object, now: float) -> int | None:
        """Return how many events of this kind were held back since the last admitted one; None holds this one back."""
        since, held_back = self._seen.get(kind, (float("-inf"), 0))
        if now - since < self._interval:
            self._seen[kind] = since, held_back + 1
            return None
        if len(self._seen) >= self._most:
            self._let_go(now)
        self._seen[kind] = now, 0
        return held_back

    def _let_go(self, now: float) -> None:
        kept = {
            kind: (since, held_back)
            for kind, (since, held_back) in self._seen.items()
            if now - since < self._interval * (_COUNT_KEPT if held_back else 1)
        }
        self._seen, self._most = kept, max(_FEW, 2 * len(kept))

    def forget(self, kind: object) -> None:
        """Let the next event of this kind through, because what the last one warned of is over."""
        self._seen.pop(kind, None)
