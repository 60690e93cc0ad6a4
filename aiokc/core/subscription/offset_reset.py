"""Where to go on without a position: the policies of auto_offset_reset and offset_out_of_range_reset (KIP-1106)."""

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
        """What to ask ListOffsets for, ``now`` being seconds since the epoch; None: nothing, the user must seek."""
        if self._back_ms is not None:
            return max(0, int(now * 1000) - self._back_ms)
        return _FIXED[self.policy]
