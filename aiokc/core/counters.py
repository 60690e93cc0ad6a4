"""The counters behind metrics(): Fetch requests and their bytes, records handed out, joins, rebalances, heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..observation import Latency
from .group.events import (
    Alive,
    CoordinatorLost,
    Event,
    Exchange,
    Fatal,
    GroupRequest,
    IdentityLost,
    Joined,
    NotNow,
    Rebalancing,
    SendHeartbeat,
    SentCommit,
    Synced,
)


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
        self.longest = max(self.longest, seconds)

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


@dataclass(slots=True)
class FetchCounters:
    """Fetch requests, the bytes of record batches that they brought, and the records handed out."""

    fetches: RequestCounter = field(default_factory=RequestCounter)
    bytes: int = 0
    records: int = 0


@dataclass(slots=True)
class GroupCounters:
    """What one membership of a group counts. ``rebalancing_since`` is None unless a rebalance is under way."""

    joins: Stopwatch = field(default_factory=Stopwatch)
    syncs: Stopwatch = field(default_factory=Stopwatch)
    failed_joins: int = 0
    rebalances: Stopwatch = field(default_factory=Stopwatch)
    heartbeats: RequestCounter = field(default_factory=RequestCounter)
    last_heartbeat: float | None = None
    rebalancing_since: float | None = None

    def stands(self, rebalancing: bool, assigned: bool, now: float) -> None:
        """Note whether the member is between two assignments, and whether it has just been ``assigned`` one."""
        if assigned and self.rebalancing_since is not None:
            self.rebalances.add(now - self.rebalancing_since)
            self.rebalancing_since = None
        if not rebalancing:
            self.rebalancing_since = None
        elif self.rebalancing_since is None:
            self.rebalancing_since = now

    def heard(self, event: Event, now: float) -> None:
        """Count an event that the membership's state machine is told."""
        match event:
            case Alive() | Rebalancing(sent=SendHeartbeat()):
                self.last_heartbeat = now
            case Rebalancing() | IdentityLost() | CoordinatorLost() | NotNow() | Fatal():
                match event.sent:
                    case SendHeartbeat():
                        self.heartbeats.failed += 1
                    case GroupRequest():
                        self.failed_joins += 1
                    case SentCommit() | Exchange():
                        pass  # commits are counted where the client sends them

    def answered(self, event: Event, seconds: float) -> None:
        """Count an exchange that took so many seconds and led to this event."""
        match event:
            case Joined():
                self.joins.add(seconds)
            case Synced():
                self.syncs.add(seconds)
            case Alive() | Rebalancing(sent=SendHeartbeat()):
                self.heartbeats.answered.add(seconds)
