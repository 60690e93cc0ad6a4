"""Standstill: which partitions should bring records now, and have none; StallWatch (core/fetch) says for how long."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from ...config import ClientConfig
from ...core.counters import FetchCounters
from ...core.fetch.buffer import FetchBuffer
from ...core.fetch.planner import FetchPlanner
from ...core.fetch.refusals import FetchRefusals
from ...core.fetch.stall_watch import patience
from ...core.subscription.position import PartitionPosition
from ...errors import RecordError
from ...net.pool import Pool
from ...types import TopicPartition
from ..cluster.metadata import Metadata
from .collector import FetchCollector


class Standstill:
    """What a Fetcher's parts know of it. ``busy`` is a live view of the brokers that have a Fetch in flight."""

    def __init__(
        self,
        config: ClientConfig,
        pool: Pool,
        metadata: Metadata,
        buffer: FetchBuffer,
        planner: FetchPlanner,
        collector: FetchCollector,
        refusals: FetchRefusals,
        counters: FetchCounters,
        busy: Collection[int],
    ) -> None:
        self._pool = pool
        self._metadata = metadata
        self._buffer = buffer
        self._planner = planner
        self._collector = collector
        self._refusals = refusals
        self._counters = counters
        self._busy = busy
        self._patience = patience(config)

    def holds(self, tp: TopicPartition, position: PartitionPosition, lag: int | None, now: float) -> bool:
        """Whether ``tp`` should bring records and has none, though no broker, no want of room and no user is the cause.

        It is the cause that matters: what ends by itself, or with a broker's return, is no stall. Nor is a partition
        that waits for its turn: while a broker has more than an answer may bring, it serves partitions one after the
        other, which may take minutes over a slow network.
        """
        if not lag or position.held or not position.fetchable:
            return False
        if self._collector.is_unreadable(tp, position):
            return True
        buffer = self._buffer.of(tp)
        if buffer is not None and buffer.token == position.token:
            if isinstance(buffer.error, RecordError) and buffer.at_error:
                return True
            if buffer.refused is not None or not buffer.empty:
                return buffer.refused is not None
        if position.retry_at > now or self._refusals.of(tp, position.token, now) is not None:
            return False
        if self._collector.resume_at is not None:
            return False
        leader = self._metadata.cluster.leader(tp)
        node_id = leader.node_id if position.read_replica is None and leader is not None else position.read_replica
        return node_id is not None and self._brings_nothing(node_id, now)

    def _brings_nothing(self, node_id: int, now: float) -> bool:
        """Whether a broker is well, and leaves out what it is asked for, or is not asked at all."""
        if node_id not in self._busy:
            return self._pool.prompt_connection(node_id) is not None
        is_heard = now - self._counters.heard.get(node_id, -inf) < self._patience
        return is_heard and self._planner.had_room(node_id)
