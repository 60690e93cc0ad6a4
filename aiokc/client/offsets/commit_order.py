"""The order of commits: each takes a slot when it is called for, and is sent when all slots before have ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


def _tell_nobody(oldest: int) -> None:
    pass


class CommitOrder:
    """A queue of commits. Unlike with asyncio.Lock, a plain function can take a place in it, without waiting.

    ``newest`` is the highest order that was given to a slot or a ``call``, or by ``now``. ``on_end`` is called whenever
    a call has ended, with an order that none of the calls under way, and none to come, is below.
    """

    def __init__(self, on_end: Callable[[int], None] = _tell_nobody) -> None:
        self.queue: deque[asyncio.Future[None]] = deque()
        self.newest = 0
        self._on_end = on_end
        self._under_way: dict[int, None] = {}  # the orders of calls that have not ended: ascending, as they began

    def take(self, order: int | None = None) -> CommitSlot:
        """Take the slot behind all others. The caller must end() it, or no later slot ever comes.

        ``order``: that of the ``call`` of which this is an attempt. Without one, the slot is a call of its own.
        """
        return CommitSlot(self, order)

    @contextmanager
    def call(self) -> Iterator[int]:
        """Within this block one commit is called for, in attempts that each take a slot: all have the order returned.

        Between two attempts it has no slot, but is under way: what is stored meanwhile may be newer.
        """
        order = self.begin_call()
        try:
            yield order
        finally:
            self.end_call(order)

    def begin_call(self) -> int:
        """Return the order of a call that is under way from now on, until ``end_call``."""
        order = self.now()
        self._under_way[order] = None
        return order

    def end_call(self, order: int) -> None:
        """The call of this order has ended: there is no further attempt at it."""
        del self._under_way[order]
        self._on_end(next(iter(self._under_way), self.newest + 1))

    def now(self) -> int:
        """Return a new order, higher than that of every slot taken by now."""
        self.newest += 1
        return self.newest

    async def settled(self, deadline: float) -> None:
        """Wait until every commit called for before has ended; give up at ``deadline``."""
        slot = self.take()
        try:
            with suppress(TimeoutError):  # the callers of those commits get their own errors
                await slot.wait(deadline)
        finally:
            slot.end()


class CommitSlot:
    """A place in the queue of a CommitOrder. ``order`` says when the commit was called for: the newest has the highest.

    A second attempt keeps the order of the first one, and stands behind all slots that were taken since. Without an
    ``order`` there is one attempt: the call begins and ends with the slot.
    """

    def __init__(self, commits: CommitOrder, order: int | None) -> None:
        self._commits = commits
        self._queue = commits.queue
        self._come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_call = order is None
        self.order = commits.begin_call() if order is None else order
        self._queue.append(self._come)
        self._call_first()

    @property
    def is_last(self) -> bool:
        """Whether no slot was taken, and no order given, after this one: what is called for now may share it."""
        return bool(self._queue) and self._queue[-1] is self._come and self.order == self._commits.newest

    async def wait(self, deadline: float | None = None) -> None:
        """Return when all slots before have ended. Raises TimeoutError at ``deadline`` (in the time of the loop)."""
        if self._come.done():
            return
        async with asyncio.timeout_at(deadline):
            await asyncio.shield(self._come)

    def end(self) -> None:
        """Leave the queue, whether this slot has come or not, so that the next can come. A second call does nothing."""
        if self._come in self._queue:
            self._queue.remove(self._come)
            self._call_first()
            if self._is_call:
                self._commits.end_call(self.order)

    def _call_first(self) -> None:
        if self._queue and not self._queue[0].done():
            self._queue[0].set_result(None)
