"""Complaints: messages about what goes on failing, at most one of each kind in 30 s."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ...core.rate_limit import RateLimit, and_more
from ...errors import shown

_SECONDS: Final = 30.0


class Complaints:
    """Logs by ``logger``. Each message ends with how many of its kind were held back before it."""

    def __init__(self, logger: logging.Logger, seconds: float = _SECONDS) -> None:
        """``seconds``: how long the next message of a kind is held back."""
        self._logger, self._limit = logger, RateLimit(seconds)

    def warn(self, kind: object, text: str, *args: object, at_first: int = logging.WARNING) -> None:
        """Log the warning, unless it is held back. ``at_first``: the level of one before which none was held back."""
        held_back = self._limit.admit(kind, asyncio.get_running_loop().time())
        if held_back is not None:
            level = logging.WARNING if held_back else at_first
            line = f"{text}%s"
            self._logger.log(level, line, *args, and_more(held_back), stacklevel=2)

    def error(self, kind: object, error: BaseException, text: str, *args: object) -> None:
        """Log ``text`` and what the application's code has raised, with its traceback, unless it is held back."""
        held_back = self._limit.admit(kind, asyncio.get_running_loop().time())
        if held_back is not None:
            line = f"{text}: %s%s"
            self._logger.error(line, *args, shown(error), and_more(held_back), exc_info=error, stacklevel=2)

    def forget(self, kind: object) -> None:
        """Let the next message of this kind through, because what the last one told of is over."""
        self._limit.forget(kind)
