"""``VirtualLoop``: an asyncio event loop with virtual time. When no callback is ready it jumps to the next timer.

    loop = VirtualLoop(Random(seed))
    loop.run_until_complete(main())  # an hour of sleeps takes no time, and the same seed runs the same way

It has no sockets, threads or signals: connections go through `VirtualNetwork`, and run_in_executor calls at once.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from itertools import count
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from .hosts import context_on, current_host, host_of
from .network import VirtualNetwork, VirtualServer

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# What one iteration of the loop takes. If time stood still, a task that waits for the last 1e-13 seconds of a deadline
# would wait for ever.
_ROUND_SECONDS: Final = 1e-6
# So many iterations without one jump of the clock are a busy loop.
_BUSY_ROUNDS: Final = 100_000
# The most virtual time that a loop runs by default; it takes some seconds of real time.
_MOST_SECONDS: Final = 100_000.0
# How long cancelled tasks may take to end in ``end``.
_END_SECONDS: Final = 1_000.0

LOOPBACK: Final = "127.0.0.1"


class NothingLeft(RuntimeError):
    """A deadlock: all tasks wait, and there is no timer and no callback that could wake one of them."""


class BusyLoop(RuntimeError):
    """Tasks keep the loop busy, and never wait for time to pass."""


class TooLate(RuntimeError):
    """The loop's ``most_seconds`` are over, and tasks still run."""


class VirtualFuture(asyncio.Future[T]):
    """A future whose hash is a serial number, not its address, so that sets have the same order in every run."""

    def __init__(self, serial: int, loop: asyncio.AbstractEventLoop) -> None:
        self.serial = serial
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.serial


class VirtualTask(asyncio.Task[T]):
    """A task whose hash is a serial number, not its address, so that sets have the same order in every run."""

    def __init__(self, serial: int, host: str, coro: Any, **options: Any) -> None:
        self.serial = serial
        self.host = host
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.serial


class _Handle(asyncio.Handle):
    """A handle that keeps its context, which names the host on which the callback runs."""

    __slots__ = ("context",)
    context: Context


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ("context",)
    context: Context


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. All random choices come from ``random``; ``errors`` has what reached the exception handler.

    After ``most_seconds`` of virtual time it raises TooLate: a task that waits in vain beside one that repeats itself
    would wait for ever.
    """

    def __init__(
        self, random: Random | None = None, *, start: float = 1000.0, most_seconds: float = _MOST_SECONDS
    ) -> None:
        super().__init__()
        self.random = random or Random(0)
        self.network = VirtualNetwork(self, self.random)
        self.errors: list[dict[str, Any]] = []
        self.rounds = 0
        self._now = start
        self._latest = start + most_seconds
        self._last_jump = 0
        self._calls: deque[_Handle | _TimerHandle] = deque()
        self._timers: list[tuple[float, int, _TimerHandle]] = []
        self._order = count()
        self._serials = count()
        self._frozen: dict[str, list[_Handle | _TimerHandle]] = {}
        self._stopping = False
        self.set_exception_handler(lambda loop, context: self.errors.append(context))

    # Time

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()
        where = context if context is not None else copy_context()
        handle = _Handle(callback, args, self, where)
        handle.context = where
        self._calls.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        where = context if context is not None else copy_context()
        handle = _TimerHandle(when, callback, args, self, where)
        handle.context = where
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def _check_closed(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")

    def _run_once(self) -> None:
        """Run one iteration of the loop; BaseEventLoop.run_forever() calls this."""
        if not self._calls and not self._stopping:
            self._jump()
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            self._calls.append(heapq.heappop(timers)[2])
        self._now += _ROUND_SECONDS
        self.rounds += 1
        if self.rounds - self._last_jump > _BUSY_ROUNDS:
            raise BusyLoop(f"{_BUSY_ROUNDS} rounds of the loop, and nothing ever waits: {self._names()}")
        for _ in range(len(self._calls)):
            handle = self._calls.popleft()
            if handle.cancelled():
                continue
            if self._frozen and (parked := self._frozen.get(host_of(handle.context))) is not None:
                parked.append(handle)
            else:
                handle._run()

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise NothingLeft(f"nothing can happen any more, and these wait: {self._names()}")
        if timers[0][0] > self._now:
            self._now = timers[0][0]
            self._last_jump = self.rounds
        if self._now > self._latest:
            raise TooLate(f"the loop's time is over, and these go on: {self._names()}")

    def _names(self) -> str:
        return ", ".join(sorted(f"{task.get_name()} ({task.get_coro()!r})" for task in asyncio.all_tasks(self)))

    # Tasks and hosts

    def create_future(self) -> asyncio.Future[Any]:
        return VirtualFuture(next(self._serials), self)

    def create_task(self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
        self._check_closed()
        serial = next(self._serials)
        options["name"] = options.get("name") or f"task {serial}"
        context = options.get("context")
        host = current_host() if context is None else host_of(context)
        return VirtualTask(serial, host, coro, loop=self, **options)

    def spawn_on(self, host: str, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a task on ``host``. The tasks that it starts and its connections are on that host too."""
        return self.create_task(work, name=name, context=context_on(host))

    def tasks_on(self, host: str) -> list[VirtualTask[Any]]:
        """Return the tasks of a host that have not ended."""
        return [task for task in asyncio.all_tasks(self) if isinstance(task, VirtualTask) and task.host == host]

    def freeze(self, host: str) -> None:
        """Stop running callbacks of ``host``, as SIGSTOP does. Bytes sent to it wait; its connections stay open."""
        self._frozen.setdefault(host, [])

    def thaw(self, host: str) -> None:
        """Run all callbacks of ``host`` that had to wait, in their order, and go on."""
        self._calls.extend(self._frozen.pop(host, ()))

    def end(self) -> None:
        """Thaw all hosts, cancel all tasks, abort all connections, and close the loop. Errors meanwhile are ignored.

        Raises TooLate, BusyLoop or NothingLeft, which name the tasks, where tasks do not end.
        """
        self.set_exception_handler(lambda loop, context: None)
        for host in list(self._frozen):
            self.thaw(host)
        self._latest, self._last_jump = self._now + _END_SECONDS, self.rounds
        while tasks := asyncio.all_tasks(self):
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        for link in self.network.links:
            for transport in list(link.transports):
                transport.abort()
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Call ``func`` at once; the future gets its result in the next iteration of the loop."""
        outcome: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:
            self.call_soon(_fail, outcome, error)
        else:
            self.call_soon(_succeed, outcome, result)
        return outcome

    # The network

    async def getaddrinfo(self, host: Any, port: Any, **hints: Any) -> Any:
        return self.network.addresses(host, port)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        _refuse_unknown(options)
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> VirtualServer:
        _refuse_unknown(options)
        return self.network.listen(protocol_factory, host or LOOPBACK, port or 0)


def _refuse_unknown(options: dict[str, Any]) -> None:
    """Raise ValueError for TLS and for a given socket: a connection that should be TLS must not be plaintext.

    All other options are ignored: there are no sockets to which they could apply.
    """
    if options.get("ssl") or options.get("sock"):
        raise ValueError("the virtual network has no TLS, and no sockets to hand in")


def _succeed(outcome: asyncio.Future[T], result: T) -> None:
    if not outcome.done():
        outcome.set_result(result)


def _fail(outcome: asyncio.Future[Any], error: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(error)
