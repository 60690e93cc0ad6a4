"""OwnThread: runs plain functions for the event loop in a daemon thread that belongs to aiokc alone."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from ..errors import ConnectionFailed
from .user_errors import as_error

P = ParamSpec("P")
T = TypeVar("T")


class OwnThread(Executor):
    """Runs one function after the other in one thread. The thread starts with the first function.

    The loop's default executor belongs to the application, which may fill it or shut it down. The threads of a
    ThreadPoolExecutor are joined when the interpreter exits, so a function that hangs would keep the process alive;
    this thread is a daemon. A function that hangs holds up those behind it: code that may hang needs a thread of its
    own. As an Executor it also works with aiokc.testing's virtual time, where functions run at once, in the loop.
    """

    def __init__(self, name: str) -> None:
        """``name`` is the thread's name."""
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], T]) -> T:
        """Return what ``function`` returns, or raise what it raises; UsageError in place of a StopIteration and such.

        Raises ConnectionFailed if the system has no thread to spare just now.

        If the caller is cancelled, the function does not start any more; one that runs already runs to its end, and its
        result is dropped.
        """
        return await asyncio.get_running_loop().run_in_executor(self, _with_plain_errors(function))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in the thread: what run_in_executor() calls. From any thread."""
        outcome: Future[T] = Future()
        with self._lock:
            # A process that was forked has no thread any more, and none of the calls is its own.
            if self._thread is None or not self._thread.is_alive():
                self._start()
            self._calls.put(_Call(outcome, lambda: fn(*args, **kwargs)))
        return outcome

    def close(self) -> None:
        """End the thread once it has run what it was given. A later ``run`` would start another one."""
        with self._lock:
            if self._thread is not None:
                self._calls.put(None)
                self._thread = None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do as ``close``, whatever the arguments say."""
        self.close()

    def _start(self) -> None:
        calls = SimpleQueue[_Call | None]()
        thread = threading.Thread(target=_run, args=(calls,), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # a limit of the process, its container or its user; or the interpreter ends
            raise ConnectionFailed(f"the thread {self._name!r} can't be started ({error})") from error
        self._calls, self._thread = calls, thread
        # The thread refers to the queue alone: it ends when its owner is forgotten without a close().
        weakref.finalize(self, calls.put, None).atexit = False


class _Call:
    """A function to run, and the future that waits for its outcome."""

    __slots__ = ("function", "outcome")

    def __init__(self, outcome: Future[Any], function: Callable[[], Any]) -> None:
        self.outcome, self.function = outcome, function

    def __call__(self) -> None:
        if not self.outcome.set_running_or_notify_cancel():
            return
        try:
            result = self.function()
        except BaseException as error:  # also a SystemExit, which would end the thread, and leave the caller waiting
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(result)


def _run(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        del call  # a thread at rest keeps no argument and no result alive


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
