"""Matches the pattern of a subscription against the topics of every new snapshot of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...config import ConsumerConfig
from ...core.cluster.missing_topics import MissingTopics
from ...core.cluster.snapshot import Cluster
from ...core.cluster.topic_pattern import TopicPattern
from ...core.subscription.state import Subscription
from ...errors import RequestTimedOut
from ...net.reply import in_steps
from ...types import named
from ..aio.signal import Signal
from .metadata import Metadata

logger = logging.getLogger("aiokc.metadata")


class PatternTopics:
    """Keeps the topics of a subscription by pattern equal to those that match. Calls ``changed`` when they change.

    Only complete snapshots count: one that was asked for by topic names says nothing of new topics. A topic that has
    matched is kept until it has been missing for ``retry_backoff_max_ms``.
    """

    def __init__(
        self, config: ConsumerConfig, metadata: Metadata, subscription: Subscription, changed: Callable[[], None]
    ) -> None:
        self.wake = Signal()
        self._metadata = metadata
        self._subscription = subscription
        self._changed = changed
        self._interest = metadata.interest()
        self._seen: tuple[Cluster, TopicPattern] | None = None
        self._missing = MissingTopics(config.retry_backoff_max_ms / 1e3)
        self._kept: set[str] = set()

    def subscription_changed(self) -> None:
        """To be called when the application has subscribed to a pattern, or has ended such a subscription."""
        self._interest.set(() if self._subscription.pattern is None else None)
        if self._subscription.pattern is None:
            self._kept = set()  # nothing is missed any more: run() need not ask for it

    async def run(self) -> None:
        """Match in a loop, whenever the pattern or the snapshot is new."""
        while True:
            if not await self._look() and not await self.wake.wait(self._missing.patience if self._kept else None):
                self._metadata.request_update()

    async def refresh(self, max_age: float, timeout: float) -> None:
        """Match the topics of a snapshot that is at most ``max_age`` seconds old.

        If no broker gives one within ``timeout`` seconds, match the topics that are known.
        """
        version = self._metadata.cluster.version
        if self._metadata.age > max_age or not self._metadata.cluster.complete:

            def newer(cluster: Cluster) -> bool | None:
                return (cluster.complete and cluster.version > version) or None

            try:
                await self._metadata.wait_for(newer, timeout, "the topics that match the pattern")
            except RequestTimedOut as error:
                logger.warning("joining with the topics that are known: %s", error)
        await self._look()

    async def _look(self) -> bool:
        """Match the topics if the pattern or the snapshot is new; return whether one was. Lets other tasks run."""
        cluster, pattern = self._metadata.cluster, self._subscription.pattern
        if pattern is None or not cluster.complete:
            return False
        if self._seen is not None and self._seen[0] is cluster and self._seen[1] is pattern:
            return False
        topics = await in_steps(pattern.match(cluster.topics))
        if self._subscription.pattern is pattern and self._metadata.cluster is cluster:
            self._seen = cluster, pattern
            missing = self._subscription.topics - cluster.topics.keys()
            self._kept = self._missing.kept(filter(pattern.may_match, missing), self._metadata.refreshed_at)
            topics |= self._kept
            if self._subscription.matched(topics):
                logger.info("topics that match %s: %s", pattern, named(topics) if topics else "none")
                self._changed()
        return True
