"""UserCodeTimeout: bounds each wait for the application's code, with one scope and one timer for many short waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import TypeVar

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

T = TypeVar("T")


class UserCodeTimeout:
    """A cancel scope that ends when one wait in it has lasted for ``seconds``, or by ``end``.

    A scope for each wait would cost more than most of the waits take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._scope = anyio.CancelScope()
        self._since: float | None = None
        self._timer = self._loop.call_later(seconds, self._look)

    def __enter__(self) -> UserCodeTimeout:
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._timer.cancel()
        return bool(self._scope.__exit__(kind, error, trace))

    def end(self) -> None:
        """Cancel the scope: end the wait in it."""
        self._scope.cancel()

    async def wait(self, result: Awaitable[T]) -> T:
        self._since = self._loop.time()
        try:
            value = await result
        except Exception:
            await self._end_here_if_over()
            raise
        finally:
            self._since = None
        await self._end_here_if_over()
        return value

    async def _end_here_if_over(self) -> None:
        """End the scope at the wait that was too long, not at the next one, which would get the blame:

        1. The result comes. The task is to run in the next round of the loop.
        2. In the same round the timer cancels the scope. anyio cancels no task that has its result: it tries again
           later, and by then the task waits for the next value.
        """
        if self._scope.cancel_called:
            await checkpoint_if_cancelled()

    def _look(self) -> None:
        now = self._loop.time()
        due = (now if self._since is None else self._since) + self._seconds
        if due <= now:
            self._scope.cancel()
        else:
            self._timer = self._loop.call_at(due, self._look)
