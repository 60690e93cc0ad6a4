"""OwnThread and its kin: run plain functions for the event loop in daemon threads that belong to aiokc alone."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from ..errors import ConnectionFailed
from .user_errors import as_error

P = ParamSpec("P")
T = TypeVar("T")


class OwnThreads(Executor):
    """Runs functions in up to ``most`` threads. Each starts with the first function that finds no other one at rest.

    The loop's default executor belongs to the application, which may fill it or shut it down: with jobs, perhaps, that
    wait for the very call that would wait for a thread. The threads of a ThreadPoolExecutor are joined when the
    interpreter exits, so a function that hangs would keep the process alive; these are daemons. As an Executor it also
    works with aiokc.testing's virtual time, where functions run at once, in the loop.
    """

    def __init__(self, name: str, most: int) -> None:
        """``name`` is the name of each thread."""
        self._name, self._most = name, most
        self._work = _Work()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], T]) -> T:
        """Return what ``function`` returns, or raise what it raises; UsageError in place of a StopIteration and such.

        Raises ConnectionFailed if the system has no thread to spare just now, and there is none yet.

        If the caller is cancelled, the function does not start any more; one that runs already runs to its end, and its
        result is dropped.
        """
        return await asyncio.get_running_loop().run_in_executor(self, _with_plain_errors(function))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in a thread: what run_in_executor() calls. From any thread."""
        outcome: Future[T] = Future()
        with self._lock:
            # A process that was forked has no thread any more, and none of the calls is its own.
            if not self._threads or not self._threads[0].is_alive():
                self._work, self._threads = _Work(), []
                self._start()
            elif len(self._threads) < min(self._most, self._work.left + 1):
                with suppress(ConnectionFailed):  # one of those that there are will come to it
                    self._start()
            self._work.add(_Call(outcome, lambda: fn(*args, **kwargs)))
        return outcome

    def close(self) -> None:
        """End the threads once they have run what they were given. A later ``run`` would start another one."""
        with self._lock:
            for _ in self._threads:
                self._work.calls.put(None)
            self._threads = []

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do as ``close``, whatever the arguments say."""
        self.close()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work.run, name=self._name, daemon=True)
        _start(thread)
        self._threads.append(thread)
        # The thread refers to the work alone: it ends when its owner is forgotten without a close().
        weakref.finalize(self, self._work.calls.put, None).atexit = False


class OwnThread(OwnThreads):
    """Runs one function after the other in one thread. The thread starts with the first function.

    A function that hangs holds up those behind it: code that may hang needs a thread of its own.
    """

    def __init__(self, name: str) -> None:
        """``name`` is the thread's name."""
        super().__init__(name, 1)


class ThreadForEach(Executor):
    """Runs each function in a daemon thread of its own: one that hangs holds up no other one, nor the exit.

    The caller bounds how many there are. It has no threads at rest, and nothing that a fork could break.
    """

    def __init__(self, name: str) -> None:
        """``name`` is the name of each thread."""
        self._name = name

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function: what run_in_executor() calls. Raises ConnectionFailed if the system has no thread to spare.

        If the caller is cancelled, the function runs to its end, and its result is dropped.
        """
        outcome: Future[T] = Future()
        call = _Call(outcome, lambda: fn(*args, **kwargs))
        outcome.set_running_or_notify_cancel()
        _start(threading.Thread(target=call.run, name=self._name, daemon=True))
        return outcome


def _start(thread: threading.Thread) -> None:
    try:
        thread.start()
    except RuntimeError as error:  # a limit of the process, its container or its user; or the interpreter ends
        raise ConnectionFailed(f"the thread {thread.name!r} can't be started ({error})") from error


class _Work:
    """The calls for some threads. ``left``: how many of them have not ended."""

    __slots__ = ("_lock", "calls", "left")

    def __init__(self) -> None:
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()
        self.left = 0
        self._lock = threading.Lock()

    def add(self, call: _Call) -> None:
        with self._lock:
            self.left += 1
        self.calls.put(call)

    def run(self) -> None:
        """Run the calls until there is a None: what each thread does."""
        while (call := self.calls.get()) is not None:
            call()
            del call  # a thread at rest keeps no argument and no result alive
            with self._lock:
                self.left -= 1


class _Call:
    """A function to run, and the future that waits for its outcome."""

    __slots__ = ("function", "outcome")

    def __init__(self, outcome: Future[Any], function: Callable[[], Any]) -> None:
        self.outcome, self.function = outcome, function

    def __call__(self) -> None:
        if self.outcome.set_running_or_notify_cancel():
            self.run()

    def run(self) -> None:
        try:
            result = self.function()
        except BaseException as error:  # also a SystemExit, which would end the thread, and leave the caller waiting
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(result)


def _with_plain_errors(function: Callable[[], T]) -> Callable[[], T]:
    """Return ``function`` with a UsageError in place of what can't be raised through a future."""

    def call() -> T:
        try:
            return function()
        except BaseException as error:
            plain = as_error(error, getattr(function, "__qualname__", "a function"))
            if plain is error:
                raise
            raise plain from error

    return call
