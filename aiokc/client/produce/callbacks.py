"""Runs the callbacks of deliveries and interceptors: in order within a partition, and in turns of about 1 ms."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import anyio

from ...net.user_errors import leaves_the_loop
from ..aio.complaints import Complaints
from ..aio.signal import Signal
from ..aio.time_slice import SLICE_SECONDS, let_others_run

logger = logging.getLogger("aiokc.produce")

Call: TypeAlias = Callable[[], object]


class Callbacks:
    """What is due to be called, in order. A turn begins by ``call_soon``, or where an answer is read, but in no send.

    What is due is made when its turn comes: a batch may have a hundred thousand callbacks.
    """

    def __init__(self) -> None:
        self._due: deque[Iterator[Call]] = deque()
        self._added = 0  # how often ``add`` was called
        self._turned = Signal()  # a turn is over
        self._turn: asyncio.Handle | None = None
        self._complaints = Complaints(logger)
        self.running = False
        self._caller: asyncio.Task[Any] | None = None  # the task, if any, in whose step callbacks run

    async def let_them_end(self) -> bool:
        """Return once no callback is running. False, at once, where the current task is the one in whose step they run.

        asyncio.eager_task_factory has a task that a callback creates begin within that callback.
        """
        if not self.running:
            return True
        if asyncio.current_task() is self._caller:
            return False
        with anyio.CancelScope(shield=True):
            await asyncio.sleep(0)
        return True

    def add(self, calls: Iterable[Call]) -> None:
        """Have these called behind all that is due, in a turn that ``begin`` begins."""
        self._due.append(iter(calls))
        self._added += 1

    def begin(self, *, at_once: bool = False) -> None:
        """Call what is due soon; ``at_once``: now, since no task is in the middle of a step."""
        if not self._due or self._turn is not None or self.running:
            return
        if at_once:
            self._run_a_turn()
        else:
            self._turn = asyncio.get_running_loop().call_soon(self._run_a_turn)

    async def caught_up(self, timeout: float | None = None) -> bool:
        """Wait until all that is due now was called; return whether it was, within ``timeout`` seconds."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        last = self._added
        while self._added - len(self._due) < last:
            if not await self._turned.wait(None if deadline is None else deadline - loop.time()):
                return False
        return True

    async def all_called(self, until: Callable[[], float]) -> None:
        """Return once all that is due was called, in turns like all others, or at ``until()`` (loop time).

        That is asked for each time: whoever waits may lose patience. What is left then is called later, for as long as
        the loop runs. Where the task of this call is cancelled, the rest is called at once until then: so asyncio.run()
        does as it ends the loop.
        """
        time = asyncio.get_running_loop().time
        try:
            while self._due and time() < until():
                self._run(time() + SLICE_SECONDS)
                await let_others_run()
        except BaseException:
            self._run(until())
            raise
        finally:
            if self._due:
                text = "stop(): the callbacks of %d batches take too long, and come later, if the event loop goes on"
                logger.warning(text, len(self._due))
                self.begin()

    def _run_a_turn(self) -> None:
        self._turn = None
        loop = asyncio.get_running_loop()
        self._run(loop.time() + SLICE_SECONDS)
        if self._due:  # a timer, not call_soon: what sockets and timers bring is to come first
            self._turn = loop.call_later(0, self._run_a_turn)

    def _run(self, until: float) -> None:
        """Run what is due until then. Whatever a callback raises, the others are called."""
        time = asyncio.get_running_loop().time
        self.running, self._caller = True, asyncio.current_task()
        try:
            while self._due:
                call = next(self._due[0], None)
                if call is None:
                    self._due.popleft()
                    continue
                try:
                    call()
                except BaseException as error:
                    if not leaves_the_loop(error):
                        self._complaints.error(type(error).__name__, error, "a callback of a sent record failed")
                if time() >= until:
                    return
        finally:
            self.running, self._caller = False, None
            self._turned.notify()
