"""Stopwatch and RequestCounter: how often something happened, how long it took, and how often it failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..observation import Latency


@dataclass(slots=True)
class Stopwatch:
    """Counts events and how long they took: ``add`` takes seconds, ``snapshot`` returns milliseconds."""

    count: int = 0
    total: float = 0.0
    longest: float = 0.0
    last: float | None = None

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.last = seconds
        if seconds > self.longest:
            self.longest = seconds

    def snapshot(self) -> Latency:
        last = None if self.last is None else self.last * 1e3
        return Latency(self.count, self.total * 1e3, self.longest * 1e3, last)


@dataclass(slots=True)
class RequestCounter:
    """Requests of one kind: how long their answers took, and how many requests failed."""

    answered: Stopwatch = field(default_factory=Stopwatch)
    failed: int = 0

    def attempt(self, clock: Callable[[], float]) -> _Attempt:
        """Return a context manager that counts the request sent inside it; the request failed if that raises."""
        return _Attempt(self, clock)


class _Attempt:
    """Counts one request; a cancelled one counts neither as answered nor as failed.

    A class, because there is one for each Fetch: a generator with ``@contextmanager`` costs several times as much.
    """

    __slots__ = ("_began", "_clock", "_counter")

    def __init__(self, counter: RequestCounter, clock: Callable[[], float]) -> None:
        self._counter, self._clock = counter, clock

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self._counter.answered.add(self._clock() - self._began)
        elif issubclass(kind, Exception):
            self._counter.failed += 1
