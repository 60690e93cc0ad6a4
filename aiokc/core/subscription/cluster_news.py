"""Which assigned partitions a new snapshot of the cluster may say something new about, found a thousand at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from ...types import TopicPartition
from ..cluster.snapshot import Cluster
from .position import FETCHING
from .state import Subscription

# Half a millisecond of them.
_AT_ONCE: Final = 1_000


class ClusterNews:
    """The partitions to look at because of a new snapshot. One that has no position yet, and belongs to no topic, is
    none of them: nothing can be said of it.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._cluster = self._before = Cluster()
        self._concerns_all = False
        self._unseen: list[TopicPartition] = []

    def __bool__(self) -> bool:
        """Whether ``take`` has more to go through."""
        return bool(self._unseen)

    def came(self, before: Cluster, cluster: Cluster) -> None:
        """Go through all that is assigned now: ``cluster`` has come in the place of ``before``."""
        # Where an earlier snapshot has not been gone through, its news count for what is left of it.
        self._concerns_all = bool(self._unseen) or cluster.brokers != before.brokers
        self._before, self._cluster = before, cluster
        self._unseen = list(self._subscription.assigned)
        self._unseen.reverse()

    def take(self) -> Sequence[TopicPartition]:
        """Return those of the next thousand partitions that are concerned, in the order of the assignment."""
        if not self._unseen:
            return ()
        some = list(islice(reversed(self._unseen), _AT_ONCE))
        del self._unseen[-len(some) :]
        assigned = self._subscription.assigned
        found: list[TopicPartition] = []
        for tp in some:
            position = assigned.get(tp)
            if position is None or (position.state is not FETCHING and position.topic_id is None):
                continue
            if self._concerns_all or self._is_new(tp.topic):
                found.append(tp)
        if not self._unseen:
            self._before = self._cluster  # an old snapshot has thousands of partitions, too
        return found

    def _is_new(self, topic: str) -> bool:
        return self._cluster.topics.get(topic) is not self._before.topics.get(topic)
