"""How long what never waits may hold the event loop: a call with much to do (TimeSlice), and many calls (Turns)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

# A loop over records that are all buffered never waits for anything. It lets other tasks run after this long: it must
# not starve them, nor the heartbeats.
SLICE_SECONDS = 0.001

# To look at more partitions than these twice holds the loop for milliseconds. Then other tasks run in between.
MANY_PARTITIONS: Final = 1_000

_CALLS_PER_LOOK: Final = 128


async def let_others_run() -> None:
    """Return once everything has run that was due: other tasks, and the callbacks of timers and sockets.

    One ``sleep(0)`` is not enough. It puts the task at the head of the loop's next iteration, and that iteration queues
    the callbacks of timers and sockets behind the task: they would have to wait for the task's next time slice. With
    the second ``sleep(0)`` the task runs after them.
    """
    await asyncio.sleep(0)
    await asyncio.sleep(0)


class Turns:
    """Tells a task that calls again and again, and never has to wait, when to let others run: each 256 calls or sooner.

    Calls of other tasks do not count: those have given way already. Which task calls is asked for at every 128th call
    of a round of the loop only, because before Python 3.12 that takes longer than all else; a task that is met there
    twice in a row has made all the calls in between.
    """

    def __init__(self) -> None:
        self._calls = 0  # in this round of the loop
        self._task: asyncio.Task[Any] | None = None  # met at the last look

    def is_over(self) -> bool:
        """Count a call; return whether to ``let_others_run`` before it goes on."""
        self._calls += 1
        if self._calls % _CALLS_PER_LOOK:
            if self._calls == 1:
                asyncio.get_running_loop().call_soon(self._next_round)
            return False
        before, self._task = self._task, asyncio.current_task()
        return self._task is before

    def _next_round(self) -> None:
        self._calls, self._task = 0, None


class TimeSlice:
    """How long a task that never has to wait may go on before it has to let other tasks run."""

    def __init__(self) -> None:
        self.ends = 0.0  # loop time

    @classmethod
    def begun(cls) -> TimeSlice:
        """Return a slice that begins now."""
        begun = cls()
        begun.begins()
        return begun

    async def give_way(self) -> None:
        """Let other tasks run, and begin a new slice: to be called when the slice has ended."""
        await let_others_run()
        self.begins()

    def begins(self) -> None:
        """Begin a new slice. Call it only after other tasks have run: else the loop is held without end."""
        self.ends = asyncio.get_running_loop().time() + SLICE_SECONDS
