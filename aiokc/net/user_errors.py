"""What the application's callbacks raise: errors, and exceptions that would silently end a task or an iterator."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

import anyio

from ..errors import UsageError, shown

#: Everything that counts as an error when the application's code raises it. KeyboardInterrupt and SystemExit do not.
USER_ERRORS: Final = (Exception, asyncio.CancelledError, GeneratorExit)

#: What ends the event loop's run in asyncio, whatever callback or task raises it.
EXITS: Final = (SystemExit, KeyboardInterrupt)

_MISTAKEN: Final = (StopIteration, StopAsyncIteration, GeneratorExit)


def scope_is_cancelled() -> bool:
    """Whether a cancel scope of anyio around this code is cancelled: it cancels each await that is not shielded off."""
    return anyio.current_effective_deadline() == -math.inf


def cancellation_is_ours() -> bool:
    """Whether the current task is being cancelled, or a cancel scope around it.

    If not, a CancelledError comes from something that the application's code awaited: an error like any other. So is
    the one of an executor that was shut down with ``cancel_futures=True``.
    """
    task = asyncio.current_task()
    return scope_is_cancelled() or (task is not None and task.cancelling() > 0)


def ends_us(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether ``error``, raised while ``task`` awaited the application's code, ends our own code: then raise it again.

    A coroutine that is closed, or garbage-collected, gets its GeneratorExit while its task does not run.
    """
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is not task
        except RuntimeError:  # no loop is running
            return True
    return isinstance(error, asyncio.CancelledError) and cancellation_is_ours()


def leaves_the_loop(error: BaseException | None) -> bool:
    """Whether ``error`` is one of EXITS. Then the running loop raises it out of its run, in its next iteration.

    The application's code raises it in the middle of ours: while an answer is taken in, with others behind it in the
    same buffer, or others who wait for their records. That goes on. Raised from here, it would end that; and uvloop
    takes what a protocol raises for a broken connection, and keeps it.
    """
    if not isinstance(error, EXITS):
        return False
    asyncio.get_running_loop().call_soon(_leave, error)
    return True


def _leave(error: BaseException) -> None:
    raise error


def as_error(error: BaseException, code: str) -> Exception:
    """Return ``error``, or a UsageError in its place if raising it would silently end a task, coroutine or iterator.

    StopAsyncIteration, for instance, would end the application's ``async for``. ``code`` names what raised it.
    """
    if isinstance(error, asyncio.CancelledError):
        found = UsageError(f"{code} ended by a CancelledError that nobody had cancelled it with")
    elif isinstance(error, _MISTAKEN) or not isinstance(error, Exception):
        found = UsageError(f"{code} raised {shown(error)}")
    else:
        return error
    found.__cause__ = error
    return found
