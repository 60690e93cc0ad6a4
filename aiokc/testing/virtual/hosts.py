"""The hosts of a simulation: a context variable names the host on which a task, timer or connection runs."""

from __future__ import annotations

from contextvars import Context, ContextVar, copy_context
from typing import Final

#: The host of everything that runs in a context without a host.
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

    Tasks, timers and connections that are created in this context run on that host too.
    """
    context = copy_context()
    context.run(_host.set, host)
    return context
