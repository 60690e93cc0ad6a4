"""From the loop's thread to a blocking iterator: a queue that is bounded in bytes."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Handoff(Generic[T]):
    """Items put by a coroutine, taken by a thread; ``put`` waits while more than ``max_bytes`` are not taken yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, max_bytes: int) -> None:
        self._loop, self._max_bytes = loop, max_bytes
        self._items: queue.SimpleQueue[tuple[T, int] | BaseException | None] = queue.SimpleQueue()
        self._held = 0  # only the loop's thread touches this, and the event
        self._room = asyncio.Event()

    async def put(self, item: T, size: int) -> None:
        """Hand over ``item`` of ``size`` bytes; one that is larger than the bound goes through alone."""
        while self._held and self._held + size > self._max_bytes:
            self._room.clear()
            await self._room.wait()
        self._held += size
        self._items.put((item, size))

    def finish(self, error: BaseException | None = None) -> None:
        """End the iteration, with ``error`` if there is one."""
        self._items.put(error)

    def __iter__(self) -> Iterator[T]:
        """Yield the items until finish(); raise its error. Waits without a deadline: the producer has one."""
        while True:
            got = self._items.get()
            if got is None:
                return
            if isinstance(got, BaseException):
                raise got
            item, size = got
            self._loop.call_soon_threadsafe(self._taken, size)
            yield item

    def _taken(self, size: int) -> None:
        self._held -= size
        self._room.set()
