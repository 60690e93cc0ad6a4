"""Standstill: which partitions should bring records, and have none; StallWatch (core/fetch) says for how long."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from ...config import ClientConfig
from ...core.counters import FetchCounters
from ...core.fetch.buffer import FetchBuffer
from ...core.fetch.planner import FetchPlanner
from ...core.fetch.refusals import FetchRefusals
from ...core.fetch.stall_watch import NO_TURN, SILENT, UNKNOWN, Turn, patience
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

    def of(self, tp: TopicPartition, position: PartitionPosition, lag: int | None, now: float) -> Turn | None:
        """What ``tp`` may wait for, which should bring records and has none; None where it does not stand still.

        UNKNOWN where that can't be told now, since the buffer is full, and SILENT where its broker has been for long.

        It is the cause that matters: what a user or want of room causes, and what ends by itself, or with a broker's
        return, is no stall. Nor is a partition that waits for its turn: while a broker has more than an answer may
        bring, it serves partitions one after the other, which may take minutes over a slow network.
        """
        if not lag or position.held or not position.fetchable:
            return None
        if self._collector.is_unreadable(tp, position):
            return NO_TURN
        buffer = self._buffer.of(tp)
        if buffer is not None and buffer.token == position.token:
            if isinstance(buffer.error, RecordError) and buffer.at_error:
                return NO_TURN
            if buffer.refused is not None or not buffer.empty:
                return None if buffer.refused is None else NO_TURN
        if position.retry_at > now or self._refusals.of(tp, position.token, now) is not None:
            return None
        if self._collector.resume_at is not None:
            return UNKNOWN
        leader = self._metadata.cluster.leader(tp)
        node_id = leader.node_id if position.read_replica is None and leader is not None else position.read_replica
        return None if node_id is None else self._left_out(node_id, now)

    def _left_out(self, node_id: int, now: float) -> Turn | None:
        """What is left out may wait for this where the broker is well. None: it is not, or may not be."""
        if node_id not in self._busy:  # so it is not even asked
            return None if self._pool.prompt_connection(node_id) is None else NO_TURN
        is_heard = now - self._counters.heard.get(node_id, -inf) < self._patience
        return self._planner.turn(node_id) if is_heard else SILENT
