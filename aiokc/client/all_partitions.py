"""Without a group, a subscription to topics means all of their partitions, those to come included."""

from __future__ import annotations

import logging
from uuid import UUID

from ..core.subscription import Mode, Subscription
from ..types import EARLIEST
from .metadata import Metadata
from .signal import Signal

logger = logging.getLogger("aiokc.group")


class AllPartitions:
    """Keeps the assignment equal to what the metadata say. ``assigned`` is notified after each change.

    Partitions that are there when a topic is first seen start where auto_offset_reset says. One that appears later
    starts at its beginning: with "latest", the records written before this client heard of it would be skipped. The
    same holds for all partitions of a topic that was deleted and created again, known by its id (KIP-516).

    A topic that a broker says not to know keeps its partitions: a broker that has just started may not have heard of
    it yet, and taking them away would mean reading them again from the beginning a moment later.
    """

    def __init__(self, metadata: Metadata, subscription: Subscription) -> None:
        self.assigned = Signal()
        self.wake = Signal()
        self._metadata = metadata
        self._subscription = subscription
        self._seen: dict[str, UUID | None] = {}  # topics, and the id of each

    async def run(self) -> None:
        """Follow the metadata for ever."""
        while True:
            if self._subscription.mode is Mode.TOPICS and self._follow():
                self.assigned.notify()
            await self.wake.wait()

    def _follow(self) -> bool:
        cluster = self._metadata.cluster
        topics = self._subscription.topics
        self._seen = {topic: topic_id for topic, topic_id in self._seen.items() if topic in topics}
        held = set(self._subscription.assigned)
        unknown = sorted(tp for tp in held if tp.topic in topics and tp.topic not in cluster.topics)
        wanted = cluster.partitions_of(topics) + unknown
        changed = self._subscription.replace(wanted)
        self._subscription.unblock(wanted)
        recreated = {topic for topic in self._seen if self._is_another(topic, cluster.topic_id(topic))}
        for tp in wanted:
            if tp.topic in recreated or (tp not in held and tp.topic in self._seen):
                logger.info("%s is new: reading it from its beginning", tp)
                self._subscription.await_reset(tp, EARLIEST)
        for topic in topics:
            if topic in cluster.topics or topic in cluster.errors:
                self._seen[topic] = cluster.topic_id(topic) or self._seen.get(topic)
        return changed or bool(recreated)

    def _is_another(self, topic: str, topic_id: UUID | None) -> bool:
        return topic_id is not None and self._seen[topic] not in (None, topic_id)
