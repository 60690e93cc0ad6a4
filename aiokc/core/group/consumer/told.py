"""What the coordinator knows of a member by its heartbeats, and what the next heartbeat has to tell it (KIP-848)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from .events import Contents, Interests, TopicIdPartition


class Told:
    """What the coordinator has confirmed by its answers. After a failure it may know any of what was sent or none.

    So then the next heartbeat is a full one. A coordinator that has raised the member's epoch in an answer that was
    lost accepts a heartbeat of the epoch before only if that lists the partitions that the member owns. ``interests``
    is None where what it knows of them is in doubt.

    A coordinator refuses a heartbeat for one forbidden topic that it names, before it looks at the member: it neither
    prolongs the session nor says that it has ended. So after a refusal a heartbeat leaves the names out, and is a full
    one all the same. Once that is answered, the names are said again, with the next heartbeat that is due.
    """

    def __init__(self) -> None:
        self.interests: Interests | None = None
        self.names: frozenset[str] | None = None
        self._owned: frozenset[TopicIdPartition] | None = None
        self._refused: Interests | None = None  # for one of their names
        self._says_again = False  # the refused names, with the next heartbeat

    def forget(self) -> None:
        """What the coordinator knows is in doubt: the next heartbeat says everything."""
        self.interests = self._owned = None

    def start_over(self) -> None:
        """The coordinator knows nothing of the member, and has refused nothing."""
        self.forget()
        self.names = self._refused = None

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
        """Whether there is something to tell at once: what was not confirmed yet, but for names that were refused."""
        return self._lacks(self._without_refused(interests)) or owned != self._owned

    def contents(self, interests: Interests, owned: frozenset[TopicIdPartition]) -> Contents:
        """Return what a heartbeat has to tell."""
        said = interests if self._says_again else self._without_refused(interests)
        if self.says_everything:
            return Contents(said, owned, is_full=True)
        return Contents(said if self._lacks(said) else None, owned if owned != self._owned else None)

    def _without_refused(self, interests: Interests) -> Interests:
        return replace(interests, names=None) if interests == self._refused else interests

    def _lacks(self, said: Interests) -> bool:
        """Whether the coordinator has not confirmed this. Where it is in doubt, the next heartbeat says it anyway."""
        if said.names is not None:
            return said != self.interests
        return self.interests is not None and said.regex != self.interests.regex

    def refused(self, contents: Contents) -> None:
        """The coordinator has refused the heartbeat with ``contents``, for a topic that it names."""
        if contents.interests is not None and contents.interests.names is not None:
            self._refused, self._says_again = contents.interests, False

    def confirmed(self, contents: Contents) -> None:
        """The heartbeat with ``contents`` was answered. What it left out stays as it was confirmed before."""
        said = contents.interests
        if said is not None and said.names is not None:
            self.interests, self.names, self._refused = said, said.names, None
        elif said is not None and self.interests is not None:
            self.interests = replace(said, names=self.interests.names)
        if contents.owned is not None:
            self._owned = contents.owned
        self._says_again = self._refused is not None
