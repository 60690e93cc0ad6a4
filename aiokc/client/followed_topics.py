"""Which topics a Client keeps its metadata of up to date: all that it was asked about, but those that are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..error_codes import ErrorCode
from .metadata import Metadata


class FollowedTopics:
    """Topics that calls are about. One stays when its call is done: the next one finds it in the picture already.

    A topic that the cluster does not know is looked for each second, since it may be about to be created. So it is
    followed only as long as a call waits for it: else a process that ever read it would ask for it for ever.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._in_use: Counter[str] = Counter()

    @contextmanager
    def following(self, topics: Iterable[str]) -> Iterator[None]:
        """Follow these topics, and meanwhile forget none of them."""
        wanted = frozenset(topics)
        self._in_use.update(wanted)
        try:
            self._metadata.follow((self._metadata.followed or frozenset()) | wanted)
            yield
        finally:
            self._in_use -= Counter(wanted)  # which keeps those above 0 only

    async def run(self) -> None:
        """Forget, for ever, what an answer says is gone and no call waits for."""
        while True:
            await self._metadata.changed.wait()
            errors, followed = self._metadata.cluster.errors, self._metadata.followed or frozenset()
            gone = {topic for topic in followed if errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            gone -= self._in_use.keys()
            if gone:
                self._metadata.follow(followed - gone)
