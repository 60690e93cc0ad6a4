"""Changes what is read, as the application says: which topics or partitions, which of them are paused, from where."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ...config import ConsumerConfig
from ...core.cluster.topic_pattern import TopicPattern
from ...core.subscription.state import Subscription
from ...types import OffsetAndMetadata, SubscriptionPattern, TopicPartition
from ..aio.signal import Signal
from ..cluster.metadata import Metadata
from ..cluster.pattern_topics import PatternTopics
from ..group.assignment_source import AssignmentSource
from ..group.choice import check_coordinator_matches
from ..group.rebalance_listener import ListenerCalls, RebalanceListener


class Subscribing:
    """Changes the Subscription, and has every part look that acts by it: all within the call, nothing is awaited.

    ``moved`` is notified of each change.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        metadata: Metadata,
        subscription: Subscription,
        source: AssignmentSource,
        listener: ListenerCalls,
        pattern: PatternTopics,
        moved: Signal,
    ) -> None:
        self._exclude_internal = config.exclude_internal_topics
        self._metadata = metadata
        self._subscription = subscription
        self._source = source
        self._listener = listener
        self._pattern = pattern
        self._moved = moved
        self._interest = metadata.interest(may_create=True)

    # Which topics or partitions

    def subscribe(
        self, wanted: Iterable[str] | re.Pattern[str] | SubscriptionPattern, listener: RebalanceListener | None
    ) -> None:
        if isinstance(wanted, SubscriptionPattern):
            check_coordinator_matches(wanted, self._source.report().protocol)
            is_change = self._subscription.subscribe_server_pattern(wanted)
        elif isinstance(wanted, re.Pattern):
            pattern = TopicPattern(wanted, exclude_internal=self._exclude_internal)
            is_change = self._subscription.subscribe_pattern(pattern)
        else:
            is_change = self._subscription.subscribe(wanted)
        self._listener.listener = listener
        if is_change:
            self._want_changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        if self._subscription.assign(partitions):
            self._want_changed()

    def unsubscribe(self) -> None:
        self._subscription.unsubscribe()
        self._want_changed()

    def _want_changed(self) -> None:
        self._pattern.subscription_changed()
        subscription = self._subscription
        if subscription.pattern is None and subscription.server_pattern is None:
            self._interest.set(subscription.topics or {tp.topic for tp in subscription.assigned})
        else:  # PatternTopics is interested in all topics, or the group protocol in those that it has been assigned
            self._interest.set(())
        self.topics_changed()

    def topics_changed(self) -> None:
        """The topics that are subscribed to have changed; to be called by PatternTopics for those that match."""
        self._source.subscription_changed()
        self._pattern.wake.notify()
        self._moved.notify()

    # What of it, and from where

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        wanted = list(partitions)
        for tp in wanted:
            self._subscription[tp]  # raises for one that is not assigned, before any of them has changed
        for tp in wanted:
            self._subscription.pause(tp, paused)
        self._moved.notify()

    def seek(self, wheres: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Go on at these offsets. All who act by the positions look once: thousands of looks would hold the loop."""
        topic_id_of = self._metadata.cluster.topic_id
        for tp, where in wheres.items():
            topic_id = where.topic_id or topic_id_of(tp.topic)
            self._subscription.seek(tp, where.offset, where.leader_epoch, topic_id=topic_id)
        self._moved.notify()

    def reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        """Have the positions of these partitions looked up."""
        subscription = self._subscription
        # Asking for the tokens raises for one that is not assigned, before any of them has moved.
        subscription.await_resets({tp: subscription[tp].token for tp in partitions}, timestamp)
        self._moved.notify()
