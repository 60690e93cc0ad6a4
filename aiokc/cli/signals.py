"""Ends a command at SIGTERM and SIGHUP as Ctrl-C does: it tells what is done, and leaves nothing open."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

#: What service managers, containers and ``timeout`` send, and a terminal that is closed.
_ENDING: Final = ("SIGTERM", "SIGHUP")


async def ended_by_signals(command: Coroutine[Any, Any, int]) -> int:
    """Return the exit code of ``command``; 128 and the number of the signal that has ended it.

    Without this, Python is gone at once: records that ``produce`` has read are lost, and its transaction stays open at
    the broker. Only the first signal counts: ``timeout`` sends SIGTERM to its child, and once more to the whole group,
    and the second one would end what the command still has to do.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    ended_by: list[int] = []

    def end(number: int) -> None:
        if not ended_by:
            task.cancel()
        ended_by.append(number)

    held = [number for name in _ENDING if (number := getattr(signal, name, None)) is not None and _hold(number, end)]
    try:
        return await command
    except asyncio.CancelledError:
        if not ended_by:
            raise
        return 128 + ended_by[0]
    finally:
        for number in held:
            loop.remove_signal_handler(number)


def _hold(number: int, end: Callable[[int], None]) -> bool:
    """Let a signal call ``end``; return whether that is so. Whoever handles or ignores it already (nohup) goes on."""
    if signal.getsignal(number) is not signal.SIG_DFL:
        return False
    try:
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    except (NotImplementedError, ValueError, RuntimeError):
        return False  # on Windows, and outside of the main thread
    return True
