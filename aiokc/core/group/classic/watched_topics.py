"""What the leader of a group watches: the partition counts that its assignment is based on, and those there are now.

Only the leader does, and only counts matter to it: a partition that another broker leads stays where it is. For a
leader with a rack, the places of the replicas matter too.
"""

from __future__ import annotations

from collections.abc import Mapping


class WatchedTopics:
    """``topics`` are those of the whole group while this member leads it, and none else."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self._now: Mapping[str, object] | None = None  # not counted since this generation began
        self._assigned: Mapping[str, object] = {}

    def begin(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._now = None

    def end(self) -> None:
        self.topics = frozenset()

    def assigned(self, counts: Mapping[str, object]) -> None:
        """This leader's newest assignment is based on ``counts``. What was counted meanwhile is newer."""
        self._assigned = counts

    def counted(self, counts: Mapping[str, object]) -> None:
        self._now = counts

    @property
    def out_of_date(self) -> bool:
        """Whether the assignment of this leader fits the topics no more."""
        return bool(self.topics) and self._now is not None and self._now != self._assigned
