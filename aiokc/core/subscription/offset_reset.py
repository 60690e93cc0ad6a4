"""The timestamp that a reset policy asks ListOffsets for (KIP-1106); client/positions applies the policies."""

from __future__ import annotations

from typing import Final

from ...config import duration_ms
from ...types import EARLIEST, LATEST

_FIXED: Final[dict[str, int | None]] = {"earliest": EARLIEST, "latest": LATEST, "none": None}


class OffsetReset:
    """One policy: "earliest", "latest", "by_duration:<ISO 8601>", or "none"."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self._back_ms = duration_ms(policy)

    def timestamp(self, now: float) -> int | None:
        """The timestamp to ask ListOffsets for, at ``now`` (s since the epoch); None: the application must seek()."""
        if self._back_ms is not None:
            return max(0, int(now * 1000) - self._back_ms)
        return _FIXED[self.policy]
