"""The order of commits: each takes a slot when it is called for, and is sent when all slots before have ended."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class CommitOrder:
    """A queue of commits. Unlike with asyncio.Lock, a plain function can take a place in it, without waiting.

    ``newest`` is the highest order that was given to a slot, or by ``now``.
    """

    def __init__(self) -> None:
        self.queue: deque[asyncio.Future[None]] = deque()
        self.newest = 0

    def take(self, order: int | None = None) -> CommitSlot:
        """Take the slot behind all others. The caller must end() it, or no later slot ever comes.

        ``order``: for a second attempt at the same commit, the order of its first slot.
        """
        return CommitSlot(self, self.now() if order is None else order)

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

    A second attempt keeps the order of the first one, and stands behind all slots that were taken since.
    """

    def __init__(self, commits: CommitOrder, order: int) -> None:
        self.order = order
        self._commits = commits
        self._queue = commits.queue
        self._come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
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

    def _call_first(self) -> None:
        if self._queue and not self._queue[0].done():
            self._queue[0].set_result(None)
