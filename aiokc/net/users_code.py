"""What the user's code raises: errors, also by what ends tasks, coroutines and iterators without a word."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

import anyio

from ..errors import UsageError

#: All that the user's code may raise and that is an error of his. KeyboardInterrupt and SystemExit stay what they are.
USERS_ERRORS: Final = (Exception, asyncio.CancelledError, GeneratorExit)

_MISTAKEN: Final = (StopIteration, StopAsyncIteration, GeneratorExit)


def cancellation_is_ours() -> bool:
    """Whether this very task is being cancelled, or a cancel scope that it is in.

    Else a CancelledError that the user's code has raised is one that it has awaited: an error like any other. So is
    one of an executor that was shut down with ``cancel_futures=True``.
    """
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)


def ends_us(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether an ``error`` out of an await of the user's code is meant for who awaits it, in ``task``: to be raised on.

    A coroutine that is closed, or forgotten, gets its GeneratorExit while its task does not run.
    """
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is not task
        except RuntimeError:  # no loop is running
            return True
    return isinstance(error, asyncio.CancelledError) and cancellation_is_ours()


def as_error(error: BaseException, code: str) -> Exception:
    """Return ``error`` of the user's ``code``, or what to raise in its place where it would end something in silence.

    StopAsyncIteration, for one, ends the ``async for`` of whoever it is raised to.
    """
    if isinstance(error, asyncio.CancelledError):
        found = UsageError(f"{code} ended by a CancelledError that nobody had cancelled it with")
    elif isinstance(error, _MISTAKEN) or not isinstance(error, Exception):
        found = UsageError(f"{code} raised {error!r}")
    else:
        return error
    found.__cause__ = error
    return found
