"""In which order clients start that share one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

from .signal import Signal

# What a start costs of the loop's own time, roughly.
_HEAD_START: Final = 0.005


class StartOrder:
    """Lets each client begin when the one before it has started, or has had a head start of 5 ms.

    A start takes several rounds of the loop. Where fifty take them side by side, the first is ready when the last one
    is; in turn, half of them are ready in half of the time, and a group whose coordinator waits for its first members
    (group.initial.rebalance.delay.ms) waits from the first one's JoinGroup on. Since it is the loop's time that they
    share, and nobody waits longer than the head start for a broker that is far away or silent, the last one is not
    later for that.
    """

    def __init__(self) -> None:
        self._in_line = asyncio.Lock()
        self._under_way = 0
        self._ended = Signal()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; the start lasts until the end of the ``async with``."""
        async with self._in_line:
            if self._under_way:
                await self._ended.wait(_HEAD_START)
            self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._ended.notify()


_orders: WeakKeyDictionary[asyncio.AbstractEventLoop, StartOrder] = WeakKeyDictionary()


def start_order() -> StartOrder:
    """Return the order of the running loop."""
    loop = asyncio.get_running_loop()
    order = _orders.get(loop)
    if order is None:
        order = _orders[loop] = StartOrder()
    return order
