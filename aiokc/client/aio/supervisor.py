"""The one task that holds every background task, so that ``start``/``stop`` and ``async with`` mean the same."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from ...errors import ConsumerClosed, KafkaError, fresh
from ...net.users_code import cancellation_is_ours
from .signal import Signal

# anyio imports its half for asyncio when it is first needed, which would hold the user's loop for some 25 ms.
importlib.import_module("anyio._backends._asyncio")

Driver = Callable[[], Coroutine[Any, Any, None]]

_ENDED: Final = "the background task was cancelled, and not by stop()"


class Supervisor:
    """Runs drivers until stopped. A driver that ends before ends them all, and ``error`` says why.

    A driver goes on until it is cancelled. One that returns was ended by a CancelledError inside of it that nobody has
    asked for: a task group takes that for a wish to end, and says nothing.

    A task group may only be left by the task that entered it, and ``stop`` is often called by another task than
    ``start``: so the group lives in a task of its own.
    """

    def __init__(self, name: str) -> None:
        self.error: Exception | None = None
        self.ended = Signal()
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._scope: anyio.CancelScope | None = None

    def start(self, drivers: list[Driver]) -> None:
        """Let the drivers run, from the next tick of the loop on."""
        loop = asyncio.get_running_loop()
        self._scope = anyio.CancelScope()
        self._task = loop.create_task(self._run(drivers, self._scope), name=self._name)

    async def _run(self, drivers: list[Driver], scope: anyio.CancelScope) -> None:
        try:
            with scope:
                async with anyio.create_task_group() as tasks:
                    for driver in drivers:
                        tasks.start_soon(self._keep_running, driver, name=_name(driver))
        except BaseExceptionGroup as group:
            if group.subgroup((KeyboardInterrupt, SystemExit)) is not None:
                raise
            self.error = _told(unwrapped(group))
        finally:
            asyncio.get_running_loop().call_soon(self.ended.notify)  # soon: when the task is done

    @staticmethod
    async def _keep_running(driver: Driver) -> None:
        await driver()
        if not cancellation_is_ours():
            raise ConsumerClosed(f"{_ENDED} ({_name(driver)} has ended): make a new one")

    @property
    def alive(self) -> bool:
        """Whether the drivers run."""
        return self._task is not None and not self._task.done()

    @property
    def cancellation_is_ours(self) -> bool:
        """Whether somebody else than ``stop`` has cancelled it: asyncio.run() does so in the end with all tasks."""
        return self._task is not None and self._task.cancelling() > 0

    def check(self) -> None:
        """Raise what ended the background, each time a fresh one; ConsumerClosed where somebody has cancelled it."""
        if self.error is not None:
            raise fresh(self.error)
        stopped = self._scope is None or self._scope.cancel_called
        if self._task is not None and self._task.done() and not stopped:
            raise ConsumerClosed(f"{_ENDED}, with its event loop perhaps: make a new one")

    async def stop(self) -> None:
        """End all drivers and wait until the last one has ended."""
        if self._task is None or self._scope is None or self._task.done():
            return
        self._scope.cancel()
        await asyncio.wait([self._task])


def _name(driver: Driver) -> str:
    return getattr(driver, "__qualname__", repr(driver))


def _told(error: BaseException) -> Exception:
    """Return what the user is told: GeneratorExit, raised to him, would be no error."""
    if isinstance(error, Exception):
        return error
    told = ConsumerClosed(f"the background task has ended by {error!r}: make a new one")
    told.__cause__ = error
    return told


def unwrapped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the exception that matters: users never meet an ExceptionGroup."""
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += [unwrapped(error)] if isinstance(error, BaseExceptionGroup) else [error]
    return next((leaf for leaf in leaves if isinstance(leaf, KafkaError)), leaves[0])
