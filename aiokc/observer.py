"""The interfaces for observers: objects of an application that hear of batches, commits, rebalances, transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from .types import ConsumerRecord, OffsetAndMetadata, TopicPartition

#: What happened to the assignment: partitions came, were given up in order, or were taken away.
RebalanceKind: TypeAlias = Literal["assigned", "revoked", "lost"]

#: Inside ``Observer.batch()``: how many seconds ago the call for records ended. It is 0 unless the report had to wait.
told_after: Final[ContextVar[float]] = ContextVar("aiokc.told_after", default=0.0)


@runtime_checkable
class Observer(Protocol):
    """Hears what a consumer has done, once for each batch, for histograms and traces. Derive from it, or not.

    It is the option ``observer``, or joins later by ``Consumer.observe()``. Its methods are plain functions that run on
    the event loop, so they must be quick; they get what the application gets, and must not change it. The consumer logs
    what they raise, and goes on. Counters and gauges need no observer: ``Consumer.metrics()`` has them.

    It may have an attribute ``least_seconds``: calls for records that took less are not told to ``batch()``, unless
    they raised. Most calls find their records in memory, in microseconds, and a histogram of waits has no use for them.
    The consumer reads it in observe(); to change it, call that again.
    """

    def batch(
        self,
        partitions: Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]],
        count: int,
        seconds: float,
        error: Exception | None,
    ) -> None:
        """A call for records has returned ``count`` records after ``seconds``, or has raised ``error`` (count 0).

        ``partitions`` holds the records by partition; with getmany_columns() the partitions alone, with empty lists. A
        call that returns nothing is not reported, nor is one that is cancelled or ends because the consumer stops.
        getone() and the iterator hand out many records of one batch: those are reported together, when the next batch
        is asked for or the consumer stops. The report then runs in a copy of the context (``contextvars``) in which the
        first of them was asked for, and ``aiokc.observer.told_after`` says how many seconds ago that call ended.
        """
        return None

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], seconds: float, error: Exception | None
    ) -> None:
        """The group has stored ``offsets``, ``seconds`` after the commit was asked for; or that has failed.

        Commits of every kind are reported: those of calls (in the task of commit()), auto-commits, and the last ones of
        a rebalance or of stop(). A commit that is sent again in the group's next generation is reported for each.
        """
        return None

    def rebalance(self, kind: RebalanceKind, partitions: frozenset[TopicPartition], seconds: float) -> None:
        """``partitions`` were assigned, revoked or lost; the rebalance listener is done with them.

        ``seconds`` counts from the moment at which the consumer learned of it.
        """
        return None


@runtime_checkable
class ProducerObserver(Protocol):
    """Hears what became of a producer's records, once for each batch, for histograms. Derive from it, or not.

    It is the option ``observer``, or joins later by ``Producer.observe()``. Its methods are plain functions that run on
    the event loop, so they must be quick. The producer logs what they raise, and goes on. Counters and gauges need no
    observer: ``Producer.metrics()`` has them. For single records there are interceptors.
    """

    def batch(
        self, partition: TopicPartition, count: int, offset: int | None, seconds: float, error: Exception | None
    ) -> None:
        """A batch of ``count`` records was stored from ``offset`` on, ``seconds`` after its first record was appended.

        Or it failed by ``error``: then some of it may be stored all the same, as the error's ``persisted`` says.
        ``offset`` is None where the broker does not tell it, and for a batch that failed.
        """
        return None

    def transaction(self, committed: bool, seconds: float, error: Exception | None) -> None:
        """A transaction was committed, or aborted, ``seconds`` after it began; with ``error``: that has failed."""
        return None
