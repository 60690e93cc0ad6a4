"""The subscription of a consumer: what it wants to read, what the application holds, and what may be committed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from uuid import UUID

from ...errors import UsageError
from ...types import OffsetAndMetadata, SubscriptionPattern, TopicPartition
from ..cluster.topic_pattern import TopicPattern
from .assigned_partitions import BY_NAME, AssignedPartitions
from .left_partitions import LeftPartitions
from .mode import Mode
from .position import PartitionPosition, Stored, is_of_another_topic

_NOTHING: Stored = MappingProxyType({})


class Subscription(AssignedPartitions):
    """The subscription, and the assignment that comes of it.

    The Reconciler changes the assignment of a subscription (``replace``); the application's own assign() changes it
    directly (``assign``); a reader of ranges assigns them, and gives up each that is read (``give_up``). unsubscribe()
    and the consumer's end empty it.
    ``topics`` are those subscribed to: by name, or because ``pattern`` matches them in the newest snapshot of the
    cluster. With a ``server_pattern`` they are those of the assigned partitions, because only the coordinator knows
    what it matches. ``auto_commits``: an AutoCommit asks what is processed of the partitions that were left.
    """

    def __init__(self, *, auto_commits: bool = True) -> None:
        super().__init__()
        self._auto_commits = auto_commits
        self.mode = Mode.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: TopicPattern | None = None
        self.server_pattern: SubscriptionPattern | None = None
        self._not_read: frozenset[str] = frozenset()  # internal topics that a server_pattern does not mean
        self.was_assigned = False  # since it changed: whether it had partitions, or is known to have none for now
        self.is_matched = False  # if not, ``topics`` are those subscribed to before that the pattern may match
        self._held: set[TopicPartition] = set()
        self._taken: set[TopicPartition] = set()
        self._former_ids: dict[TopicPartition, UUID | None] = {}  # of recreated topics with records held
        self.left = LeftPartitions()  # what may still be committed of those that the application has left

    # What is wanted

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribe to these topics instead of the former ones; return whether that is a change.

        The assignment stays until the group (or, without one, the metadata) gives a new one.
        """
        self._enter(Mode.TOPICS)
        changed = self._want(topics)
        self.was_assigned = self.was_assigned and not changed
        return changed

    def subscribe_pattern(self, pattern: TopicPattern) -> bool:
        """Subscribe to the topics that match; return whether that is a change.

        Until ``matched`` says which topics these are, they are those of the former ones whose names match.
        """
        self._enter(Mode.PATTERN)
        if pattern == self.pattern:
            return False
        self.pattern, self.is_matched, self.was_assigned = pattern, False, False
        self._want(topic for topic in self.topics if pattern.may_match(topic))
        return True

    def subscribe_server_pattern(self, pattern: SubscriptionPattern) -> bool:
        """Subscribe to what the coordinator finds by ``pattern``; return whether that is a change.

        The assignment stays until the coordinator has answered. It takes away whatever a pattern that is new to the
        group might match, too, and assigns that by a later answer: it matches in the background.
        """
        self._enter(Mode.SERVER_PATTERN)
        changed = pattern != self.server_pattern
        self.server_pattern = pattern
        self.was_assigned = self.was_assigned and not changed
        return changed

    def leave_out(self, topics: Iterable[str]) -> frozenset[str]:
        """Never read these topics because of a server pattern; return those for which this is new."""
        new = frozenset(topics) - self._not_read
        self._not_read |= new
        return new

    def wants(self, topic: str) -> bool:
        """Whether the application wants to read the partitions of ``topic`` that it is assigned."""
        return topic in self.topics if self.server_pattern is None else topic not in self._not_read

    def matched(self, topics: Iterable[str]) -> bool:
        """Set the topics that match the pattern now; return whether these are the first ones, or others than before."""
        is_first, self.is_matched = not self.is_matched, True
        return self._want(topics) or is_first

    def _want(self, topics: Iterable[str]) -> bool:
        wanted = frozenset(topics)
        changed = wanted != self.topics
        self.topics = wanted
        self.block([tp for tp in self._assigned if tp.topic not in wanted])  # also if the group still assigns them
        return changed

    @property
    def by_topics(self) -> bool:
        """Whether the application subscribed to topics, by name or pattern, and so does not choose the partitions."""
        return self.mode.is_by_topics

    def assign(self, partitions: Iterable[TopicPartition]) -> bool:
        """Assign exactly these partitions, as the application asks; return whether that is a change."""
        self._enter(Mode.PARTITIONS)
        return self._leave_for(partitions)

    def unsubscribe(self) -> None:
        """Give up subscription and assignment.

        The application may still commit what was handed out: until ``forget``, or by assign(), until another begins.
        """
        taken, held = set(self._taken), [tp for tp in self._held if self._assigned[tp].held]
        self.left.unsubscribed(held, self._assigned, by_hand=self.mode is Mode.PARTITIONS)
        self.mode, self.topics, self.is_matched, self.was_assigned = Mode.NONE, frozenset(), False, False
        self.pattern = self.server_pattern = None
        self._leave_for(())
        self._taken = taken

    def end(self) -> None:
        """Give up subscription and assignment for good. Nothing is kept for commits, because none follow."""
        super().end()
        self.mode, self.topics, self.is_matched = Mode.NONE, frozenset(), False
        self.pattern = self.server_pattern = None
        self._held, self._taken, self._former_ids, self.left = set(), set(), {}, LeftPartitions()

    def replace(self, partitions: Iterable[TopicPartition], topic_ids: Mapping[TopicPartition, UUID] = BY_NAME) -> bool:
        """Do as AssignedPartitions does; what is given up of what the application holds is ``taken_from_user``."""
        held = {tp: self._assigned[tp] for tp in self._held}
        if not super().replace(partitions, topic_ids):
            return False
        self._taken |= {tp for tp, position in held.items() if tp not in self._assigned and position.held}
        self._held &= self._assigned.keys()
        if self.server_pattern is not None:
            self.topics = frozenset(tp.topic for tp in self._assigned)
        return True

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Do as AssignedPartitions does; what the application holds records of is ``taken_from_user``."""
        self._taken |= {tp for tp in partitions if tp in self._held and self._assigned[tp].held}
        self._held.difference_update(partitions)
        super().give_up(partitions)

    def _leave_for(self, partitions: Iterable[TopicPartition]) -> bool:
        """Replace the assignment as the application asks. What auto-commit may store of the former one is kept."""
        if not self._auto_commits:
            return self.replace(partitions)
        before = self._assigned.copy()
        held = {tp: before[tp] for tp in self._held if before[tp].held}
        changed = self.replace(partitions)
        self.left.leave(before, held, self._assigned.keys())
        return changed

    def go_on(self, stored: Stored) -> None:
        """Read what was left, and is assigned by hand again, from behind the records that are processed.

        Where that is not ``stored`` yet, auto-commit is about to: the committed offset would bring them again. What is
        stored is not kept any longer: others may commit more from here on. Nor is that of which nothing can be stored.
        """
        for tp, position in list(self.left.processed.items()):
            is_stored = stored.get(tp) == (position.processed_position, position.processed_id)
            if is_stored or not position.has_processed:
                del self.left.processed[tp]
            elif tp in self._assigned and self.mode is Mode.PARTITIONS:
                del self.left.processed[tp]
                if (offset := position.committable()) is not None:
                    self.seek(tp, offset.offset, offset.leader_epoch, topic_id=offset.topic_id)

    def _enter(self, mode: Mode) -> None:
        if self.mode not in (Mode.NONE, mode):
            raise UsageError(
                f"the consumer already reads by {self.mode.value}: subscription to topics, subscription to a pattern "
                "(compiled, or a SubscriptionPattern) and assignment of partitions are mutually exclusive; call "
                "unsubscribe() first"
            )
        if self.mode is Mode.NONE:
            self._taken |= self.left.another_begins(joins_a_group=mode.is_by_topics)
        self.mode = mode

    # What the application holds

    @property
    def taken_from_user(self) -> frozenset[TopicPartition]:
        """The partitions that were given up while the application held records of them: those are delivered again."""
        return frozenset(self._taken)

    @property
    def recreated(self) -> frozenset[TopicPartition]:
        """Those of them that nobody else was given: their topic was recreated while the application held records."""
        return frozenset(self._former_ids)

    def hand_out(self, tp: TopicPartition, position: int, leader_epoch: int | None) -> None:
        """Note that the application holds everything of ``tp`` below ``position``; serve all others first now."""
        held = self._assigned.pop(tp, None) or self[tp]
        held.hand_out(position, leader_epoch)
        self._held.add(tp)
        self._assigned[tp] = held

    def mark_processed(self) -> None:
        """Count all that the application holds as processed, because it has come back for more.

        That includes what it held of partitions when it left them by assign() or unsubscribe(), but not of those that
        the group has taken.
        """
        self._taken.clear()
        self._former_ids.clear()
        if self.left.held or self.left.unprocessed:
            self.left.mark_processed(self._assigned)
        for tp in self._held:
            self._assigned[tp].mark_processed()
        self._held.clear()

    def begin_anew(self, tp: TopicPartition, timestamp: int) -> None:
        """Have the position of ``tp`` looked up by timestamp in its recreated topic.

        Records of the old topic that the application holds count as taken from it: nothing can be committed for them.
        """
        position = self[tp]
        if position.held:
            self._taken.add(tp)
            self._held.discard(tp)
            self._former_ids[tp] = position.held_id
            position.mark_processed()
        position.forget_topic()
        self.await_reset(tp, timestamp, lost=True)

    def topic_id(self, tp: TopicPartition) -> UUID | None:
        """The id of the topic that the application means by ``tp``: that of the records it holds, if it holds any.

        Else it is the topic that was assigned, or is read. None if the id is not known.
        """
        position = self.hold(tp)
        if position is None or tp in self._former_ids:
            return self._former_ids.get(tp)
        return position.held_id if position.held else position.assigned_id or position.topic_id

    def holds_records(self, partitions: Collection[TopicPartition] | None = None) -> bool:
        """Whether the application holds records (of these partitions): handed out and not processed yet."""
        return any(self._assigned[tp].held for tp in self._held if partitions is None or tp in partitions)

    def hold(self, tp: TopicPartition) -> PartitionPosition | None:
        """The position of ``tp``: the same until it is given up, also if unsubscribe() leaves it before. Else None."""
        return self._assigned.get(tp) or self.left.positions.get(tp)

    # What may be committed

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that a commit of ``offsets`` succeeded: what lies below them is processed, even if it was held."""
        for tp, offset in offsets.items():
            self.left.committed(tp, offset)
            position = self._assigned.get(tp)
            if position is None or is_of_another_topic(offset, position.topic_id):
                continue
            position.committed = offset.offset
            if offset.offset == position.position and not position.is_elsewhere:
                position.mark_processed()
            else:
                position.processed_up_to(offset)

    def heard_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Note what a coordinator says that the group has committed."""
        for tp, offset in offsets.items():
            position = self._assigned.get(tp)
            if position is not None:
                position.committed = None if offset is None else offset.offset

    def committable(self, stored: Stored = _NOTHING) -> dict[TopicPartition, OffsetAndMetadata]:
        """What auto-commit may store: what *earlier* calls handed out, never what the application holds now.

        That includes partitions that it left by assign() or unsubscribe(), until they are committed, or ``forget`` is
        called for them. Partitions whose offset is in ``stored`` already are left out.
        """
        return PartitionPosition.offsets(self._unlike(stored), processed=True)

    def uncommitted(self, stored: Stored) -> Iterator[tuple[TopicPartition, OffsetAndMetadata]]:
        """Yield what ``committable`` returns: the first item tells that there is something to commit."""
        for tp, position in self._unlike(stored):
            if (offset := position.committable()) is not None:
                yield tp, offset

    def _unlike(self, stored: Stored) -> Iterator[tuple[TopicPartition, PartitionPosition]]:
        left = ((tp, position) for tp, position in self.left.processed.items() if tp not in self._assigned)
        for tp, position in chain(left, self._assigned.items()):
            if stored.get(tp) != (position.processed_position, position.processed_id):
                yield tp, position

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Keep nothing more to commit of these partitions, which the application left: the group has them now."""
        self._taken |= self.left.forget(partitions)

    def refused(self) -> None:
        """The group has refused a commit: keep nothing to commit of what the application left, and had by assign()."""
        self.left.refused()

    def consumed(self, *, but_held: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        """What commit() without arguments stores: all that was handed out (``but_held``: without what is held).

        It includes the partitions left by unsubscribe(), until the group has taken them over (``forget``).
        """
        left = ((tp, position) for tp, position in self.left.consumed.items() if tp not in self._assigned)
        offsets = PartitionPosition.offsets
        return offsets(left, processed=but_held) | offsets(self._assigned.items(), processed=but_held)
