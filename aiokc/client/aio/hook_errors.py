"""What the application's observers and interceptors raise: it is logged, and ends no call."""

from __future__ import annotations

import logging
from typing import Literal

from ...net.user_errors import leaves_the_loop
from .complaints import Complaints


class HookErrors:
    """Logs the errors of one client's observers, or of its interceptors."""

    def __init__(self, kind: Literal["interceptor", "observer"]) -> None:
        self._kind = kind
        self._complaints = Complaints(logging.getLogger(f"aiokc.{kind}"))

    def log(self, one: object, method: str, so: str, error: BaseException) -> None:
        """Log the error, at most every 30 s for each method. A CancelledError is one, too: nothing is awaited here.

        What ends the loop's run, does so: soon, and the client goes on until then. ``so``: what the error has not
        changed.
        """
        if leaves_the_loop(error):
            return
        name = f"{type(one).__name__}.{method}()"
        self._complaints.error(name, error, "%s %s failed, and %s", self._kind, name, so)
