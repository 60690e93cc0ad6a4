"""Runs what may never return in daemon threads: Ctrl-C, SIGTERM and --timeout end the command all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from aiokc.errors import ConnectionFailed
from aiokc.net.own_thread import ThreadForEach

from .problems import NoMoreThreads

T = TypeVar("T")


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Return what ``function`` returns, or raise what it raises. If the caller is cancelled, its result is dropped.

    asyncio.to_thread() takes a thread that the loop and the interpreter wait for at their end, for ever where it opens
    a FIFO that nobody writes to, or reads a terminal. The function must not read sys.stdin: its lock would be held when
    the interpreter closes it, which ends the process by a fatal error. Raises NoMoreThreads if no thread can be had.
    """
    try:
        running = asyncio.get_running_loop().run_in_executor(ThreadForEach("aiokc command"), function)
    except ConnectionFailed as error:
        raise NoMoreThreads(str(error)) from error
    return await running
