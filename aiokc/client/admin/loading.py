"""Imports what the administrative calls do when the first of them is made, in a thread: most clients never make one."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import anyio

from .asking import Asking

#: The modules that the calls import, once they are loaded; each of them takes some milliseconds.
_DRIVERS: Final = tuple(f"{__package__}.{name}" for name in ("cluster", "groups", "lag", "resets"))


async def drivers_loaded(asking: Asking) -> None:
    """Return once the modules of all drivers are there. The event loop goes on meanwhile.

    Raises RequestTimedOut at the deadline. An import that has begun goes on, for the calls to come.
    """
    if all(name in sys.modules for name in _DRIVERS):
        return
    with anyio.move_on_after(asking.left):
        return await asking.in_thread(_load)
    raise asking.too_late("importing the code of the administrative calls", None)


def _load() -> None:
    for name in _DRIVERS:
        import_module(name)
