"""The counters of what a client exchanges with one broker: connections, answered requests, throttling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..stopwatch import Stopwatch

#: A broker may say up to 24 days. After this a request is tried again, whatever it said.
_LONGEST_THROTTLE_SECONDS: Final = 60.0


@dataclass(slots=True)
class NodeTraffic:
    """What was exchanged with one broker, over all connections and at all addresses that it has had."""

    connects: int = 0
    requests: Stopwatch = field(default_factory=Stopwatch)
    throttle: Stopwatch = field(default_factory=Stopwatch)

    def throttled(self, milliseconds: int) -> float:
        """The broker throttles this client; return for how many seconds nothing is sent to it (KIP-219)."""
        self.throttle.add(milliseconds / 1e3)
        return min(milliseconds / 1e3, _LONGEST_THROTTLE_SECONDS)
