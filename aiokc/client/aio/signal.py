"""Signal: a change that tasks wait for. It has no flag to clear, and loses no wake-up."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ...net.reply import HandedOver, hand_over_next


class Follower(Protocol):
    """What is notified with a signal: another signal, for instance."""

    def notify(self) -> None: ...


class Signal:
    """A change that tasks of one loop wait for.

    A task looks at the state and then calls ``wait``, with no await in between: so it can't miss a ``notify``, and
    there is no flag that a task must remember to clear.
    """

    def __init__(self) -> None:
        #: How often ``notify`` was called.
        self.notified = 0
        self._waiters: dict[HandedOver[None], None] = {}  # a dict, since a set has no order
        self._followers: list[Follower] = []

    def followed_by(self, other: Follower) -> None:
        """Notify ``other``, too, whenever this signal is notified."""
        self._followers.append(other)

    def not_followed_by(self, other: Follower) -> None:
        """Undo ``followed_by``."""
        self._followers.remove(other)

    def notify(self) -> None:
        """Wake all tasks that wait now, in the order in which they began to wait.

        They run in the loop's next iteration. What an answer brings is quicker: they run before the callback returns
        that has read it from the socket, once the task waits again to which the answer was handed over.
        """
        self.notified += 1
        for follower in self._followers:
            follower.notify()
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                hand_over_next(waiter)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the next ``notify``, at most ``timeout`` seconds; return whether it came."""
        if timeout is not None and timeout <= 0:
            return False
        loop = asyncio.get_running_loop()
        waiter: HandedOver[None] = HandedOver(loop=loop)
        timer = None if timeout is None else loop.call_later(timeout, _expire, waiter)
        self._waiters[waiter] = None
        try:
            await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.pop(waiter, None)
            if timer is not None:
                timer.cancel()
        return True


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
