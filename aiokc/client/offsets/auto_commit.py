"""Committing now and then what the user is done with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from ...core.backoff import Backoff
from ...core.rate_limit import RateLimit, and_more
from ...core.subscription.state import Subscription
from ...errors import BrokerError, KafkaError, RebalanceInProgress
from ...types import OffsetAndMetadata, TopicPartition
from ..aio.signal import Signal
from .group_offsets import TOPIC_NOT_KNOWN, AsOfItsSlot, Offsets

logger = logging.getLogger("aiokc.group")

_SHORTEST_INTERVAL: Final = 0.01
_WARNING_INTERVAL: Final = 30.0
# For so long, in seconds, a member that leaves while its group gets an assignment waits for that: no commit is taken
# meanwhile. If it leads the group, there will be none.
_ASSIGNING: Final = 2.0
_NO_TOPICS: Final[frozenset[str]] = frozenset()


#: Whether an offset is known to be one of a topic that was deleted, and created again by the same name.
IsOfFormerTopic: TypeAlias = Callable[[TopicPartition, OffsetAndMetadata], bool]


class Commit(Protocol):
    async def __call__(self, offsets: Offsets, *, timeout: float, retry: bool) -> None: ...


class AutoCommit:
    """Commits, every ``interval`` seconds, what earlier calls returned and what is not stored yet.

    A failure is logged and tried again soon; it is nobody's error, because the next commit makes up for it. ``error``
    is that of the last attempt. ``exists`` says whether the newest metadata know a topic; what ``is_of_former_topic``
    says that of is left out.
    """

    def __init__(
        self,
        group_id: str,
        subscription: Subscription,
        commit: Commit,
        interval: float,
        timeout: float,
        backoff: Backoff,
        exists: Callable[[str], bool],
        is_of_former_topic: IsOfFormerTopic,
    ) -> None:
        self._group_id = group_id
        self._subscription = subscription
        self._commit = commit
        self._interval = max(interval, _SHORTEST_INTERVAL)
        self._timeout = timeout
        self._backoff = backoff
        self._exists = exists
        self._is_of_former_topic = is_of_former_topic
        self.error: KafkaError | None = None
        self._stored: dict[TopicPartition, tuple[int, UUID | None]] = {}
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
            error = await self._flush(self._timeout)
            if error is not None and error.retriable:
                pause = min(self._backoff.next(), self._interval)
            else:
                pause = self._interval
                self._backoff.reset()

    async def hand_over(self, timeout: float) -> None:
        """Commit for the last time before partitions go, trying for ``timeout`` seconds.

        A topic that is gone takes no offsets any more, and a group does not wait for a member that asks again: it is
        left out once the coordinator and the metadata agree about that.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        gone: frozenset[str] = _NO_TOPICS
        while (error := await self._flush(began + timeout - loop.time(), but_not=gone)) is not None:
            patience = timeout if error.retriable else _ASSIGNING if isinstance(error, RebalanceInProgress) else 0.0
            left = began + min(patience, timeout) - loop.time()
            if left <= 0:
                return
            await asyncio.sleep(min(self._backoff.next(), left))
            gone = _NO_TOPICS
            if isinstance(error, BrokerError) and error.code in TOPIC_NOT_KNOWN:
                gone = frozenset(tp.topic for tp in self._not_stored(_NO_TOPICS) if not self._exists(tp.topic))
        self._backoff.reset()

    async def _flush(self, timeout: float, but_not: Collection[str] = _NO_TOPICS) -> KafkaError | None:
        """Commit now what is not stored yet, once; return what went wrong."""
        if not any(self._wanted(but_not)):
            return None
        try:
            # Asked for in its turn: the user's own commit() may be under way, and what he holds now be stored by then.
            await self._commit(AsOfItsSlot(partial(self._not_stored, but_not)), timeout=timeout, retry=False)
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

    def _not_stored(self, but_not: Collection[str]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return dict(self._wanted(but_not))

    def _wanted(self, but_not: Collection[str]) -> Iterator[tuple[TopicPartition, OffsetAndMetadata]]:
        for tp, offset in self._subscription.uncommitted(self._stored):
            if tp.topic not in but_not and not self._is_of_former_topic(tp, offset):
                yield tp, offset

    def stored(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The group has these by now, whoever committed them."""
        self._stored.update((tp, (offset.offset, offset.topic_id)) for tp, offset in offsets.items())

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Others may commit for these from here on."""
        for tp in partitions:
            self._stored.pop(tp, None)
