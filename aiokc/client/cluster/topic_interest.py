"""Who wants to be told of which topics: what the metadata keep up to date is what all of these want together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType


class TopicInterest:
    """The topics that one owner wants to be kept up to date: its own, whatever others want.

    It wants nothing until ``set``, and nothing any more after ``close``, as at the end of a ``with`` block.
    ``may_create``: whether brokers may create a topic because of it, as far as config allows that. Who reads a topic
    may; who only has a look at it may not, or a topic that was deleted a moment ago is back by that look.
    """

    def __init__(self, all_of_them: Interests, *, may_create: bool) -> None:
        self.may_create = may_create
        self.topics: frozenset[str] | None = frozenset()
        self._all = all_of_them

    def set(self, topics: Iterable[str] | None) -> None:
        """Want these topics from now on, in the place of those before; None: all that there are."""
        self._all.change(self, None if topics is None else frozenset(topics))

    def close(self) -> None:
        """Want nothing any more."""
        self._all.remove(self)

    def __enter__(self) -> TopicInterest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Interests:
    """All interests in the topics of one cluster. ``news`` is called when they want what none wanted before."""

    def __init__(self, news: Callable[[], None]) -> None:
        self.topics: frozenset[str] | None = frozenset()
        self._news = news
        self._open: list[TopicInterest] = []

    @property
    def creatable(self) -> frozenset[str]:
        """Those of ``topics`` that brokers may create, for one of their owners at least."""
        return frozenset().union(*(interest.topics or () for interest in self._open if interest.may_create))

    def change(self, interest: TopicInterest, topics: frozenset[str] | None) -> None:
        if interest not in self._open:
            self._open.append(interest)
        elif topics == interest.topics:
            return
        may_be_created = interest.may_create and not (topics or frozenset()) <= self.creatable
        interest.topics = topics
        self._add_up(may_be_created)

    def remove(self, interest: TopicInterest) -> None:
        if interest in self._open:
            self._open.remove(interest)
            self._add_up(False)

    def _add_up(self, is_news: bool) -> None:
        before = self.topics
        wanted = [interest.topics for interest in self._open]
        self.topics = None if None in wanted else frozenset().union(*(topics or () for topics in wanted))
        is_more = before is not None and (self.topics is None or not self.topics <= before)
        if is_news or is_more:
            self._news()
