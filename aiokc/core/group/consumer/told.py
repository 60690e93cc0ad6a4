"""What the coordinator knows of a member by its heartbeats, and what the next heartbeat has to tell it (KIP-848)."""

from __future__ import annotations

from collections.abc import Set

from .events import KEEPALIVE, Contents, Interests, TopicIdPartition


class Told:
    """What the coordinator has confirmed by its answers. After a failure it may know any of what was sent or none.

    So then the next heartbeat is a full one. A coordinator that has raised the member's epoch in an answer that was
    lost accepts a heartbeat of the epoch before only if that lists the partitions that the member owns. ``interests``
    is None where what it knows of them is in doubt.
    """

    def __init__(self) -> None:
        self.interests: Interests | None = None
        self._owned: frozenset[TopicIdPartition] | None = None

    def forget(self) -> None:
        """What the coordinator knows is in doubt: the next heartbeat says everything."""
        self.interests = self._owned = None

    def doubt_owned(self) -> None:
        """The next heartbeat says everything, so that its answer has the whole assignment again."""
        self._owned = None

    @property
    def says_everything(self) -> bool:
        """Whether the next heartbeat says everything."""
        return self.interests is None or self._owned is None

    def knows(self, interests: Interests) -> bool:
        """Whether the coordinator has confirmed that the member subscribes to these."""
        return interests == self.interests

    def is_news(self, interests: Interests, owned: Set[TopicIdPartition]) -> bool:
        """Whether the coordinator has not confirmed these yet."""
        return interests != self.interests or owned != self._owned

    def contents(self, interests: Interests, owned: frozenset[TopicIdPartition]) -> Contents:
        """Return what a heartbeat has to tell."""
        if self.says_everything:
            return Contents(interests, owned, is_full=True)
        if not self.is_news(interests, owned):
            return KEEPALIVE
        return Contents(interests if interests != self.interests else None, owned if owned != self._owned else None)

    def confirmed(self, contents: Contents) -> None:
        """The heartbeat with ``contents`` was answered. What it left out stays as it was confirmed before."""
        if contents.interests is not None:
            self.interests = contents.interests
        if contents.owned is not None:
            self._owned = contents.owned
