"""Topics that a group's coordinator does not know: the metadata say whether they were deleted, or are new to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from uuid import UUID

from ...core.offsets.verdicts import TOPIC_NOT_KNOWN
from ...core.subscription.position import is_of_another_topic
from ...types import OffsetAndMetadata, TopicPartition
from ..cluster.metadata import Metadata


class UnknownTopics:
    """Looks at topics whose offsets the coordinator has refused because it does not know them.

    They are followed until ``follow_only`` leaves them out, or the ``with`` block ends. The application may have left
    them by then, and nothing else asks for them: the metadata would go on telling what they were before, or tell
    nothing.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.topics: frozenset[str] = frozenset()
        self._interest = metadata.interest()

    def follow(self, topics: Iterable[str]) -> None:
        """The coordinator does not know these: ask for them, from here on."""
        self._set(self.topics.union(topics))

    def follow_only(self, topics: Iterable[str]) -> None:
        """Of those that are followed, the others are of no interest any more."""
        self._set(self.topics.intersection(topics))

    def _set(self, topics: frozenset[str]) -> None:
        if topics != self.topics:
            self.topics = topics
            self._interest.set(topics)

    def all_gone(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], current_id: Callable[[str], UUID | None]
    ) -> bool:
        """Whether all ``offsets`` are of topics that do not exist any more. Topics of the same names may."""
        return all(
            self.is_gone(tp.topic) or is_of_another_topic(offset, current_id(tp.topic))
            for tp, offset in offsets.items()
        )

    def is_gone(self, topic: str) -> bool:
        """Whether the newest metadata cover ``topic``, and say that it does not exist."""
        cluster = self._metadata.cluster
        code = cluster.errors.get(topic)
        return topic not in cluster.topics and (cluster.complete if code is None else code in TOPIC_NOT_KNOWN)

    def __enter__(self) -> UnknownTopics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interest.close()
