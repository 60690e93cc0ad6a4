"""The order of commits: each takes a slot when it is called for, and is sent when all slots before have ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import TypeAlias

_Queue: TypeAlias = deque[asyncio.Future[None]]


class CommitOrder:
    """A queue of commits. Unlike with asyncio.Lock, a plain function can take a place in it, without waiting."""

    def __init__(self) -> None:
        self._queue: _Queue = deque()
        self._orders = count(1)

    def take(self, order: int | None = None) -> CommitSlot:
        """Take the slot behind all others. The caller must end() it, or no later slot ever comes.

        ``order``: for a second attempt at the same commit, the order of its first slot.
        """
        return CommitSlot(self._queue, self._orders, order)


class CommitSlot:
    """A place in the queue of a CommitOrder. ``order`` grows with each slot: the newest has the highest."""

    def __init__(self, queue: _Queue, orders: Iterator[int], order: int | None) -> None:
        self.order = next(orders) if order is None else order
        self._orders = orders
        self._queue = queue
        self._come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(self._come)
        self._call_first()

    @property
    def is_last(self) -> bool:
        """Whether no slot was taken after this one."""
        return bool(self._queue) and self._queue[-1] is self._come

    async def wait(self, deadline: float | None = None) -> None:
        """Return when all slots before have ended. Raises TimeoutError at ``deadline`` (in the time of the loop)."""
        if self._come.done():
            return
        async with asyncio.timeout_at(deadline):
            await asyncio.shield(self._come)

    def order_now(self) -> int:
        """Return a new order, higher than that of every slot taken by now."""
        return next(self._orders)

    def end(self) -> None:
        """Leave the queue, whether this slot has come or not, so that the next can come. A second call does nothing."""
        if self._come in self._queue:
            self._queue.remove(self._come)
            self._call_first()

    def _call_first(self) -> None:
        if self._queue and not self._queue[0].done():
            self._queue[0].set_result(None)
