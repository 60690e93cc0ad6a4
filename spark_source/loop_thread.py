"""An event loop in a thread of its own: through it, Spark's blocking calls use an asyncio client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from aiokc.errors import RequestTimedOut

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in a daemon thread: the process never waits for it to end."""

    def __init__(self, name: str) -> None:
        self._closing = asyncio.Event()
        running = Future[asyncio.AbstractEventLoop]()
        self._thread = threading.Thread(target=self._run, args=(running,), name=name, daemon=True)
        self._thread.start()
        self._loop = running.result()  # raises what kept the loop from starting, e.g. no free file descriptor

    def _run(self, running: Future[asyncio.AbstractEventLoop]) -> None:
        try:
            with asyncio.Runner() as runner:  # its exit cancels the tasks that still run
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
        """Whether the thread still runs coroutines; if not, no submitted coroutine will ever end."""
        return self._thread.is_alive()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, for its thread-safe methods."""
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
            if future.done():  # the error of the coroutine, which may be a TimeoutError too
                raise
            future.cancel()
            raise RequestTimedOut(f"{what} took longer than {timeout:.3g} s") from None

    def close(self, *, timeout: float) -> None:
        """Cancel the tasks that run and end the thread; return after ``timeout`` seconds in any case."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(timeout)
