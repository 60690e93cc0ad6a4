"""Lets a few TLS handshakes of one event loop run at a time, so that no iteration of the loop has the steps of many.

``handshake_limit`` ends each handshake, by TLS or not, that takes too long, and what has to come before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final
from weakref import ReferenceType, WeakKeyDictionary, ref

from ..core.connection.late_alarm import LateAlarm

_MOST: Final = 4
# How long a handshake counts as under way, in seconds: longer than with a broker that is near. One that is far away, or
# silent, must not hold up the others.
_SHARE: Final = 0.02
# A share that ends so many seconds late tells of a loop that is busy, with handshakes say. The next handshake then
# waits for another share, of which there are so many at most.
_LATE: Final = 0.002
_MOST_SHARES: Final = 5


class HandshakeOrder:
    """Lets at most four handshakes be under way at a time, of which each counts for 20 ms: 100 ms if the loop is busy.

    To check a broker's certificates and its signature takes a millisecond of the loop. The brokers' answers to dozens
    of handshakes that began together come together, and one iteration of the loop would have to look at all of them.
    The last handshake is not over later for that: they share the loop's time anyway.
    """

    def __init__(self) -> None:
        self._in_line = asyncio.Lock()
        self._under_way: deque[object] = deque()
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def handshake(self) -> AsyncIterator[None]:
        """Wait until this handshake may begin; it lasts until the end of the ``async with`` block."""
        mine = object()
        async with self._in_line:
            if len(self._under_way) >= _MOST:
                await self._let_one_end()
            self._under_way.append(mine)
        try:
            yield
        finally:
            if mine in self._under_way:
                self._under_way.remove(mine)
            self._ended.set()

    async def _let_one_end(self) -> None:
        """Return once a handshake has ended, or the one that began first has had its share."""
        loop = asyncio.get_running_loop()
        for _ in range(_MOST_SHARES):
            self._ended.clear()
            due = loop.time() + _SHARE
            try:
                async with asyncio.timeout_at(due):
                    await self._ended.wait()
            except TimeoutError:
                if loop.time() - due < _LATE:
                    break
            if len(self._under_way) < _MOST:
                return
        # The share's timer cancels the wait. Handshakes that end between that and this task's next step have made room
        # already: then none of the others loses its share, and maybe there is none.
        if len(self._under_way) >= _MOST:
            self._under_way.popleft()


# A HandshakeOrder refers to its loop, as its lock and event do once a task has waited for them. If this dict held it,
# neither would ever be freed. So those who connect hold it, and the dict has weak references.
_orders: WeakKeyDictionary[asyncio.AbstractEventLoop, ReferenceType[HandshakeOrder]] = WeakKeyDictionary()


def handshake_order() -> HandshakeOrder:
    """Return the HandshakeOrder of the running loop: the same one while a handshake waits or is under way."""
    loop = asyncio.get_running_loop()
    kept = _orders.get(loop)
    order = kept() if kept is not None else None
    if order is None:
        order = HandshakeOrder()
        _orders[loop] = ref(order)
    return order


@asynccontextmanager
async def handshake_limit(seconds: float, step: Callable[[], object]) -> AsyncIterator[None]:
    """Raise TimeoutError where the block takes longer; ``step`` returns how far it has come.

    Where something has held the loop meanwhile, what has come is read first, as for a request: see LateAlarm.
    """
    loop, alarm = asyncio.get_running_loop(), LateAlarm()
    limit = asyncio.timeout(None)
    timers: list[asyncio.Handle] = []

    def ring_at(due: float) -> None:
        timers[:] = [loop.call_at(due, ring, due)]

    def ring(due: float) -> None:
        now = loop.time()
        if (more := alarm.extension(now - due, received=step())) > 0:
            ring_at(now + more)
        else:
            limit.reschedule(now)

    async with limit:
        ring_at(loop.time() + seconds)
        try:
            yield
        finally:
            timers[0].cancel()
