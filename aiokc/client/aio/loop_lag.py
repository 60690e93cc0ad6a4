"""LoopLag: how late the event loop runs a timer that is due every second."""

from __future__ import annotations

import asyncio
from typing import Final

from ...core.stopwatch import Stopwatch

_SECONDS: Final = 1.0


class LoopLag:
    """Measures, once a second, how much later than it was due the loop runs a timer.

    What holds the loop (a handler that computes, a listener that blocks) delays everything else in it as much.
    """

    def __init__(self) -> None:
        self.late = Stopwatch()

    async def run(self) -> None:
        """Measure until cancelled."""
        time = asyncio.get_running_loop().time
        while True:
            due = time() + _SECONDS
            await asyncio.sleep(_SECONDS)
            self.late.add(max(0.0, time() - due))
