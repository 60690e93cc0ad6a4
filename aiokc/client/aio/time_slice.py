"""TimeSlice: bounds how long a call that never waits holds the event loop (2 ms), and then lets other tasks run."""

from __future__ import annotations

import asyncio

# A loop over records that are all buffered never waits for anything. It lets other tasks run after this long: it must
# not starve them, nor the heartbeats.
SLICE_SECONDS = 0.002


async def let_others_run() -> None:
    """Return once everything has run that was due: other tasks, and the callbacks of timers and sockets.

    One ``sleep(0)`` is not enough. It puts the task at the head of the loop's next iteration, and that iteration queues
    the callbacks of timers and sockets behind the task: they would have to wait for the task's next time slice. With
    the second ``sleep(0)`` the task runs after them.
    """
    await asyncio.sleep(0)
    await asyncio.sleep(0)


class TimeSlice:
    """How long a task that never has to wait may go on before it has to let other tasks run."""

    def __init__(self) -> None:
        self.ends = 0.0  # loop time

    async def give_way(self) -> None:
        """Let other tasks run, and begin a new slice: to be called when the slice has ended."""
        await let_others_run()
        self.begins()

    def begins(self) -> None:
        """Begin a new slice. Call it only after other tasks have run: else the loop is held without end."""
        self.ends = asyncio.get_running_loop().time() + SLICE_SECONDS
