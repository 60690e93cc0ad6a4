"""Supervisor: one task that holds all background tasks of a client, ends them together and keeps their error."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from ...errors import ClientClosed, KafkaError, fresh, shown
from ...net.user_errors import cancellation_is_ours
from .signal import Signal

# anyio imports its asyncio backend when it is first needed; then, that would hold the event loop for some 25 ms.
importlib.import_module("anyio._backends._asyncio")

#: A coroutine function that runs in the background until it is cancelled. (A MembershipDriver, a TransactionDriver and
#: the like drive a machine; their ``run`` is such a Driver.)
Driver = Callable[[], Coroutine[Any, Any, None]]

_ENDED: Final = "the background task was cancelled, and not by stop()"


class Supervisor:
    """Runs drivers until ``stop``. If a driver ends before, all are ended, and ``error`` says why.

    A driver runs until it is cancelled. If one returns, a CancelledError inside of it has ended it, and no code of ours
    cancelled it: a task group takes that for a normal end, and raises nothing. So the supervisor raises.

    A task group may only be left by the task that entered it, and ``stop`` is often called by another task than
    ``start``: so the group lives in a task of its own.
    """

    def __init__(self, name: str, closed: type[ClientClosed] = ClientClosed) -> None:
        """``closed`` is the error for an end that has no other cause."""
        self.error: Exception | None = None
        self.ended = Signal()
        self._name = name
        self._closed = closed
        self._task: asyncio.Task[None] | None = None
        self._scope: anyio.CancelScope | None = None

    def start(self, drivers: list[Driver]) -> None:
        """Start the drivers: they run from the next iteration of the loop on."""
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
            self.error = _told(unwrapped(group), self._closed)
        finally:
            asyncio.get_running_loop().call_soon(self.ended.notify)  # call_soon: `alive` is False by then

    async def _keep_running(self, driver: Driver) -> None:
        await driver()
        if not cancellation_is_ours():
            raise self._closed(f"{_ENDED} ({_name(driver)} has ended): make a new one")

    @property
    def alive(self) -> bool:
        """Whether the drivers run."""
        return self._task is not None and not self._task.done()

    @property
    def cancellation_is_ours(self) -> bool:
        """Whether the supervisor's task was cancelled from outside: asyncio.run() does that at its end to all tasks."""
        task = self._task
        return task is not None and (task.cancelled() or task.cancelling() > 0)  # anyio sets the number back to 0

    def check(self) -> None:
        """Raise a copy of the error that ended the background; ``closed`` where others have cancelled its task."""
        if self.error is not None:
            raise fresh(self.error)
        if self._task is None or not self._task.done():
            return
        stopped = self._scope is None or self._scope.cancel_called
        if not stopped:
            raise self._closed(f"{_ENDED}, with its event loop perhaps: make a new one")

    async def stop(self) -> None:
        """End all drivers and wait until the last one has ended."""
        if self._task is None or self._scope is None or self._task.done():
            return
        self._scope.cancel()
        await asyncio.wait([self._task])


def _name(driver: Driver) -> str:
    return getattr(driver, "__qualname__", repr(driver))


def _told(error: BaseException, closed: type[ClientClosed]) -> Exception:
    """Return the error to raise to the application: not GeneratorExit, for instance, which would end code silently."""
    if isinstance(error, Exception):
        return error
    told = closed(f"the background task has ended by {shown(error)}: make a new one")
    told.__cause__ = error
    return told


def unwrapped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the exception to raise in the place of a group, a KafkaError first: no caller gets an ExceptionGroup."""
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += [unwrapped(error)] if isinstance(error, BaseExceptionGroup) else [error]
    return next((leaf for leaf in leaves if isinstance(leaf, KafkaError)), leaves[0])
