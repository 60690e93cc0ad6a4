"""Committing now and then what the user is done with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from ..core.backoff import Backoff
from ..core.rate_limit import RateLimit, and_more
from ..core.subscription import Subscription
from ..errors import KafkaError
from ..types import OffsetAndMetadata, TopicPartition
from .group_offsets import Offsets
from .signal import Signal

logger = logging.getLogger("aiokc.group")

_SHORTEST_INTERVAL: Final = 0.01
_WARNING_INTERVAL: Final = 30.0


class Commit(Protocol):
    async def __call__(self, offsets: Offsets, *, timeout: float, retry: bool) -> None: ...


class AutoCommit:
    """Commits, every ``interval`` seconds, what earlier calls returned and what is not stored yet.

    A failure is logged and tried again soon; it is nobody's error, because the next commit makes up for it. ``error``
    is that of the last attempt.
    """

    def __init__(
        self,
        group_id: str,
        subscription: Subscription,
        commit: Commit,
        interval: float,
        timeout: float,
        backoff: Backoff,
    ) -> None:
        self._group_id = group_id
        self._subscription = subscription
        self._commit = commit
        self._interval = max(interval, _SHORTEST_INTERVAL)
        self._timeout = timeout
        self._backoff = backoff
        self.error: KafkaError | None = None
        self._stored: dict[TopicPartition, int] = {}
        self._warnings = RateLimit(_WARNING_INTERVAL)
        self._hurried = False
        self._wake = Signal()

    def hurry(self) -> None:
        """Let the next commit not wait for the interval."""
        self._hurried = True
        self._wake.notify()

    async def run(self) -> None:
        """Commit for ever."""
        pause = self._interval
        while True:
            if not self._hurried:
                await self._wake.wait(pause)
            self._hurried = False
            error = await self.flush(timeout=self._timeout, retry=False)
            if error is not None and error.retriable:
                pause = min(self._backoff.next(), self._interval)
            else:
                pause = self._interval
                self._backoff.reset()

    async def flush(self, *, timeout: float, retry: bool) -> KafkaError | None:
        """Commit now what is not stored yet; return what went wrong."""
        if not self._not_stored():
            return None
        try:
            # Asked for in its turn: the user's own commit() may be under way, and what he holds now be stored by then.
            await self._commit(self._not_stored, timeout=timeout, retry=retry)
        except KafkaError as error:
            now = asyncio.get_running_loop().time()
            if (held_back := self._warnings.admit(type(error).__name__, now)) is not None:
                logger.warning(
                    "group %r: auto-commit failed: %s%s",
                    self._group_id,
                    error,
                    and_more(held_back),
                )
            self.error = error
            return error
        self.error = None
        return None

    def _not_stored(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self._subscription.committable(self._stored)

    def stored(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The group has these by now, whoever committed them."""
        self._stored.update((tp, offset.offset) for tp, offset in offsets.items())

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Others may commit for these from here on."""
        for tp in partitions:
            self._stored.pop(tp, None)
