"""What is counted on the way: integers where events pass anyway, and a snapshot of them when somebody asks."""

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
    """Counts what took how long. Seconds in, milliseconds out."""

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
    """Requests of one kind: how long the answers took, and how many failed."""

    answered: Stopwatch = field(default_factory=Stopwatch)
    failed: int = 0

    def attempt(self, clock: Callable[[], float]) -> _Attempt:
        """Count the request that is sent inside: as failed where that raises."""
        return _Attempt(self, clock)


class _Attempt:
    """A request that counts. One for each Fetch: a generator as context manager costs several times as much."""

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
    """What was fetched, and what was handed out."""

    fetches: RequestCounter = field(default_factory=RequestCounter)
    bytes: int = 0
    records: int = 0


@dataclass(slots=True)
class GroupCounters:
    """One membership. ``rebalancing_since``: None while nothing is under way."""

    joins: Stopwatch = field(default_factory=Stopwatch)
    syncs: Stopwatch = field(default_factory=Stopwatch)
    failed_joins: int = 0
    rebalances: Stopwatch = field(default_factory=Stopwatch)
    heartbeats: RequestCounter = field(default_factory=RequestCounter)
    last_heartbeat: float | None = None
    rebalancing_since: float | None = None

    def stands(self, rebalancing: bool, assigned: bool, now: float) -> None:
        """The machine is between two assignments or not; ``assigned``: it has just got one."""
        if assigned and self.rebalancing_since is not None:
            self.rebalances.add(now - self.rebalancing_since)
            self.rebalancing_since = None
        if not rebalancing:
            self.rebalancing_since = None
        elif self.rebalancing_since is None:
            self.rebalancing_since = now

    def heard(self, event: Event, now: float) -> None:
        """The machine is told this."""
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
                        pass  # commits are counted where they are sent

    def answered(self, event: Event, seconds: float) -> None:
        """An exchange has led to this."""
        match event:
            case Joined():
                self.joins.add(seconds)
            case Synced():
                self.syncs.add(seconds)
            case Alive() | Rebalancing(sent=SendHeartbeat()):
                self.heartbeats.answered.add(seconds)
