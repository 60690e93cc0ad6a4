"""In which order clients start that share one event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import ReferenceType, WeakKeyDictionary, ref

from ..aio.signal import Signal

# What a start costs of the loop's own time, roughly.
_HEAD_START: Final = 0.005
# What a member of a group needs at most until its JoinGroup is on its way, to a broker that is near.
_FIRST_HEAD_START: Final = 0.05


class StartOrder:
    """Lets each client begin when the one before it has started, or has had a head start of 5 ms.

    A start takes several rounds of the loop. Where fifty take them side by side, the first is ready when the last one
    is; in turn, half of them are ready in half of the time. Since it is the loop's time that they share, and nobody
    waits longer than the head start for a broker that is far away or silent, the last one is not later for that.

    A coordinator forms a group so long after the first JoinGroup (group.initial.rebalance.delay.ms), and waits for the
    others anyway. So the first member has a head start until its JoinGroup is on its way, or of 50 ms. First is only
    who comes 50 ms after all other members: where each is started when the one before has started, one is waited for.
    """

    def __init__(self) -> None:
        self._in_line = asyncio.Lock()
        self._under_way = 0
        self._ended = Signal()
        self._first: asyncio.Event | None = None
        self._first_until = 0.0
        self._member_came = -math.inf

    @asynccontextmanager
    async def starting(self, asked_to_join: asyncio.Event | None = None) -> AsyncIterator[None]:
        """Wait for a turn; the start lasts until the end of the ``async with``.

        A member of a group sets ``asked_to_join`` when its JoinGroup is on its way, or none is going to be.
        """
        if asked_to_join is not None:
            self._note_member(asked_to_join, asyncio.get_running_loop().time())
        async with self._in_line:
            if self._first is not None and self._first is not asked_to_join:
                await self._let_join(self._first)
            if self._under_way:
                await self._ended.wait(_HEAD_START)
            self._under_way += 1
        try:
            yield
        except BaseException:
            if asked_to_join is not None:
                asked_to_join.set()  # it has failed to start
            raise
        finally:
            self._under_way -= 1
            self._ended.notify()

    def _note_member(self, asked_to_join: asyncio.Event, now: float) -> None:
        if now - self._member_came > _FIRST_HEAD_START:
            self._first, self._first_until = asked_to_join, now + _FIRST_HEAD_START
        self._member_came = now

    async def _let_join(self, first: asyncio.Event) -> None:
        try:
            async with asyncio.timeout_at(self._first_until):
                await first.wait()
        except TimeoutError:
            pass  # its broker is far away, or in trouble
        if self._first is first:
            self._first = None


# An order refers to its loop, as locks and events do once they were waited for. Were it held from here, neither would
# ever be freed: so it is the clients that hold it.
_orders: WeakKeyDictionary[asyncio.AbstractEventLoop, ReferenceType[StartOrder]] = WeakKeyDictionary()


def start_order() -> StartOrder:
    """Return the order of the running loop: one and the same for as long as some client holds it."""
    loop = asyncio.get_running_loop()
    kept = _orders.get(loop)
    order = kept() if kept is not None else None
    if order is None:
        order = StartOrder()
        _orders[loop] = ref(order)
    return order
