"""A rate limit for log messages that repeat: one of each kind in an interval; the others are counted."""

from __future__ import annotations


def and_more(held_back: int) -> str:
    """Return the end of a message: how many messages of its kind were held back before it."""
    return f" ({held_back} more since the last such message)" if held_back else ""


class RateLimit:
    """Lets one event of each kind (anything hashable) through per ``interval`` seconds and counts the others."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._seen: dict[object, tuple[float, int]] = {}

    def admit(self, kind: object, now: float) -> int | None:
        """Return how many events of this kind were held back since the last admitted one; None holds this one back."""
        since, held_back = self._seen.get(kind, (float("-inf"), 0))
        if now - since < self._interval:
            self._seen[kind] = since, held_back + 1
            return None
        self._seen[kind] = now, 0
        return held_back

    def forget(self, kind: object) -> None:
        """Let the next event of this kind through, because what the last one warned of is over."""
        self._seen.pop(kind, None)
