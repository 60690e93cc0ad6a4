"""Starts the clients of one event loop one after the other, and gives the first member of a group a head start."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import ReferenceType, WeakKeyDictionary, ref

from ..aio.signal import Signal

# How much of the loop's own time a start takes, roughly, in seconds.
_HEAD_START: Final = 0.005
# A head start that ends so many seconds late tells of a loop that is busy, with the starts under way say: TLS and SASL
# take more of its time. The next client then waits for another head start, of which there are so many at most.
_LATE: Final = 0.002
_MOST_HEAD_STARTS: Final = 4
# How long a member needs at most until its JoinGroup is on its way, to a broker that is near, in seconds.
_FIRST_HEAD_START: Final = 0.05


class StartOrder:
    """Lets each client begin when the one before it has started, or has had a head start of 5 ms: 20 ms if the loop is
    busy, so that no iteration of the loop has the steps of many starts to run.

    A start takes several iterations of the loop. If fifty clients start side by side, the first is ready when the last
    one is; if they start one after the other, half of them are ready in half of the time. The last one is not later for
    that: they share the loop's time, and none waits longer than the head start for a broker that is far away or silent.

    A coordinator forms a new group group.initial.rebalance.delay.ms after the first JoinGroup, and waits for the other
    members anyway. So the first member has a head start until its JoinGroup is on its way, but of 50 ms at most. A
    member is the first one only if no other member has begun to start in the 50 ms before: where each is started when
    the one before has started, only the first of them is waited for.
    """

    def __init__(self) -> None:
        self._in_line = asyncio.Lock()
        self._under_way = 0
        self._ended = Signal()
        self._first: asyncio.Event | None = None
        self._first_until = 0.0
        self._member_came = -math.inf

    @asynccontextmanager
    async def starting(
        self, asked_to_join: asyncio.Event | None = None, *, patience: float | None = None
    ) -> AsyncIterator[None]:
        """Wait until this client may start; its start lasts until the end of the ``async with`` block.

        A member of a group sets ``asked_to_join`` when its JoinGroup is on its way, or when it will send none. A client
        that has waited for ``patience`` seconds (None: without an end) starts out of turn. Each turn takes several
        iterations of the loop: where those are slow, the last of many clients would have no time left to connect.
        """
        if asked_to_join is not None:
            self._note_member(asked_to_join, asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(patience):
                await self._turn(asked_to_join)
        except TimeoutError:
            pass  # out of turn
        self._under_way += 1
        try:
            yield
        except BaseException:
            if asked_to_join is not None:
                asked_to_join.set()  # the start has failed: no JoinGroup will follow
            raise
        finally:
            self._under_way -= 1
            self._ended.notify()

    async def _turn(self, asked_to_join: asyncio.Event | None) -> None:
        async with self._in_line:
            if self._first is not None and self._first is not asked_to_join:
                await self._let_join(self._first)
            if self._under_way:
                await self._let_start()

    async def _let_start(self) -> None:
        """Return once a start has ended, or has had its head start: a longer one while the loop is busy."""
        loop = asyncio.get_running_loop()
        for _ in range(_MOST_HEAD_STARTS):
            due = loop.time() + _HEAD_START
            if await self._ended.wait(_HEAD_START) or loop.time() - due < _LATE:
                return

    def _note_member(self, asked_to_join: asyncio.Event, now: float) -> None:
        if now - self._member_came > _FIRST_HEAD_START:
            self._first, self._first_until = asked_to_join, now + _FIRST_HEAD_START
        self._member_came = now

    async def _let_join(self, first: asyncio.Event) -> None:
        try:
            async with asyncio.timeout_at(self._first_until):
                await first.wait()
        except TimeoutError:
            pass  # the first member's broker is far away, or in trouble
        if self._first is first:
            self._first = None


# A StartOrder refers to its loop, as its lock and event do once a task has waited for them. If this dict held it,
# neither would ever be freed. So the clients hold it, and the dict has weak references.
_orders: WeakKeyDictionary[asyncio.AbstractEventLoop, ReferenceType[StartOrder]] = WeakKeyDictionary()


def start_order() -> StartOrder:
    """Return the StartOrder of the running loop: the same one for as long as a client holds it."""
    loop = asyncio.get_running_loop()
    kept = _orders.get(loop)
    order = kept() if kept is not None else None
    if order is None:
        order = StartOrder()
        _orders[loop] = ref(order)
    return order
