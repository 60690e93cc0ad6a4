"""UserCodeTimeout: bounds each wait for the application's code, with one scope and one timer for many short waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import TypeVar

import anyio

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
            return await result
        finally:
            self._since = None

    def _look(self) -> None:
        now = self._loop.time()
        due = (now if self._since is None else self._since) + self._seconds
        if due <= now:
            self._scope.cancel()
        else:
            self._timer = self._loop.call_at(due, self._look)
