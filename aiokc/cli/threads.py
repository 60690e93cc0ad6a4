"""Runs what may never return in daemon threads: Ctrl-C, SIGTERM and --timeout end the command all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def run_to_end(command: Coroutine[Any, Any, T]) -> T:
    """Do as asyncio.run(), and wait at the end for none of the loop's threads.

    A resolver without an answer keeps getaddrinfo() for half a minute and more, in a thread of the loop's default
    executor. asyncio.run() would wait for it there, and the interpreter once more.
    """
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(_DaemonThreads())
        return runner.run(command)


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Return what ``function`` returns, or raise what it raises. If the caller is cancelled, its result is dropped.

    asyncio.to_thread() takes a thread that the loop and the interpreter wait for at their end, for ever where it opens
    a FIFO that nobody writes to, or reads a terminal. The function must not read sys.stdin: its lock would be held when
    the interpreter closes it, which ends the process by a fatal error.
    """
    return await asyncio.get_running_loop().run_in_executor(_DaemonThreads(), function)


class _DaemonThreads(ThreadPoolExecutor):
    """Starts a thread for each call. As an Executor it also works in virtual time, where functions run at once.

    It is a ThreadPoolExecutor only because loop.set_default_executor() takes no other. Its pool stays empty: nobody
    joins the threads of submit().
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in a thread of its own: what run_in_executor() calls."""
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()  # a caller that is cancelled must not end it before run() does

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        threading.Thread(target=run, name="aiokc command", daemon=True).start()
        return outcome
