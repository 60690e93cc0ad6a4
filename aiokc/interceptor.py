"""The base classes of interceptors: an application's hooks that see all records and commits, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .types import (
    ConsumerRecord,
    ConsumerRecords,
    HeadersToSend,
    OffsetAndMetadata,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
)


class ConsumerInterceptor:
    """Sees what a consumer returns and commits, for tracing, counting and filtering (KIP-42). Derive from it.

    Its methods are plain functions that run on the event loop, so they must be quick. The consumer logs their
    exceptions and goes on. It calls several interceptors in the order of the option ``interceptors``.
    """

    def on_consume(
        self, records: ConsumerRecords[Any, Any]
    ) -> Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]]:
        """Return what the application gets of ``records``: all, fewer, or others in their place, but not more.

        getmany(), getone() and the iterator call it before they return; the latter two with one record. A record that
        is left out counts as read: the position is behind it, and commits include it. If nothing is left, the call goes
        on waiting.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called when the group has stored ``offsets``: by a call, by auto-commit, in a rebalance or in stop().

        Not called for a commit that fails, also where some of its offsets are stored.
        """

    def close(self) -> None:
        """Called when the consumer has stopped, after its last commit: once by each consumer that the object serves."""


class ProducerInterceptor:
    """Sees what a producer sends, and what became of it, for tracing, counting and headers (KIP-42). Derive from it.

    Its methods are plain functions that run on the event loop, so they must be quick. The producer logs their
    exceptions and goes on. It calls several interceptors in the order of the option ``interceptors``.
    """

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Return the record to send: this one, or another one in its place, such as ``record._replace(headers=...)``.

        It is called with what the application gave: before the serializers, and before a partition is chosen.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: HeadersToSend, /) -> None:
        """Called when the fate of a record is known, before the application's own callback.

        ``error`` is None for a record that the brokers have acknowledged. Otherwise ``metadata.offset`` is None, and
        ``metadata.partition`` is -1 if the record failed before it had one. A send() that is cancelled before it has
        appended its record is such a failure, too. ``headers`` are those that were sent (KIP-512).
        """

    def close(self) -> None:
        """Called when the producer has stopped, after its last acknowledgement: once by each producer it serves."""
