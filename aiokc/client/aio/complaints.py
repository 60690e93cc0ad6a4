"""Complaints: warnings about what goes on failing, at most one of each kind in 30 s."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ...core.rate_limit import RateLimit, and_more

_COMPLAINT_SECONDS: Final = 30.0


class Complaints:
    """Warns by ``logger``. Each warning ends with how many of its kind were held back before it."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger, self._limit = logger, RateLimit(_COMPLAINT_SECONDS)

    def warn(self, kind: object, text: str, *args: object, at_first: int = logging.WARNING) -> None:
        """Log the warning, unless it is held back. ``at_first``: the level of one before which none was held back."""
        held_back = self._limit.admit(kind, asyncio.get_running_loop().time())
        if held_back is not None:
            level = logging.WARNING if held_back else at_first
            line = f"{text}%s"
            self._logger.log(level, line, *args, and_more(held_back), stacklevel=2)

    def forget(self, kind: object) -> None:
        """Let the next warning of this kind through, because what the last one warned of is over."""
        self._limit.forget(kind)
