"""Which topics a Client keeps its metadata of up to date: those of calls in progress, and of recent calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ...config import ClusterConfig
from ...error_codes import ErrorCode
from .metadata import Metadata


class FollowedTopics:
    """The topics of a Client's calls. A topic stays for a while after its call: the next call finds it up to date.

    A topic that no call was about for ``metadata_max_age_ms`` goes with the next refresh: a process that lives long and
    looks at many topics must not ask for all of them for ever. A topic that the cluster does not know goes as soon as
    no call waits for it: the metadata look for such a topic each second, since it may be about to be created.
    """

    def __init__(self, config: ClusterConfig, metadata: Metadata) -> None:
        self._keep = config.metadata_max_age_ms / 1e3
        self._metadata = metadata
        self._interest = metadata.interest()
        self._in_use: Counter[str] = Counter()
        self._used_at: dict[str, float] = {}

    @contextmanager
    def following(self, topics: Iterable[str]) -> Iterator[None]:
        """Follow these topics, at least until the ``with`` block ends."""
        wanted = frozenset(topics)
        time = asyncio.get_running_loop().time
        self._in_use.update(wanted)
        try:
            self._used_at.update(dict.fromkeys(wanted, time()))
            self._interest.set(self._used_at)
            yield
        finally:
            self._in_use -= Counter(wanted)  # drops the topics whose count is 0
            self._used_at.update(dict.fromkeys(wanted, time()))

    async def run(self) -> None:
        """After each refresh, drop the topics without a call that the cluster lacks, or that were long unused."""
        loop = asyncio.get_running_loop()
        while True:
            await self._metadata.changed.wait()
            errors, long_ago = self._metadata.cluster.errors, loop.time() - self._keep
            for topic, used_at in list(self._used_at.items()):
                is_gone = errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if (is_gone or used_at <= long_ago) and topic not in self._in_use:
                    del self._used_at[topic]
            self._interest.set(self._used_at)
