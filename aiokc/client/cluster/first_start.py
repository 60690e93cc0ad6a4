"""FirstStart: what a second start() of the same client waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...errors import RequestTimedOut


class FirstStart:
    """The start() that counts. ``check`` raises why the client does not run."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._is_over = asyncio.Event()

    def ends(self) -> None:
        """It has ended, with success or not."""
        self._is_over.set()

    async def wait(self, timeout: float) -> None:
        """Return when the client runs. Raises why it does not, or RequestTimedOut after ``timeout`` seconds."""
        self._check()
        try:
            async with asyncio.timeout(timeout):
                await self._is_over.wait()
        except TimeoutError:
            raise RequestTimedOut(f"start(): another task's start() was not over within {timeout:.3g} s") from None
        self._check()
