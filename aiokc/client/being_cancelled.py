"""Whose CancelledError is it? The user's code may raise one that nobody has cancelled it with."""

from __future__ import annotations

import asyncio
import math

import anyio


def is_being_cancelled() -> bool:
    """Whether this very task is being cancelled, or a cancel scope that it is in.

    Else a CancelledError that the user's code has raised is one that it has awaited: an error like any other.
    """
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)
