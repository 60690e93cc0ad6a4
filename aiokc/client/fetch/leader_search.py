"""LeaderSearch: asks for metadata, after growing pauses, while partitions that are to be fetched have no leader."""

from __future__ import annotations

import logging
from collections.abc import Collection

from ...core.backoff import Backoff
from ...types import TopicPartition
from ..cluster.leaderless import LeaderlessReport
from ..cluster.metadata import Metadata


class LeaderSearch:
    """The search of one Fetcher, which warns by ``logger`` where it lasts."""

    def __init__(self, metadata: Metadata, pauses: Backoff, logger: logging.Logger) -> None:
        self._metadata, self._pauses = metadata, pauses
        self._report = LeaderlessReport(logger)
        self._next = 0.0

    def go_on(self, partitions: Collection[TopicPartition], now: float) -> float:
        """These have no leader: ask for metadata, if that is due. Return when to go on."""
        if now >= self._next:
            self._metadata.request_missing()
            self._next = now + self._pauses.next()
            self._report.searched(partitions, self._metadata.cluster, now, self._next)
        return self._next

    def over(self) -> None:
        """All have a leader."""
        self._pauses.reset()
        self._report.over()
