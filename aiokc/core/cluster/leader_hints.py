"""LeaderHints: the leaders that brokers name in their answers, put on top of what the metadata say (KIP-951)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ...error_codes import ErrorCode
from ...types import Broker, TopicPartition
from .snapshot import Cluster, NewLeader, with_leaders
from .unfollowed import without_old_errors

#: By these errors a broker says that, as far as it knows, it does not lead the partition: newer metadata tell who does.
#: OFFSET_NOT_AVAILABLE is none of them: so answers a leader that was elected a moment ago.
DENY_LEADING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        # The broker does not know yet of an election that this client knows of; or the topic was recreated.
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


class LeaderHints:
    """``cluster`` is the snapshot of the newest metadata, with the leaders that were named since.

    A leader that was named counts until the metadata know as much, since a broker that has not heard of the election
    yet must not undo it; or until it is found wrong. Then the metadata count again, and for that partition no other
    name before they are refreshed, nor the same epoch after that: so a broker that names wrong leaders again and again
    costs a request for each refresh.
    """

    def __init__(self) -> None:
        self.cluster = self.said = Cluster()  # ``said`` by the metadata alone
        self._leaders: dict[TopicPartition, NewLeader] = {}
        self._addresses: dict[int, Broker] = {}
        self._wrong: dict[TopicPartition, tuple[NewLeader, int]] = {}  # and the snapshot in which it was wrong

    def refreshed(self, said: Cluster) -> None:
        """The metadata have answered."""
        self.said = said
        self._wrong = {tp: wrong for tp, wrong in self._wrong.items() if _is_ahead(tp, wrong[0], said)}
        self._put_on()

    def forget_errors(self, followed: Collection[str] | None) -> None:
        """Only these topics are followed from now on (None: all)."""
        self.said = without_old_errors(self.said, followed)
        self.cluster = without_old_errors(self.cluster, followed)

    def learn(self, leaders: Mapping[TopicPartition, NewLeader], brokers: Mapping[int, Broker]) -> set[TopicPartition]:
        """A broker names these leaders, at these addresses; return the partitions that have a new leader by it."""
        credible = {tp: leader for tp, leader in leaders.items() if not self._was_wrong(tp, leader)}
        cluster, moved = with_leaders(self.cluster, credible, brokers)
        if moved:
            self.cluster = cluster
            self._leaders.update((tp, credible[tp]) for tp in moved)
            used = {credible[tp].node_id for tp in moved} & brokers.keys()
            self._addresses.update((node_id, brokers[node_id]) for node_id in used)
        return moved

    def disprove(self, node_id: int, partitions: Collection[TopicPartition] | None = None) -> bool:
        """That broker does not lead these partitions (None: any), or can't be reached; return whether it was named."""
        wrong = [
            tp
            for tp, leader in self._leaders.items()
            if leader.node_id == node_id and (partitions is None or tp in partitions)
        ]
        for tp in wrong:
            self._wrong[tp] = self._leaders.pop(tp), self.said.version
        if wrong:
            self._put_on()
        return bool(wrong)

    def _was_wrong(self, tp: TopicPartition, leader: NewLeader) -> bool:
        wrong = self._wrong.get(tp)
        return wrong is not None and (leader.epoch <= wrong[0].epoch or self.said.version == wrong[1])

    def _put_on(self) -> None:
        self.cluster, held = with_leaders(self.said, self._leaders, self._addresses)
        self._leaders = {tp: leader for tp, leader in self._leaders.items() if tp in held}
        used = {leader.node_id for leader in self._leaders.values()}
        self._addresses = {node_id: broker for node_id, broker in self._addresses.items() if node_id in used}


def _is_ahead(tp: TopicPartition, leader: NewLeader, said: Cluster) -> bool:
    """Whether the metadata do not know of the leader's epoch yet. They never will in a deleted or recreated topic."""
    if said.partition(tp) is None:
        return False  # no name counts there, and the partition may never come back
    return said.topic_id(tp.topic) in (None, leader.topic_id) and said.leader_epoch(tp) < leader.epoch
