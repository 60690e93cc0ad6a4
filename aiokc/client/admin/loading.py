"""Imports what the administrative calls do when the first of them is made, in a thread: most clients never make one."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Final

#: The modules that the calls import, once they are loaded; each of them takes some milliseconds.
_DRIVERS: Final = tuple(f"{__package__}.{name}" for name in ("cluster", "groups", "lag", "resets"))


async def drivers_loaded() -> None:
    """Return once the modules of all drivers are there. The event loop goes on meanwhile."""
    if not all(name in sys.modules for name in _DRIVERS):
        await asyncio.to_thread(_load)


def _load() -> None:
    for name in _DRIVERS:
        import_module(name)
