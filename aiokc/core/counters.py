"""The counters behind metrics(): Fetch requests, records handed out, joins, rebalances, heartbeats, revocations."""

from __future__ import annotations

from dataclasses import dataclass, field

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
from .stopwatch import RequestCounter, Stopwatch


@dataclass(slots=True)
class FetchCounters:
    """Fetch requests, the bytes of record batches that they brought, and the records handed out.

    ``undecodable`` counts the records that a deserializer refused. ``heard`` is when each broker last answered a Fetch.
    """

    fetches: RequestCounter = field(default_factory=RequestCounter)
    bytes: int = 0
    records: int = 0
    undecodable: int = 0
    heard: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class AssignmentCounters:
    """The partitions that were revoked and lost, and the calls of the rebalance listener."""

    revoked: int = 0
    lost: int = 0
    listener: Stopwatch = field(default_factory=Stopwatch)


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
