"""What a group coordinator needs to know about topics."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol
from uuid import UUID


class TopicLookup(Protocol):
    """The topics of the cluster."""

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, None if there is none."""

    def id_of(self, name: str) -> UUID:
        """Return the id of a topic; the zero id if there is no such topic."""

    def has_partition(self, name: str, index: int) -> bool:
        """Return whether this partition exists."""

    def size_of(self, name: str) -> int:
        """Return how many partitions a topic has; 0 if there is no such topic."""

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
