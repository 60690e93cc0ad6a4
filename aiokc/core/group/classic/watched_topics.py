"""Whether the group leader's assignment is out of date: the partition counts that it is based on, and today's counts.

Only the group leader watches them, and only the counts matter: when another broker becomes leader of a partition, the
assignment stays. For a group leader with a rack, the brokers that have the replicas matter, too.
"""

from __future__ import annotations

from collections.abc import Mapping


class WatchedTopics:
    """``topics`` are those of the whole group while this member leads it; else there are none."""

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
        """This leader's newest assignment is based on ``counts``. Counts that came meanwhile are newer."""
        self._assigned = counts

    def counted(self, counts: Mapping[str, object]) -> None:
        self._now = counts

    @property
    def out_of_date(self) -> bool:
        """Whether the topics have changed since this leader's assignment."""
        return bool(self.topics) and self._now is not None and self._now != self._assigned
