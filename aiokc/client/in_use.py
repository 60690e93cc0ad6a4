"""Warns when a Consumer or Client is garbage-collected while it runs, as asyncio's transports do, and stops it."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Coroutine
from functools import partial
from types import FrameType
from typing import Any, Final

from ..config import ClusterConfig
from .cluster.cluster_client import ClusterClient
from .group.rebalance_listener import RebalanceListener

_MOST_FRAMES: Final = 10  # asyncio's own limit in debug mode


class InUse:
    """Every object of a client that the application holds refers to this: the client, an iterator, a read in progress.

    The background does not refer to it, nor to any object that does. So it is freed when the application has dropped
    all of these. If the client still runs then, no code can stop it any more: ``__del__`` gives a ResourceWarning, and
    stops the client in its loop, as stop() does.

    ``listener`` is held here, on the application's side: a listener that refers to its consumer does not keep it alive.
    """

    def __init__(
        self,
        cluster_client: ClusterClient[ClusterConfig],
        name: str,
        end: Callable[[RebalanceListener | None], Coroutine[Any, Any, None]],
        loop_is_closed: Callable[[], None],
    ) -> None:
        """Must be called in the client's ``__init__``: in debug mode the warning shows the code that called that.

        ``name`` names the client in the warning. ``end`` stops the client, and ``loop_is_closed`` is called instead
        where its loop is closed, so that no task can stop it.
        """
        self.listener: RebalanceListener | None = None
        self._link = cluster_client
        self._name = name
        self._end = end
        self._loop_is_closed = loop_is_closed
        self._made_at = _callers(sys._getframe(2)) if _is_debugging() else None

    def __del__(self) -> None:
        # The garbage collector may run this in any thread, at any moment.
        loop = self._link.loop
        if loop is None or self._link.stopped or not self._link.background.alive:
            return
        if sys.is_finalizing() or self._link.is_forked:
            return
        try:
            warnings.warn(self._complaint(), ResourceWarning, source=self, stacklevel=2)
        finally:
            try:
                loop.call_soon_threadsafe(self._link.forgotten, partial(self._end, self.listener))
            except RuntimeError:  # the loop is closed
                self._loop_is_closed()

    def _complaint(self) -> str:
        text = f"{self._name} was forgotten and is still running: use 'async with', or await its stop()"
        if self._made_at is None:
            return text
        return f"{text}; it was made at (most recent call last):\n{''.join(self._made_at.format()).rstrip()}"


def _is_debugging() -> bool:
    """Whether the running loop is in debug mode; without a running loop, whether a new one would be."""
    try:
        return asyncio.get_running_loop().get_debug()
    except RuntimeError:
        by_name = not sys.flags.ignore_environment and bool(os.environ.get("PYTHONASYNCIODEBUG"))
        return sys.flags.dev_mode or by_name


def _callers(frame: FrameType) -> traceback.StackSummary:
    stack = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_MOST_FRAMES, lookup_lines=False)
    stack.reverse()
    return stack
