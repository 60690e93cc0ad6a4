"""An event loop in a thread of its own: how Spark's blocking calls reach an asyncio client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from aiokc.errors import RequestTimedOut

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in a daemon thread: a process that ends, or is killed, never waits for it."""

    def __init__(self, name: str) -> None:
        self._closing = asyncio.Event()
        running = Future[asyncio.AbstractEventLoop]()
        self._thread = threading.Thread(target=self._run, args=(running,), name=name, daemon=True)
        self._thread.start()
        self._loop = running.result()  # or what kept it from running: a process without a free file descriptor, say

    def _run(self, running: Future[asyncio.AbstractEventLoop]) -> None:
        try:
            with asyncio.Runner() as runner:  # on the way out it cancels what still runs
                runner.run(self._until_closed(running))
        except BaseException as error:
            if running.done():
                raise
            running.set_exception(error)

    async def _until_closed(self, running: Future[asyncio.AbstractEventLoop]) -> None:
        running.set_result(asyncio.get_running_loop())
        await self._closing.wait()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs coroutines: if not, nothing that was submitted will ever be done."""
        return self._thread.is_alive()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, for what may be called from another thread."""
        return self._loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start ``work``; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T], *, what: str, timeout: float) -> T:
        """Return what ``work`` returns; cancel it and raise RequestTimedOut after ``timeout`` seconds."""
        future = self.submit(work)
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():  # its own error, which may be a TimeoutError too
                raise
            future.cancel()
            raise RequestTimedOut(f"{what} took longer than {timeout:.3g} s") from None

    def close(self, *, timeout: float) -> None:
        """Cancel what runs and end the thread; return after ``timeout`` seconds in any case."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(timeout)
