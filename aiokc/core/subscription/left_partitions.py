"""What the application may still commit of the partitions that it has left by assign() or unsubscribe()."""

from __future__ import annotations

from collections.abc import Collection

from ...types import OffsetAndMetadata, TopicPartition
from .position import is_of_another_topic


class LeftPartitions:
    """Each entry stays until its offset is committed, or the group has taken the partition over (``forget``).

    processed  what auto-commit may store
    consumed   what commit() without arguments stores, after unsubscribe()
    held       the partitions of which the application held records when it unsubscribed
    """

    def __init__(self) -> None:
        self.processed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.held: set[TopicPartition] = set()

    def committed(self, tp: TopicPartition, offset: OffsetAndMetadata) -> None:
        """Note that a commit of ``offset`` succeeded."""
        self.processed.pop(tp, None)
        consumed = self.consumed.get(tp)
        if consumed == offset and not is_of_another_topic(offset, consumed.topic_id):
            del self.consumed[tp]
            self.held.discard(tp)

    def forget(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Keep nothing of these; return those of which the application held records."""
        for tp in partitions:
            self.processed.pop(tp, None)
            self.consumed.pop(tp, None)
        held = self.held.intersection(partitions)
        self.held -= held
        return held
