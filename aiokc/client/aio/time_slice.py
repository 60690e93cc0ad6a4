"""How long a call that never has to wait may hold the event loop, and how it lets other tasks run."""

from __future__ import annotations

import asyncio

# A loop over records that are all there never waits for anything; so that it can't starve the other tasks (and the
# heartbeats among them), it gives way after this long.
_SLICE_SECONDS = 0.002


async def let_others_run() -> None:
    """Return once all has run that was due: other tasks, and timers and sockets, too.

    Whoever gives way once comes back at the head of the loop's next round. That round has then just looked at timers
    and sockets, and put what is due behind him: it would wait for his turn and for another one. So he goes behind it.
    """
    await asyncio.sleep(0)
    await asyncio.sleep(0)


class TimeSlice:
    """How long somebody who never has to wait may go on before others have to run."""

    def __init__(self) -> None:
        self.ends = 0.0  # at the time of the loop

    async def give_way(self) -> None:
        """Let other tasks run: to be called when the turn has ended."""
        await let_others_run()
        self.begins()

    def begins(self) -> None:
        """Others have run just now. Only after they really have: else the loop is held without end."""
        self.ends = asyncio.get_running_loop().time() + _SLICE_SECONDS
