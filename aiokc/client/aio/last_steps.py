"""The last steps of a client, in stop(): what a cancellation of the caller shortens, and what it does not break off."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

_HURRIED: Final = 2.0  # seconds


async def in_time(steps: Callable[[float], Coroutine[Any, Any, None]], timeout: float) -> None:
    """Await ``steps(timeout)`` for that many seconds at most. If this call is cancelled meanwhile, begin them anew with
    2 s at most, and raise the cancellation when they are done.

    Whoever cancels a stop() that is under way (a second signal, ``asyncio.timeout``, a task group) wants it to end; but
    the listener must hear of the revocation, and the group that its member goes. A cancellation before stop() takes no
    time away: ``Task.cancel()`` cancels one await only, the one that has led here. A cancel scope that is cancelled
    already would end each await at once, so that is shielded off.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    is_cancelled = anyio.current_effective_deadline() == -math.inf
    try:
        with anyio.move_on_after(timeout, shield=is_cancelled):
            await steps(timeout)
    except asyncio.CancelledError:
        await to_its_end(_limited(steps, max(0.0, min(deadline - loop.time(), _HURRIED))))
        raise


async def _limited(steps: Callable[[float], Coroutine[Any, Any, None]], timeout: float) -> None:
    with anyio.move_on_after(timeout):
        await steps(timeout)


async def to_its_end(steps: Coroutine[Any, Any, None], hurry: Callable[[], None] = lambda: None) -> None:
    """Await ``steps``, which must end soon, also if this call is cancelled, once or often; raise that afterwards.

    They run in a task of their own: a cancel scope of anyio can be shielded off, but ``Task.cancel()`` can't. ``hurry``
    is called at each cancellation, and has them end sooner. A scope that was cancelled before takes no time away.
    """
    task = asyncio.get_running_loop().create_task(steps, name="aiokc last steps")
    cancelled: asyncio.CancelledError | None = None
    is_shielded = anyio.current_effective_deadline() == -math.inf
    while not task.done():
        try:
            with anyio.CancelScope(shield=is_shielded):
                await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled, is_shielded = error, True
            hurry()
    try:
        task.result()
    finally:
        if cancelled is not None:
            raise cancelled
