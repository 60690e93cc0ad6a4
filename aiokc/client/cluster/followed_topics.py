"""Which topics a Client keeps its metadata of up to date: those that it was asked about lately, and that are there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ...config import ClientConfig
from ...error_codes import ErrorCode
from .metadata import Metadata


class FollowedTopics:
    """Topics that calls are about. One stays for a while when its call is done: the next call finds it up to date.

    What nobody has asked about for ``metadata_max_age_ms`` goes with the next refresh: a process that lives long and
    looks at many topics must not ask for all of them for ever. A topic that the cluster does not know is looked for
    each second, since it may be about to be created. So it is followed only as long as a call waits for it.
    """

    def __init__(self, config: ClientConfig, metadata: Metadata) -> None:
        self._keep = config.metadata_max_age_ms / 1e3
        self._metadata = metadata
        self._interest = metadata.interest()
        self._in_use: Counter[str] = Counter()
        self._used_at: dict[str, float] = {}

    @contextmanager
    def following(self, topics: Iterable[str]) -> Iterator[None]:
        """Follow these topics, and meanwhile forget none of them."""
        wanted = frozenset(topics)
        time = asyncio.get_running_loop().time
        self._in_use.update(wanted)
        try:
            self._used_at.update(dict.fromkeys(wanted, time()))
            self._interest.set(self._used_at)
            yield
        finally:
            self._in_use -= Counter(wanted)  # which keeps those above 0 only
            self._used_at.update(dict.fromkeys(wanted, time()))

    async def run(self) -> None:
        """Forget, for ever, what no call waits for, and what is gone by an answer or was not asked about for long."""
        loop = asyncio.get_running_loop()
        while True:
            await self._metadata.changed.wait()
            errors, long_ago = self._metadata.cluster.errors, loop.time() - self._keep
            for topic, used_at in list(self._used_at.items()):
                is_gone = errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if (is_gone or used_at <= long_ago) and topic not in self._in_use:
                    del self._used_at[topic]
            self._interest.set(self._used_at)
