"""What the application may still commit of the partitions that it has left by assign() or unsubscribe()."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping

from ...types import OffsetAndMetadata, TopicPartition
from .position import PartitionPosition, is_of_another_topic


class LeftPartitions:
    """Each entry stays until its offset is committed, or the group has taken the partition over (``forget``).

    What the application held when it left is processed once it comes back for more (``mark_processed``):

    1. It reads 0 to 9 of a partition, and leaves that by assign(). Auto-commit stores 0, the end of what is processed.
    2. It asks for records of the other partition, so 0 to 9 are processed. Auto-commit has 10 to store.

    Without the second step, an application that goes from partition to partition would read 0 to 9 again and again.

    The entries are the positions as they were: nothing moves one that is given up. What is committed of them is worked
    out when it is asked for, because unsubscribe() must not hold the event loop for thousands of partitions.

    processed    their ``committable()`` is what auto-commit may store; nothing, if there is none: nobody would ask
    unprocessed  those that auto-commit may store more of once the application comes back: it held records of them
    consumed     their ``consumed()`` is what commit() without arguments stores, after unsubscribe()
    held         the partitions of which the application held records when it unsubscribed
    positions    what their positions were when the application unsubscribed
    by_hand      the partitions that assign() had assigned: no revocation follows, and so no ``forget``
    """

    def __init__(self) -> None:
        self.processed: dict[TopicPartition, PartitionPosition] = {}
        self.unprocessed: dict[TopicPartition, PartitionPosition] = {}
        self.consumed: dict[TopicPartition, PartitionPosition] = {}
        self.held: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, PartitionPosition] = {}
        self.by_hand: set[TopicPartition] = set()
        self._has_more_to_commit = False

    def leave(
        self,
        before: Mapping[TopicPartition, PartitionPosition],
        held: Mapping[TopicPartition, PartitionPosition],
        now: Collection[TopicPartition],
    ) -> None:
        """Note what auto-commit may store of the assignment ``before``, which has given way to that of ``now``.

        ``held``: those of which the application holds records.
        """
        self.processed |= before
        for tp in self.unprocessed.keys() & before.keys():  # left before, and read from another position since
            del self.unprocessed[tp]
        self.unprocessed |= held
        for tp in before.keys() & now:  # those that are kept
            del self.processed[tp]
            self.unprocessed.pop(tp, None)

    def mark_processed(self, assigned: Container[TopicPartition]) -> None:
        """Count all that the application held when it left as processed, because it has come back for more.

        That is kept for auto-commit even if what was processed before has been stored. Of partitions that are
        ``assigned`` again it is not: there the application gets those records again.
        """
        for tp in self.held:
            self.positions[tp].mark_processed()
        for tp, position in self.unprocessed.items():
            if tp not in assigned:
                position.mark_processed()
                self.processed[tp] = position
                self._has_more_to_commit = True
        self.held.clear()
        self.unprocessed.clear()

    def take_more_to_commit(self) -> bool:
        """Whether ``mark_processed`` has given auto-commit something to store since the last call."""
        has_more, self._has_more_to_commit = self._has_more_to_commit, False
        return has_more

    def unsubscribed(
        self, held: Collection[TopicPartition], assigned: Mapping[TopicPartition, PartitionPosition], *, by_hand: bool
    ) -> None:
        """Note what unsubscribe() has given up, beside what an earlier one has."""
        self.consumed.update(assigned)
        self.held.update(held)
        self.positions.update(assigned)
        if by_hand:
            self.by_hand.update(assigned)

    def another_begins(self, *, joins_a_group: bool) -> set[TopicPartition]:
        """Another subscription or assignment begins. Forget what was assigned by hand; return the partitions of that
        of which the application held records.

        What the group assigned is still the member's: its listener's on_partitions_revoked() may commit that. What is
        processed of the rest is forgotten if the consumer ``joins_a_group``: a group takes a member's commit for any
        partition, so the member would set back what the partition's owner has committed by then.
        """
        by_hand, self.by_hand = self.by_hand, set()
        for tp in by_hand:
            self.consumed.pop(tp, None)
            self.positions.pop(tp, None)
        held = self.held & by_hand
        self.held -= by_hand
        if joins_a_group:
            self._keep_what_the_group_assigned()
        return held

    def is_taken_back_by(self, tp: TopicPartition, offset: OffsetAndMetadata) -> bool:
        """Whether to commit ``offset`` means to have records again that are processed, and not committed yet."""
        left = self.processed.get(tp) or self.unprocessed.get(tp)
        return left is not None and left.committable() is not None and left.is_taken_back_by(offset)

    def taken_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Commits for which ``is_taken_back_by`` was true have succeeded: auto-commit must not undo them."""
        for tp in partitions:
            self.processed.pop(tp, None)
            self.unprocessed.pop(tp, None)

    def give_up(self, is_gone: Callable[[TopicPartition, OffsetAndMetadata], bool]) -> list[TopicPartition]:
        """Auto-commit can't store what ``is_gone``: forget that it is processed, and return its partitions."""
        gone = [
            tp
            for tp, position in self.processed.items()
            if (offset := position.committable()) is not None and is_gone(tp, offset)
        ]
        for tp in gone:
            del self.processed[tp]
            self.unprocessed.pop(tp, None)
        return gone

    def refused(self) -> None:
        """The group has refused a commit, because it has members. Forget what is processed of what was assigned by
        hand: once these members have gone, it would set back what they have committed."""
        self._keep_what_the_group_assigned()

    def _keep_what_the_group_assigned(self) -> None:
        ours = self.positions.keys() - self.by_hand
        self.processed = {tp: position for tp, position in self.processed.items() if tp in ours}
        self.unprocessed = {tp: position for tp, position in self.unprocessed.items() if tp in ours}

    def committed(self, tp: TopicPartition, offset: OffsetAndMetadata) -> None:
        """Note that a commit of ``offset`` succeeded.

        It may be less than what is processed: the application came back for more records, and left, while the commit
        was under way. Auto-commit has the rest to store then.
        """
        processed = self.processed.get(tp)
        if processed is not None and not processed.is_taken_back_by(offset):
            del self.processed[tp]
        unprocessed = self.unprocessed.get(tp)
        if unprocessed is not None and unprocessed.is_held_below(offset):
            del self.unprocessed[tp]
        position = self.consumed.get(tp)
        if position is None or (consumed := position.consumed()) is None:
            return
        if is_of_another_topic(offset, consumed.topic_id):
            return
        position.processed_up_to(offset)
        if offset.offset == consumed.offset:
            del self.consumed[tp]
            self.held.discard(tp)

    def forget(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Keep nothing of these; return those of which the application held records."""
        gone = frozenset(partitions)
        self.processed = {tp: position for tp, position in self.processed.items() if tp not in gone}
        self.unprocessed = {tp: position for tp, position in self.unprocessed.items() if tp not in gone}
        self.consumed = {tp: position for tp, position in self.consumed.items() if tp not in gone}
        self.positions = {tp: position for tp, position in self.positions.items() if tp not in gone}
        held = self.held & gone
        self.held -= held
        return held
