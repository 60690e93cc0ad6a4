"""The last steps of a client, in stop(): what a cancellation of the caller shortens, and what it does not break off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from ...net.user_errors import scope_is_cancelled

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
    try:
        with anyio.move_on_after(timeout, shield=scope_is_cancelled()):
            await steps(timeout)
    except asyncio.CancelledError:
        await to_its_end(_limited(steps, max(0.0, min(deadline - loop.time(), _HURRIED))))
        raise


async def _limited(steps: Callable[[float], Coroutine[Any, Any, None]], timeout: float) -> None:
    with anyio.move_on_after(timeout):
        await steps(timeout)


async def to_its_end(
    steps: Coroutine[Any, Any, None], hurry: Callable[[], None] = lambda: None, *, was_cancelled: bool | None = None
) -> None:
    """Await ``steps``, which must end soon, also if this call is cancelled, once or often; raise that afterwards.

    They run in a task of their own: a cancel scope of anyio can be shielded off, but ``Task.cancel()`` can't. ``hurry``
    is called at each cancellation, and has them end sooner. A scope that was cancelled before takes no time away.

    ``was_cancelled``: what ``scope_is_cancelled()`` said when the caller began. False, and the scope is cancelled now:
    the cancellation came meanwhile, and counts (``hurry``), even if anyio could not raise it in the caller. None: a
    scope that is cancelled when this is called counts as cancelled before.
    """
    is_shielded = scope_is_cancelled()
    if is_shielded and was_cancelled is False:
        hurry()
    task = asyncio.get_running_loop().create_task(steps, name="aiokc last steps")
    cancelled: asyncio.CancelledError | None = None
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
