"""Waking whoever waits for a change."""

from __future__ import annotations

import asyncio


class Signal:
    """A change that tasks wait for. One loop only: between a look at the state and ``wait`` there must be no await.

    So no wake-up can be lost, and there is no flag that somebody must remember to clear.
    """

    def __init__(self) -> None:
        #: How often it happened.
        self.notified = 0
        self._waiters: dict[asyncio.Future[None], None] = {}  # in the order in which they came, which a set has not
        self._followers: list[Signal] = []

    def followed_by(self, other: Signal) -> None:
        """Let ``other`` be notified whenever this one is."""
        self._followers.append(other)

    def not_followed_by(self, other: Signal) -> None:
        """Undo ``followed_by``."""
        self._followers.remove(other)

    def notify(self) -> None:
        """Wake all that wait now, in the order in which they came."""
        self.notified += 1
        for follower in self._followers:
            follower.notify()
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the next ``notify``, at most ``timeout`` seconds; return whether it came."""
        if timeout is not None and timeout <= 0:
            return False
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
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
