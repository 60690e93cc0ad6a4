"""Whose turn it is: one at a time, in the order in which they asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import TypeAlias

_Queue: TypeAlias = deque[asyncio.Future[None]]


class CommitOrder:
    """A queue. Unlike a lock's, a place in it can be taken without waiting, by code that is no coroutine."""

    def __init__(self) -> None:
        self._queue: _Queue = deque()
        self._orders = count(1)

    def take(self, order: int | None = None) -> CommitSlot:
        """Take the place behind all others. Whoever does must end() it, or nobody's turn ever comes.

        ``order`` is that of an earlier turn, where this one is for the same thing once more.
        """
        return CommitSlot(self._queue, self._orders, order)


class CommitSlot:
    """A place in the queue of Turns. ``order`` grows with each one that is asked for: the newest has the highest."""

    def __init__(self, queue: _Queue, orders: Iterator[int], order: int | None) -> None:
        self.order = next(orders) if order is None else order
        self._orders = orders
        self._queue = queue
        self._come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(self._come)
        self._call_first()

    @property
    def is_last(self) -> bool:
        """Whether nobody has asked since."""
        return bool(self._queue) and self._queue[-1] is self._come

    async def wait(self, deadline: float | None = None) -> None:
        """Return when it has come. Raises TimeoutError at ``deadline`` (in the time of the loop)."""
        if self._come.done():
            return
        async with asyncio.timeout_at(deadline):
            await asyncio.shield(self._come)

    def order_now(self) -> int:
        """Return one that is higher than that of every turn which was asked for by now."""
        return next(self._orders)

    def end(self) -> None:
        """Let the next one have its turn, whether this one has come or not. A second call does nothing."""
        if self._come in self._queue:
            self._queue.remove(self._come)
            self._call_first()

    def _call_first(self) -> None:
        if self._queue and not self._queue[0].done():
            self._queue[0].set_result(None)
