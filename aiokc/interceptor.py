"""Interceptors: who sees all records on their way to the user, and all commits, without being in the user's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .types import ConsumerRecord, ConsumerRecords, OffsetAndMetadata, TopicPartition


class ConsumerInterceptor:
    """Sees what a consumer returns and commits, for tracing, counting and filtering (KIP-42). Derive from it.

    Its methods are plain functions that run in the event loop, so they must be quick. An exception is logged, and
    nothing else comes of it. Several interceptors are called in the order of the option ``interceptors``.
    """

    def on_consume(
        self, records: ConsumerRecords[Any, Any]
    ) -> Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]]:
        """Return what the user is to get of ``records``: all, fewer, or others in their place, but not more.

        Called within getmany(), getone() or the iterator, before it returns; with one record in the latter two. What is
        left out counts as read: the position is behind it, and commits do not depend on it. A call of which nothing is
        left goes on waiting.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The group has stored these: by commit(), commit_soon(), auto-commit, in a rebalance or in stop()."""

    def close(self) -> None:
        """The consumer has stopped, after its last commit. Each consumer that the interceptor serves tells it once."""
