"""A queue bounded in bytes, from a coroutine in the loop's thread to a blocking iterator in Spark's thread."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from .loop_thread import LoopThread

T = TypeVar("T")

# How often the waiting iterator checks that the producer's thread still runs.
_LOOK_SECONDS: Final = 5.0


class Handoff(Generic[T]):
    """Items put by a coroutine and taken by a thread; ``put`` waits while ``max_bytes`` would be exceeded."""

    def __init__(self, thread: LoopThread, *, max_bytes: int) -> None:
        self._thread, self._max_bytes = thread, max_bytes
        self._items: queue.SimpleQueue[tuple[T, int] | BaseException | None] = queue.SimpleQueue()
        self._held = 0  # only the loop's thread touches this, and the event
        self._room = asyncio.Event()

    async def put(self, item: T, size: int) -> None:
        """Hand over ``item`` of ``size`` bytes; an item larger than ``max_bytes`` waits until the queue is empty."""
        while self._held and self._held + size > self._max_bytes:
            self._room.clear()
            await self._room.wait()
        self._held += size
        self._items.put((item, size))

    def finish(self, error: BaseException | None = None) -> None:
        """End the iteration, with ``error`` if there is one."""
        self._items.put(error)

    def __iter__(self) -> Iterator[T]:
        """Yield the items until finish(); raise its error. Deadlines are the producer's task.

        Raises RuntimeError if the producer's loop has ended without finish().
        """
        while True:
            got = self._next()
            if got is None:
                return
            if isinstance(got, BaseException):
                raise got
            item, size = got
            self._thread.loop.call_soon_threadsafe(self._taken, size)
            yield item

    def _next(self) -> tuple[T, int] | BaseException | None:
        while True:
            was_alive = self._thread.is_alive
            try:
                return self._items.get(timeout=_LOOK_SECONDS if was_alive else 0)
            except queue.Empty:
                if not was_alive:
                    raise RuntimeError("the event loop that was to read has ended before it was done") from None

    def _taken(self, size: int) -> None:
        self._held -= size
        self._room.set()
