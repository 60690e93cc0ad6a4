"""LeaderlessReport: warns of partitions that go on having no leader, and says so in the words of an error."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

from ...core.cluster.snapshot import Cluster
from ...core.rate_limit import RateLimit
from ...error_codes import ErrorCode
from ...errors import BrokerError, broker_error
from ...types import TopicPartition, named

# An election takes less. A partition whose only replica is restarted has no leader for longer.
_PATIENCE: Final = 2.0
_SECONDS: Final = 30.0


class LeaderlessReport:
    """Of one search for leaders: warns of all partitions in one line once it lasts, and every 30 s from then on."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger, self._limit = logger, RateLimit(_SECONDS)
        self._since: float | None = None

    def searched(self, partitions: Collection[TopicPartition], cluster: Cluster, now: float) -> None:
        """The metadata were asked for the leaders of these ``partitions``: by ``cluster`` they have none."""
        if self._since is None:
            self._since = now
        if now - self._since < _PATIENCE:
            return
        lacking = _of_known_topics(partitions, cluster)
        if lacking and self._limit.admit(None, now) is not None:
            self._logger.warning("%s: no leader; looking again until there is one", named(lacking))

    def over(self) -> None:
        """All partitions have a leader."""
        self._since = None


def no_leader(partitions: Iterable[TopicPartition], cluster: Cluster) -> BrokerError | None:
    """Return the error that names those of ``partitions`` without a leader; None where each has one."""
    topics, brokers = cluster.topics, cluster.brokers
    lacking: list[TopicPartition] = []
    for tp in partitions:
        info = topic.partitions.get(tp.partition) if (topic := topics.get(tp.topic)) is not None else None
        if info is None or info.leader not in brokers:
            lacking.append(tp)
    known = _of_known_topics(lacking, cluster)
    return broker_error(ErrorCode.LEADER_NOT_AVAILABLE, f"no broker leads {named(known)}") if known else None


def _of_known_topics(partitions: Iterable[TopicPartition], cluster: Cluster) -> list[TopicPartition]:
    """Those whose topic exists: of the others the metadata warn by themselves, and Health has ``missing_topics``."""
    return [tp for tp in partitions if tp.topic in cluster.topics]
