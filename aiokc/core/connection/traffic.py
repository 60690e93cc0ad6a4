"""The counters of what a client exchanges with one broker: connections, answered requests, throttling."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..stopwatch import Stopwatch


@dataclass(slots=True)
class NodeTraffic:
    """What was exchanged with one broker, over all connections and at all addresses that it has had."""

    connects: int = 0
    requests: Stopwatch = field(default_factory=Stopwatch)
    throttle: Stopwatch = field(default_factory=Stopwatch)
