"""Decides before each attempt whether a commit may still be sent, and in the name of which member."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from ...core.group.events import MemberToken
from ...core.group.machine import GroupMachine
from ...core.subscription.position import PartitionPosition
from ...core.subscription.state import Subscription
from ...error_codes import ErrorCode
from ...errors import CommitFailed
from ...types import OffsetAndMetadata, TopicPartition
from .group_offsets import AsOfItsSlot, Offsets

#: The position of each partition to commit when the commit was called for: the same object for as long as the member
#: holds the partition.
HeldPositions: TypeAlias = Mapping[TopicPartition, PartitionPosition | None]


class CommitGate:
    """The last look at a commit before each attempt to send it.

    Other places refuse commits earlier: UserCommits what is not this member's at the time of the call, GroupOffsets
    what a later commit has stored, Commit what belongs to a former topic, or to one that is not assigned yet, the
    machine's ``commit_token`` those of a consumer outside its group.
    """

    def __init__(
        self, group_id: str, machine: GroupMachine, subscription: Subscription, follows_epochs: Callable[[], bool]
    ) -> None:
        """``follows_epochs``: see GroupProtocol. It may change once, when "auto" has chosen a protocol."""
        self._group_id = group_id
        self._machine = machine
        self._subscription = subscription
        self._follows_epochs = follows_epochs

    def held(self, partitions: Iterable[TopicPartition]) -> HeldPositions:
        """The positions of ``partitions``: the same objects until the member gives the partitions up."""
        return {tp: self._subscription.hold(tp) for tp in partitions}

    def holding(self, offsets: Offsets) -> tuple[Offsets, HeldPositions]:
        """Return the offsets with the positions to which they belong; those of a function once it was called."""
        if not callable(offsets):
            return offsets, self.held(offsets)
        held: dict[TopicPartition, PartitionPosition | None] = {}

        def tell() -> Mapping[TopicPartition, OffsetAndMetadata]:
            told = offsets()
            held.update(self.held(told))
            return told

        return (AsOfItsSlot(tell) if isinstance(offsets, AsOfItsSlot) else tell), held

    def now(
        self, member: MemberToken | None, held: HeldPositions, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> MemberToken | None:
        """Return the member in whose name a commit that was called for as ``member`` goes out now.

        A commit names the generation in which it was called for. Once that is over, its partitions may have new owners,
        and this raises CommitFailed. A protocol that follows epochs (KIP-848) raises the epoch also of partitions that
        stay. There a commit goes out in the newest epoch.

        In both protocols the partitions must have been this member's all the time. The coordinator takes any partition
        from a member of its newest generation, one that it has given up, too. A classic member meets that in a group of
        the consumer protocol: it subscribes to less, joins again, and the coordinator hands on the partition without a
        new generation. The commit would undo that of the new owner.
        """
        if member is None:
            return None
        current = self._machine.commit_token()
        by_topics = self._subscription.by_topics
        is_same = current == member or (by_topics and self._follows_epochs())
        if by_topics:
            is_same = is_same and all(self._subscription.hold(tp) is held.get(tp) for tp in offsets)
        if not is_same:
            raise CommitFailed(
                ErrorCode.ILLEGAL_GENERATION,
                f"group {self._group_id!r} has assigned its partitions anew since this commit was called for "
                f"{member}: commit what is assigned now",
            )
        return current

    def is_assigned_otherwise(self, tp: TopicPartition, offset: OffsetAndMetadata) -> bool:
        """Whether the coordinator has assigned ``tp`` to this member by another topic id than that of ``offset``.

        The partition of the topic that ``offset`` belongs to may be another member's then, and the coordinator takes
        its offsets from every member of the group.
        """
        if not self._subscription.by_topics:
            return False
        position = self._subscription.hold(tp)
        return position is not None and position.is_assigned_by_another_id_than(offset.topic_id)
