"""Running a cluster's event loop in a thread of its own, so that synchronous tests can call the cluster's methods."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: A start, a stop or a call that takes longer than this is taken to hang.
_SECONDS: Final = 30.0


class Host:
    """The event loop of a cluster, and the thread in which it runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        self._loop = loop
        self._thread = thread

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in the loop's own thread."""
        return threading.get_ident() == self._thread

    def call(self, function: Callable[[], T]) -> T:
        """Call ``function`` in the loop's thread, and return its result or raise its error.

        Raises RuntimeError where the loop has not called it after 30 s.
        """
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return _result(outcome, self._thread, "called")


class Flag:
    """An event that one thread sets, and that tasks in the event loops of other threads wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def set(self) -> None:
        """Set the event: every ``wait``, under way or later, returns."""
        with self._lock:
            self._is_set = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    async def wait(self) -> None:
        """Return once the event is set."""
        event = asyncio.Event()
        waiter = (asyncio.get_running_loop(), event)
        with self._lock:
            if self._is_set:
                return
            self._waiting.append(waiter)
        try:
            await event.wait()
        finally:
            with self._lock:
                if waiter in self._waiting:  # the wait was cancelled: its loop may be closed when the flag is set
                    self._waiting.remove(waiter)


class Hosted(Protocol):
    """A service that may run in a thread of its own; ``host`` is None while it runs in its caller's loop."""

    host: Host | None

    async def start(self) -> None:
        """Start to serve."""

    async def stop(self) -> None:
        """Stop serving."""


H = TypeVar("H", bound=Hosted)


def on_loop(method: Callable[Concatenate[H, P], T]) -> Callable[Concatenate[H, P], T]:
    """Decorate a method to run in the thread of its object's loop, whichever thread calls it."""

    @wraps(method)
    def call(hosted: H, /, *args: P.args, **kwargs: P.kwargs) -> T:
        host = hosted.host
        if host is None or host.is_here:
            return method(hosted, *args, **kwargs)
        return host.call(lambda: method(hosted, *args, **kwargs))

    return call


@contextmanager
def in_thread(hosted: H) -> Iterator[H]:
    """Start ``hosted`` in a new thread, and stop it when the block ends. Errors in that thread are raised here.

    Raises RuntimeError with the thread's stack where starting or stopping takes longer than 30 s.
    """
    started: Future[Callable[[], object]] = Future()

    async def live() -> None:
        loop = asyncio.get_running_loop()
        leave = asyncio.Event()
        hosted.host = Host(loop, threading.get_ident())
        await hosted.start()
        started.set_result(lambda: loop.call_soon_threadsafe(leave.set))
        await leave.wait()
        await hosted.stop()

    ended: Future[None] = Future()

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            hosted.host = None
            if not started.done():
                started.set_exception(error)
            ended.set_exception(error)
        else:
            hosted.host = None
            ended.set_result(None)

    thread = threading.Thread(target=run, name="aiokc.testing cluster", daemon=True)
    thread.start()
    try:
        leave = _result(started, thread.ident, "started")
    except BaseException:  # KeyboardInterrupt, too, does not wait here: a cluster still starting stops once it has
        started.add_done_callback(lambda it: None if it.exception() else it.result()())
        raise
    try:
        yield hosted
    finally:
        leave()
        _wait_for(ended, thread.ident, "stopped")
    ended.result()


def _result(outcome: Future[T], thread: int | None, what: str) -> T:
    _wait_for(outcome, thread, what)
    return outcome.result()


def _wait_for(outcome: Future[T], thread: int | None, what: str) -> None:
    """Return when ``outcome`` has a result or an error."""
    if wait([outcome], _SECONDS).done:
        return
    frame = sys._current_frames().get(thread or 0)
    stack = "".join(traceback.format_stack(frame)) if frame else ""
    silence = f"has not answered for {_SECONDS:g} s"
    raise RuntimeError(f"a test cluster was {what}, and {silence}; its thread is here:\n{stack}")
