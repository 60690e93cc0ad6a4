"""Which id of a recreated topic is the current one, while brokers learn one by one that the topic was recreated.

A topic is recreated. Broker 1 has heard of it, broker 2 has not. The client asks broker 1, and reads the new topic from
its beginning. Then it asks broker 2, which names another id. If the client took that for a recreated topic, too, it
would read from the beginning again; and once more after it had asked broker 1 again. Ids are random (KIP-516), so no id
is newer by itself. But no id comes back either. So a broker that names an id that the topic had before is behind.

A client that began with broker 1 has never seen the id that broker 2 names, and takes it for the newer one. It must not
keep the wrong id for ever. So it believes a former id again once several answers in a row have named it.

Only answers to a client that is in trouble count. With the wrong id it can't fetch, and so it has found what it knew
wrong. Or it lacks something, and nothing is sent that could be refused: the topic, a leader of the former topic, whose
broker is gone, or a partition that only the newer topic has. Nobody can tell by a partition that is lacking whether the
topic is the wrong one. So it counts that anything is lacking, of whichever topic.

One that reads the right topic and lacks nothing may hear for hours of the former one, from a broker that is cut off. If
it looks for another topic meanwhile, other brokers are asked in turn (UselessAnswers), and these know the right id.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Final, NamedTuple
from uuid import UUID

from .occasion import Occasion

#: The version of Metadata from which answers name topic ids, and that from which brokers take them in requests.
NAMED_FROM: Final = 10
ASKED_BY_FROM: Final = 12
#: How many former ids of one topic are remembered, and for how many topics.
_IDS: Final = 8
_TOPICS: Final = 1000
#: So many answers in a row take a second or more, with retry_backoff_ms between them. Brokers are behind by less.
_ENOUGH: Final = 10


class FormerIds(NamedTuple):
    """The former ids of a topic, the newest last, and how many answers that count have named one of them again."""

    ids: tuple[UUID, ...] = ()
    named_again: int = 0


_NONE: Final = FormerIds()


class TopicIds:
    """Judges the topic ids in one Metadata response. ``former``: the former ids of each topic that has any.

    ``occasion``: why the question was asked.
    """

    def __init__(self, former: Mapping[str, FormerIds], occasion: Occasion) -> None:
        self._again = occasion.again
        self._former: MutableMapping[str, FormerIds] = dict(former)

    def is_old(self, topic: str, known: UUID | None, named: UUID | None, *, exists: bool) -> bool:
        """Whether the snapshot must ignore an answer with the id ``named``, because the broker is behind.

        Otherwise ``named`` is the topic's id from now on. ``exists``: the old snapshot has the topic, id ``known``.
        """
        if named is None or (named == known and topic not in self._former):
            return False
        before = self._former.get(topic, _NONE)
        left = before.ids
        if not exists and left:
            *others, known = left  # the topic was gone for a while, or the last broker had not heard of it yet
            left = tuple(others)
        named_again = before.named_again + (self._again or not exists)
        if named in left and named != known and named_again < _ENOUGH:
            self._former[topic] = before._replace(named_again=named_again)
            return True
        self._keep(topic, [*(one for one in left if one != named), *([known] if known not in (None, named) else [])])
        return False

    def gone(self, topic: str, known: UUID | None) -> None:
        """The topic does not exist (any more), or the broker that was asked has not heard of it yet."""
        if known is not None:
            self._keep(topic, [*self._former.get(topic, _NONE).ids, known])

    def _keep(self, topic: str, ids: list[UUID | None]) -> None:
        self._former.pop(topic, None)
        if kept := tuple(one for one in ids if one is not None)[-_IDS:]:
            self._former[topic] = FormerIds(kept)

    def result(self) -> Mapping[str, FormerIds]:
        """Return the former ids to remember: of the topics that changed last, if there are too many."""
        while len(self._former) > _TOPICS:
            del self._former[next(iter(self._former))]
        return self._former
