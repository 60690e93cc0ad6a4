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

# An election takes less. A partition whose only replica is restarted has no leader for longer. And what is not looked
# for again so many seconds after that was due has a leader, or nobody wants it any more.
_PATIENCE: Final = 2.0
_SECONDS: Final = 30.0


class LeaderlessReport:
    """Of one search for leaders: warns of those that lack one for long in one line, and every 30 s from then on.

    Each partition counts by itself: a search goes on while there is a partition that never has a leader, such as one of
    a deleted topic, and elections of others come and go beside it.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger, self._limit = logger, RateLimit(_SECONDS)
        self._lacking: dict[TopicPartition, tuple[float, float]] = {}  # since when; until when that is known

    def searched(
        self, partitions: Collection[TopicPartition], cluster: Cluster, now: float, next_search: float
    ) -> None:
        """The metadata were asked for the leaders of these ``partitions``: by ``cluster`` they have none.

        They, and maybe others, will be looked for again at ``next_search``, if they still have none by then.
        """
        known = {tp: (since, until) for tp, (since, until) in self._lacking.items() if until >= now}
        lasting: list[TopicPartition] = []
        for tp in _of_known_topics(partitions, cluster):
            since, _ = known.get(tp, (now, now))
            known[tp] = since, next_search + _PATIENCE
            if now - since >= _PATIENCE:
                lasting.append(tp)
        self._lacking = known
        if lasting and self._limit.admit(None, now) is not None:
            self._logger.warning("%s: no leader; looking again until there is one", named(lasting))

    def over(self) -> None:
        """All have a leader: what lacks one from now on has lacked it since then."""
        self._lacking = {}


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
