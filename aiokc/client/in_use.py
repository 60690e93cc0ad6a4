"""A client that is forgotten without stop(): it warns, as asyncio's own transports do, and its background ends."""

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

from .cluster.cluster_client import ClusterClient
from .group.rebalance_listener import RebalanceListener

_MOST_FRAMES: Final = 10  # as many as asyncio shows of where something was made


class InUse:
    """What the user has of a client refers to this: the client itself, an iterator, a read that is going on.

    The background never does, nor to anything that does: so this is freed when the user has let go of all of it. Where
    the client runs then, nothing can stop it any more. It warns (ResourceWarning), and ends as by stop(), in its loop.

    ``listener`` belongs to the user's side, too: one that refers to its consumer does not keep it from being freed.
    """

    def __init__(
        self,
        cluster_client: ClusterClient,
        name: str,
        end: Callable[[RebalanceListener | None], Coroutine[Any, Any, None]],
        loop_is_closed: Callable[[], None],
    ) -> None:
        """To be made in the client's ``__init__``: in debug mode the warning, about ``name``, says who called that.

        ``end`` stops the client. ``loop_is_closed`` is called where no task can do that any more.
        """
        self.listener: RebalanceListener | None = None
        self._link = cluster_client
        self._name = name
        self._end = end
        self._loop_is_closed = loop_is_closed
        self._process = os.getpid()
        self._made_at = _callers(sys._getframe(2)) if _is_debugging() else None

    def __del__(self) -> None:
        # Any thread may run this, at any moment: that of the garbage collector.
        loop = self._link.loop
        if loop is None or self._link.stopped or not self._link.background.alive:
            return
        if sys.is_finalizing() or os.getpid() != self._process:  # after a fork it is the parent's, which goes on
            return
        try:
            warnings.warn(self._complaint(), ResourceWarning, source=self, stacklevel=2)
        finally:
            try:
                loop.call_soon_threadsafe(self._link.forgotten, partial(self._end, self.listener))
            except RuntimeError:  # it is closed
                self._loop_is_closed()

    def _complaint(self) -> str:
        text = f"{self._name} was forgotten and is still running: use 'async with', or await its stop()"
        if self._made_at is None:
            return text
        return f"{text}; it was made at (most recent call last):\n{''.join(self._made_at.format()).rstrip()}"


def _is_debugging() -> bool:
    """Whether the loop is in debug mode, or without one, whether a new one would be."""
    try:
        return asyncio.get_running_loop().get_debug()
    except RuntimeError:
        by_name = not sys.flags.ignore_environment and bool(os.environ.get("PYTHONASYNCIODEBUG"))
        return sys.flags.dev_mode or by_name


def _callers(frame: FrameType) -> traceback.StackSummary:
    stack = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_MOST_FRAMES, lookup_lines=False)
    stack.reverse()
    return stack
