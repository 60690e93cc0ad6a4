"""What the application's observers and interceptors raise: it is logged, and ends no call."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Literal

from ...core.rate_limit import RateLimit, and_more
from ...errors import shown
from ...net.user_errors import leaves_the_loop

_COMPLAINT_SECONDS: Final = 30.0


class HookErrors:
    """Logs the errors of one client's observers, or of its interceptors."""

    def __init__(self, kind: Literal["interceptor", "observer"]) -> None:
        self._kind = kind
        self._logger = logging.getLogger(f"aiokc.{kind}")
        self._complaints = RateLimit(_COMPLAINT_SECONDS)

    def log(self, one: object, method: str, so: str, error: BaseException) -> None:
        """Log the error, at most every 30 s for each method. A CancelledError is one, too: nothing is awaited here.

        What ends the loop's run, does so: soon, and the client goes on until then. ``so``: what the error has not
        changed.
        """
        if leaves_the_loop(error):
            return
        name = f"{type(one).__name__}.{method}()"
        held_back = self._complaints.admit(name, asyncio.get_running_loop().time())
        if held_back is not None:
            self._logger.error(
                "%s %s failed, and %s: %s%s",
                self._kind,
                name,
                so,
                shown(error),
                and_more(held_back),
                exc_info=error,
            )
