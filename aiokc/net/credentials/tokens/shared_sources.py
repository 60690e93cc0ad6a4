"""One TokenSource for all clients of an event loop that have the same provider, or the same options for one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Hashable
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from .token_source import TokenSource

# Weak on both sides: a source lives as long as a client has it, and nothing here keeps a closed loop alive.
_SOURCES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[Hashable, TokenSource]]] = (
    WeakKeyDictionary()
)
_lock = threading.Lock()  # several threads may have a loop each


def shared_source(key: Hashable, make: Callable[[], TokenSource]) -> TokenSource:
    """Return the running loop's source for ``key``, made by ``make`` if no client has one.

    A hundred consumers that start together so ask for one token. Loops share nothing: the tasks of one can't wait for
    those of another.
    """
    with _lock:
        sources = _SOURCES.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
        source = sources.get(key)
        if source is None:
            source = sources[key] = make()
        return source


def _in_child() -> None:
    """Another thread may have held the lock when this process was forked: here nobody would release it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_in_child)
