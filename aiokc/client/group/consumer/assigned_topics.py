"""The topics of a member's assignment: their names by topic id, and metadata of those that a pattern has brought."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from uuid import UUID

from ....core.backoff import search_pause
from ....core.group.consumer.membership import ConsumerMembership
from ....core.subscription.state import Subscription
from ....error_codes import ErrorCode
from ....types import TopicPartition, named
from ...cluster.metadata import Metadata

logger = logging.getLogger("aiokc.group")


class AssignedTopics:
    """Names the topic ids of an assignment.

    A member that subscribes to names follows these topics anyway. With a SubscriptionPattern it can't know which topics
    match. So the metadata follow what the coordinator has assigned: first by the ids, and by the names once a broker
    has told them. Nothing asks for the metadata of all topics.
    """

    def __init__(
        self, group_id: str, metadata: Metadata, subscription: Subscription, *, exclude_internal: bool
    ) -> None:
        self._group_id = group_id
        self._metadata = metadata
        self._subscription = subscription
        self._exclude_internal = exclude_internal
        self._interest = metadata.interest()
        self._absent: frozenset[TopicPartition] = frozenset()
        self._unnamed: frozenset[UUID] = frozenset()
        self._unnamed_since = self._asked_at = 0.0

    def names(self, topic_ids: Iterable[UUID]) -> Mapping[UUID, str]:
        """The names of those of ``topic_ids`` that the newest metadata know."""
        wanted = frozenset(topic_ids)
        if not wanted:
            return {}
        cluster = self._metadata.cluster
        topics = self._subscription.topics if self._subscription.server_pattern is None else cluster.topics
        found = {cluster.topic_id(topic): topic for topic in topics}
        names = {topic_id: topic for topic_id, topic in found.items() if topic_id is not None and topic_id in wanted}
        if self._subscription.server_pattern is not None and self._exclude_internal:
            self._leave_out(topic for topic in names.values() if cluster.topics[topic].is_internal)
        return names

    def have_ids(self) -> bool:
        """Whether the newest metadata have the id of each topic that is subscribed to by name."""
        topics = self._subscription.topics
        return bool(topics) and all(self._metadata.cluster.topic_id(topic) is not None for topic in topics)

    def former_ids(self, machine: ConsumerMembership) -> frozenset[UUID]:
        """The ids that topics of the subscription had before they were recreated."""
        former = self._metadata.cluster.former
        topics = machine.assigned_topics if self._subscription.server_pattern else self._subscription.topics
        return frozenset(one for topic in topics if topic in former for one in former[topic].ids)

    def forbidden(self) -> frozenset[str]:
        """The topics of the subscription that the newest metadata refuse to this principal."""
        errors, topics = self._metadata.cluster.errors, self._subscription.topics
        return frozenset(
            topic for topic, code in errors.items() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and topic in topics
        )

    def absent(self) -> frozenset[TopicPartition]:
        """The assigned partitions that the newest metadata do not have, and that they had not at the last call, either.

        A partition that was just added is assigned before all brokers know of it.
        """
        topics, before = self._metadata.cluster.topics, self._absent
        self._absent = frozenset(
            tp
            for tp, position in self._subscription.assigned.items()
            if (topic := topics.get(tp.topic)) is not None
            and tp.partition not in topic.partitions
            and not position.is_assigned_by_another_id_than(topic.topic_id)
        )
        return self._absent & before

    def _leave_out(self, internal: Iterable[str]) -> None:
        """Do not read these topics. The member holds them all the same: the coordinator has given them to it."""
        if new := self._subscription.leave_out(internal):
            logger.warning(
                "group %r: the pattern '%s' matches topics that Kafka keeps for itself (%s); the members do not read "
                "them, although the coordinator assigns them: let the pattern begin with a prefix that only your "
                "topics have, or set exclude_internal_topics=False to read these, too",
                self._group_id,
                self._subscription.server_pattern,
                named(new),
            )

    def follow(self, machine: ConsumerMembership) -> None:
        """Keep the metadata of what ``machine`` has been assigned up to date."""
        unnamed = machine.unnamed_topics
        if self._subscription.server_pattern is not None:
            self._interest.set(machine.assigned_topics, unnamed)
            return
        self._interest.set(())
        now = asyncio.get_running_loop().time()
        if unnamed != self._unnamed:
            self._unnamed, self._unnamed_since = unnamed, now
        if unnamed and now - self._asked_at >= search_pause(self._asked_at - self._unnamed_since):
            self._asked_at = now
            self._metadata.request_update()

    def close(self) -> None:
        self._interest.close()
