"""RefreshWindow: when to ask for the next token, ahead of the end of the present one, as Java's client does."""

from __future__ import annotations

from typing import Final, NamedTuple

from ....config import SecurityConfig
from ....core.backoff import Chance

# A provider that keeps tokens for itself may answer with the present token, whose life gets shorter and shorter.
_LEAST_PAUSE: Final = 1.0


class RefreshWindow(NamedTuple):
    """The share of a token's life after which it is replaced, and the least distances to both of its ends in seconds.

    The defaults are Java's (``sasl.login.refresh.*``).
    """

    factor: float = 0.8
    jitter: float = 0.05
    min_period: float = 60.0
    buffer: float = 300.0

    @classmethod
    def of(cls, config: SecurityConfig) -> RefreshWindow:
        return cls(
            config.sasl_login_refresh_window_factor,
            config.sasl_login_refresh_window_jitter,
            config.sasl_login_refresh_min_period_seconds,
            config.sasl_login_refresh_buffer_seconds,
        )

    def due_at(self, asked_at: float, expires_at: float, random: Chance) -> float:
        """Return when to ask for the next token, in the unit of both arguments.

        The jitter keeps clients apart that have started together. ``min_period`` and ``buffer`` only count together: a
        token whose life is shorter than both is replaced at its share.
        """
        share = self.factor + random.uniform(0, self.jitter)
        due = asked_at + (expires_at - asked_at) * share
        earliest, latest = asked_at + self.min_period, expires_at - self.buffer
        if earliest <= latest:
            due = max(earliest, min(due, latest))
        return max(due, asked_at + _LEAST_PAUSE)
