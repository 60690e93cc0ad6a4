"""Which of a topic's ids is the one of now, where brokers learn one by one that it was deleted and created again.

A topic is created again; broker 1 has heard of it, broker 2 has not. The client asks 1 and goes on with the new topic,
from its beginning. Then it asks 2: another id than the one that it reads, so created again, so from the beginning; and
then 1, and from the beginning once more. Ids are random (KIP-516): none is newer by itself, but none comes back either.
So an id that a topic has left is an old broker's word.

A client that began with 1 can't know that, when it asks 2: the id is new to it. It must not hold to that for ever. So
an id that was left is believed again once several answers in a row have named it: nothing can be fetched by the wrong
one, which makes the client ask again and again, while one that reads the right topic has no reason to.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Final, NamedTuple
from uuid import UUID

#: How many ids of a topic are remembered, and of how many topics.
_IDS: Final = 8
_TOPICS: Final = 1000
#: So many answers in a row take a second or more, retry_backoff_ms being between them; brokers lag by less.
_ENOUGH: Final = 10


class FormerIds(NamedTuple):
    """The ids that a topic had, the newest last; and how many answers in a row have named one of them again."""

    ids: tuple[UUID, ...] = ()
    named_again: int = 0


_NONE: Final = FormerIds()


class TopicIds:
    """What the ids in one Metadata response mean. ``former`` are those of before, of topics that have any."""

    def __init__(self, former: Mapping[str, FormerIds]) -> None:
        self._former: MutableMapping[str, FormerIds] = dict(former)

    def is_old(self, topic: str, known: UUID | None, named: UUID | None, *, exists: bool) -> bool:
        """Whether an answer that names this id is to be passed over. ``exists``: the topic did, with the id ``known``.

        Where it is not, ``named`` is the topic's id from now on.
        """
        if named is None or (named == known and topic not in self._former):
            return False
        before = self._former.get(topic, _NONE)
        left = before.ids
        if not exists and left:
            *others, known = left  # it was gone for a while, or the last broker had not heard of it yet
            left = tuple(others)
        if named in left and named != known and before.named_again + 1 < _ENOUGH:
            self._former[topic] = before._replace(named_again=before.named_again + 1)
            return True
        self._keep(topic, [*(one for one in left if one != named), *([known] if known not in (None, named) else [])])
        return False

    def gone(self, topic: str, known: UUID | None) -> None:
        """The topic does not exist, or does not yet for the broker that was asked."""
        if known is not None:
            self._keep(topic, [*self._former.get(topic, _NONE).ids, known])

    def _keep(self, topic: str, ids: list[UUID | None]) -> None:
        self._former.pop(topic, None)
        if kept := tuple(one for one in ids if one is not None)[-_IDS:]:
            self._former[topic] = FormerIds(kept)

    def result(self) -> Mapping[str, FormerIds]:
        """Return what is to be remembered: of the topics that something happened to last, if they are too many."""
        while len(self._former) > _TOPICS:
            del self._former[next(iter(self._former))]
        return self._former
