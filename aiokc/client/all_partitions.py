"""Without a group, a subscription to topics means all of their partitions, those to come included."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

import anyio

from ..config import ConsumerConfig
from ..core.subscription import Subscription
from ..core.topic_pattern import TopicPattern
from ..types import EARLIEST, TopicPartition
from .metadata import Metadata
from .rebalance_listener import ListenerCalls, RebalanceListener
from .signal import Signal

logger = logging.getLogger("aiokc.group")

_MANY: Final = (
    1_000  # to take over more partitions holds the loop for milliseconds: then others get their turn half way
)


class AllPartitions:
    """Keeps the assignment equal to what the metadata say. ``assigned`` is notified after each change.

    Partitions that are there when a topic or a pattern is first looked at start where auto_offset_reset says. One that
    appears later starts at its beginning: with "latest", the records written before this client heard of it would be
    skipped. (So does a topic that was deleted and created again, which the fetcher knows by its id.)

    A topic that a broker says not to know keeps its partitions: a broker that has just started may not have heard of
    it yet, and taking them away would mean reading them again from the beginning a moment later. One that matched a
    pattern is believed to be deleted after ``retry_backoff_max_ms``, if it is still missing then.

    The listener hears of what comes and goes as in a group; nothing is committed, so nothing waits for the user.
    """

    def __init__(
        self, config: ConsumerConfig, metadata: Metadata, subscription: Subscription, listener: ListenerCalls
    ) -> None:
        self.assigned = Signal()
        self.wake = Signal()
        self._metadata = metadata
        self._subscription = subscription
        self._listener = listener
        self._max_poll_interval = config.max_poll_interval_ms / 1e3
        self._patience = config.retry_backoff_max_ms / 1e3
        self._seen: set[str] = set()
        self._seen_pattern: TopicPattern | None = None
        self._vanished: dict[str, float] = {}  # topics that matched, and since when they are missing
        self._announced: frozenset[TopicPartition] = frozenset()  # what the listener was told to be assigned
        self._left: list[tuple[RebalanceListener | None, frozenset[TopicPartition]]] = []
        self._running = False
        self._leaving = False
        self._settled_at = -1  # how often it had been woken when there was nothing more to do

    async def run(self) -> None:
        """Follow the metadata until ``leave``, and then do nothing more: only a driver that has failed ends."""
        self._running = True
        try:
            while not (self._leaving and not self._announced and not self._left):
                woken = self.wake.notified
                if await self._follow():
                    self.assigned.notify()
                    await asyncio.sleep(0)  # a step for thousands of partitions takes milliseconds
                    continue
                if self._settled_at != woken:
                    self._settled_at = woken
                    self.assigned.notify()
                if not await self.wake.wait(self._patience if self._vanished else None):
                    self._metadata.request_update()
        finally:
            self._running = False
            self.assigned.notify()
        await anyio.sleep_forever()

    @property
    def has_assigned(self) -> bool:
        """Whether the assignment is what the metadata say of all that is subscribed to, and the listener is done."""
        cluster, subscription = self._metadata.cluster, self._subscription
        if self._settled_at != self.wake.notified:
            return False
        if subscription.pattern is not None:
            return subscription.is_matched
        return all(topic in cluster.topics or topic in cluster.errors for topic in subscription.topics)

    def unsubscribed(self) -> None:
        """To be called when the user gives up his subscription: the listener of now is told what goes."""
        if self._announced:
            self._left.append((self._listener.listener, self._announced))
            self._announced = frozenset()

    async def leave(self, timeout: float) -> None:
        """Tell the listener that everything goes, and hold nothing any more. Ends within ``timeout`` seconds."""
        self._leaving = True
        self._listener.end_within(timeout)
        self.wake.notify()
        while self._running:
            await self.assigned.wait()

    async def _follow(self) -> bool:
        """Take one step towards what the metadata say; return whether there was one to take."""
        if self._left:
            former, going = self._left.pop(0)
            await self._listener.revoked(former, going, self._deadline())
            return True
        if not self._subscription.by_topics:
            return False
        wanted = [] if self._leaving else self._wanted()
        subscribed = self._subscription.topics
        self._seen &= subscribed
        going = self._announced.difference(wanted)
        if going:
            await self._give_up(going)
            return True
        return await self._take_over(wanted)

    def _wanted(self) -> list[TopicPartition]:
        cluster, subscription = self._metadata.cluster, self._subscription
        missing = {tp.topic for tp in subscription.assigned if tp.topic not in cluster.topics}
        if subscription.pattern is None:
            kept = missing & subscription.topics
            self._vanished = {}
        else:
            now = self._metadata.refreshed_at
            matching = {topic for topic in missing if subscription.pattern.may_match(topic)}
            self._vanished = {topic: self._vanished.get(topic, now) for topic in matching}
            kept = {topic for topic, since in self._vanished.items() if now - since < self._patience}
        return cluster.partitions_of(subscription.topics) + sorted(
            tp for tp in subscription.assigned if tp.topic in kept
        )

    async def _give_up(self, going: Collection[TopicPartition]) -> None:
        subscription = self._subscription
        self._announced = self._announced.difference(going)
        subscription.block(going)
        await self._listener.revoked(self._listener.listener, going, self._deadline())
        if subscription.by_topics:  # else he has assigned by hand since, and that is his
            subscription.replace([tp for tp in subscription.assigned if tp not in going])

    async def _take_over(self, wanted: list[TopicPartition]) -> bool:
        subscription = self._subscription
        held = set(subscription.assigned)
        added = set(wanted) - self._announced
        changed = subscription.replace(wanted)
        for tp in wanted:
            if tp not in held and self._is_late(tp.topic):
                logger.info("%s is new: reading it from its beginning", tp)
                subscription.await_reset(tp, EARLIEST)
        self._see()
        if added:
            subscription.block(added)
            self._announced |= added
            self.assigned.notify()
            await self._listener.assigned(self._listener.listener, added, self._deadline())
            if len(added) > _MANY:
                await asyncio.sleep(0)
        subscription.unblock(tp for tp in wanted if tp.topic in subscription.topics)
        return changed or bool(added)

    def _is_late(self, topic: str) -> bool:
        """Whether the user has read what he subscribes to before this topic, or its partition, appeared."""
        pattern = self._subscription.pattern
        return topic in self._seen or (pattern is not None and pattern is self._seen_pattern)

    def _see(self) -> None:
        """From here on, what appears in these topics, or matches this pattern, is new."""
        cluster, subscription = self._metadata.cluster, self._subscription
        self._seen |= {topic for topic in subscription.topics if topic in cluster.topics or topic in cluster.errors}
        self._seen_pattern = subscription.pattern if subscription.is_matched else None

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._max_poll_interval
