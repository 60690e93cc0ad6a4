"""Which topics each part of a client wants metadata of; the metadata keep the union of them up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from uuid import UUID


class TopicInterest:
    """The topics that one owner wants metadata of, independent of other owners.

    They are none until ``set``, and none after ``close`` or the end of a ``with`` block. ``may_create``: whether
    brokers may create a topic because of this interest, as far as the config allows it. A consumer that reads a topic
    may have it created; a call that only looks at a topic may not: it would bring back a topic that was just deleted.
    """

    def __init__(self, all_of_them: Interests, *, may_create: bool) -> None:
        self.may_create = may_create
        self.topics: frozenset[str] | None = frozenset()
        self.topic_ids: frozenset[UUID] = frozenset()
        self._all = all_of_them

    def set(self, topics: Iterable[str] | None, topic_ids: Iterable[UUID] = ()) -> None:
        """Want these topics from now on, in place of those before; None: all topics of the cluster.

        ``topic_ids`` are those of topics whose names the owner does not know (KIP-516).
        """
        self._all.change(self, None if topics is None else frozenset(topics), frozenset(topic_ids))

    def close(self) -> None:
        """Want no topics any more."""
        self._all.remove(self)

    def __enter__(self) -> TopicInterest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Interests:
    """All interests in the topics of one cluster.

    Calls ``changed`` when an interest has changed. Its argument says whether an owner wants a topic that none wanted
    before, or that none let brokers create before.
    """

    def __init__(self, changed: Callable[[bool], None]) -> None:
        self.topics: frozenset[str] | None = frozenset()
        self.topic_ids: frozenset[UUID] = frozenset()
        self._changed = changed
        self._open: list[TopicInterest] = []

    @property
    def creatable(self) -> frozenset[str]:
        """The topics that brokers may create, because at least one of their owners says so."""
        return frozenset().union(*(interest.topics or () for interest in self._open if interest.may_create))

    def change(self, interest: TopicInterest, topics: frozenset[str] | None, topic_ids: frozenset[UUID]) -> None:
        if interest not in self._open:
            self._open.append(interest)
        elif (topics, topic_ids) == (interest.topics, interest.topic_ids):
            return
        may_be_created = interest.may_create and not (topics or frozenset()) <= self.creatable
        interest.topics, interest.topic_ids = topics, topic_ids
        self._add_up(may_be_created)

    def remove(self, interest: TopicInterest) -> None:
        if interest in self._open:
            self._open.remove(interest)
            self._add_up(False)

    def _add_up(self, is_news: bool) -> None:
        before, ids_before = self.topics, self.topic_ids
        wanted = [interest.topics for interest in self._open]
        self.topics = None if None in wanted else frozenset().union(*(topics or () for topics in wanted))
        self.topic_ids = frozenset().union(*(interest.topic_ids for interest in self._open))
        is_more = before is not None and (self.topics is None or not self.topics <= before)
        is_more = is_more or not self.topic_ids <= ids_before
        self._changed(is_news or is_more)
