"""Whether the group leader's assignment is out of date: the partition counts that it is based on, and today's counts.

Only the group leader watches them, and only the counts matter: when another broker becomes leader of a partition, the
assignment stays. For a group leader with a rack, the brokers that have the replicas matter, too.
"""

from __future__ import annotations

from collections.abc import Mapping


class WatchedTopics:
    """``topics`` are those of the whole group while this member leads it; else there are none.

    A static leader that unsubscribes and comes back keeps the assignment of its generation (KIP-814). While it was
    away, no member watched the topics. So it compares today's counts with those that this assignment was based on, if
    it made the assignment itself. A new process cannot know them: it starts from the counts of the day, as Java does.
    """

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self._now: Mapping[str, object] | None = None  # not counted since this generation began
        self._assigned: Mapping[str, object] = {}
        self._assigned_in = -1  # the generation of the assignment that is based on ``_assigned``
        self._generation = -1
        self._keeps = False

    def begin(self, topics: frozenset[str], generation: int, *, keeps: bool) -> None:
        """This member leads from now on. ``keeps``: the group keeps the assignment that it has (KIP-814)."""
        self.topics = topics
        self._now = None
        self._generation, self._keeps = generation, keeps

    def end(self) -> None:
        self.topics = frozenset()

    def assigned(self, counts: Mapping[str, object]) -> None:
        """This leader's newest assignment is based on ``counts``. Counts that came meanwhile are newer.

        If the group keeps an assignment that this leader made before, that one is based on former counts.
        """
        if self._keeps and self._assigned_in == self._generation:
            self._now = counts
        else:
            self._assigned, self._assigned_in = counts, self._generation

    def counted(self, counts: Mapping[str, object]) -> None:
        self._now = counts

    @property
    def out_of_date(self) -> bool:
        """Whether the topics have changed since this leader's assignment."""
        return bool(self.topics) and self._now is not None and self._now != self._assigned
