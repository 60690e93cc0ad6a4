"""Hosts of a simulation: what runs in a context that names one belongs to it, and stops with it."""

from __future__ import annotations

from contextvars import Context, ContextVar, copy_context
from typing import Final

#: Where everything runs that names no other host.
LOCALHOST: Final = "localhost"

_host: Final[ContextVar[str]] = ContextVar("host", default=LOCALHOST)


def current_host() -> str:
    """Return the host on which the caller runs."""
    return _host.get()


def host_of(context: Context) -> str:
    """Return the host on which a context runs."""
    return context.get(_host, LOCALHOST)


def context_on(host: str) -> Context:
    """Return a copy of the caller's context that runs on ``host``, for ``loop.create_task(..., context=...)``.

    Tasks, timers and connections that are made in there are on that host too.
    """
    context = copy_context()
    context.run(_host.set, host)
    return context
