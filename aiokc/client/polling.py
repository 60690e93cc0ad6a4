"""One user at a time: the guard around the calls that hand out records, and the pace at which they let others run."""

from __future__ import annotations

import asyncio

from ..errors import ConcurrentCall

# A loop over records that are all there never waits for anything; so that it can't starve the other tasks (and the
# heartbeats among them), it gives way after this long.
_TURN_SECONDS = 0.002


async def let_others_run() -> None:
    """Return once all has run that was due: other tasks, and timers and sockets, too.

    Whoever gives way once comes back at the head of the loop's next round. That round has then just looked at timers
    and sockets, and put what is due behind him: it would wait for his turn and for another one. So he goes behind it.
    """
    await asyncio.sleep(0)
    await asyncio.sleep(0)


class Turn:
    """How long somebody who never has to wait may go on before others have to run."""

    def __init__(self) -> None:
        self.ends = 0.0  # at the time of the loop

    async def give_way(self) -> None:
        """Let other tasks run: to be called when the turn has ended."""
        await let_others_run()
        self.begins()

    def begins(self) -> None:
        """Others have run just now. Only after they really have: else the loop is held without end."""
        self.ends = asyncio.get_running_loop().time() + _TURN_SECONDS


class SingleUser:
    """Where one task at a time may be: from ``enters`` to ``leaves``, with nothing but that task's own code between."""

    def __init__(self) -> None:
        self._user: asyncio.Task[object] | None = None
        self._last_user: asyncio.Task[object] | None = None
        self.turn = Turn()

    def refuse_others(self) -> None:
        """Raise ConcurrentCall where another call is in here."""
        if self._user is not None:
            raise ConcurrentCall(
                f"getmany, getone or the iterator is running in task {self._user.get_name()!r}: a consumer serves one "
                "task at a time; use one consumer for each, or hand records over by a queue"
            )

    def enters(self) -> None:
        self._user = asyncio.current_task()

    def leaves(self) -> None:
        self._user, self._last_user = None, self._user

    @property
    def was_this_task(self) -> bool:
        """Whether the last call of those was this task's: then what it returned is in this task's hands."""
        return self._last_user is asyncio.current_task() and self._user is None
