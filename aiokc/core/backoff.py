"""Exponential backoff with jitter: how long to wait before the next attempt (KIP-580)."""

from __future__ import annotations

from typing import Final, Protocol

from ..config import ClusterConfig

#: No pause is shorter, whatever the options say (seconds).
SHORTEST: Final = 0.001
_LONGEST_SEARCH_PAUSE: Final = 10.0


class Chance(Protocol):
    """The source of jitter, such as a ``random.Random``."""

    def uniform(self, a: float, b: float, /) -> float: ...


class Backoff:
    """Pauses that grow from ``initial`` by ``factor`` up to ``maximum`` seconds (KIP-580).

    Each pause is made longer or shorter by a random share of up to ``jitter``: clients that lost the same broker must
    not come back in step. No pause exceeds ``maximum``. Where an option says 0, a pause is about 1 ms: attempts without
    a pause would follow one another in one step of the event loop, in which nothing else runs.
    """

    def __init__(
        self, initial: float, maximum: float, random: Chance, factor: float = 2.0, jitter: float = 0.2
    ) -> None:
        self._initial = max(initial, SHORTEST)
        self._maximum = max(maximum, SHORTEST)
        self._random = random
        self._factor = factor
        self._jitter = jitter
        self._pause = self._initial

    def next(self) -> float:
        """Return the next pause in seconds."""
        pause = self._pause
        self._pause = min(pause * self._factor, self._maximum)
        return min(pause * self._random.uniform(1 - self._jitter, 1 + self._jitter), self._maximum)

    def reset(self) -> None:
        """Start again from ``initial``, after an attempt that succeeded."""
        self._pause = self._initial


def retry_backoff(config: ClusterConfig, random: Chance) -> Backoff:
    """Return the pauses between the attempts of a request: retry_backoff_ms, growing up to retry_backoff_max_ms."""
    return Backoff(config.retry_backoff_ms / 1e3, config.retry_backoff_max_ms / 1e3, random)


def search_pause(missing: float) -> float:
    """How long to wait before looking again for what has been missing for so many seconds: a tenth, but 10 s at most.

    What comes soon is found soon, and what never comes costs little.
    """
    return min(missing / 10, _LONGEST_SEARCH_PAUSE)
