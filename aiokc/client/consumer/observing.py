"""Tells the application's observers of batches, commits and rebalances, and logs what they raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...observer import Observer, RebalanceKind
from ...types import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ..aio.observers import ClientObservers


class Observers(ClientObservers[Observer]):
    """The observers of one consumer."""

    def __init__(self, first: Observer | None) -> None:
        #: Each with the least time of a call that it is told of. What the last batch has left in the processor's caches
        #: is not this code: a call of Python costs several times here what it costs in a loop of its own.
        self._hearing: tuple[tuple[Observer, float], ...] = ()
        self._least = 0.0  # of them all
        super().__init__(first, "consumer")

    def _set(self, observers: tuple[Observer, ...]) -> None:
        super()._set(observers)
        self._hearing = tuple((one, getattr(one, "least_seconds", 0.0)) for one in observers)
        self._least = min((least for _, least in self._hearing), default=0.0)

    def batch(
        self,
        partitions: Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]],
        seconds: float,
        error: Exception | None = None,
        count: int | None = None,
    ) -> None:
        """A call for records is over. ``count`` None: so many as are in ``partitions``."""
        if seconds < self._least and error is None:
            return
        if count is None:
            count = sum(map(len, partitions.values()))
        for one, least in self._hearing:
            if seconds >= least or error is not None:
                try:
                    one.batch(partitions, count, seconds, error)
                except BaseException as failure:
                    self._complain(one, "batch", failure)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], seconds: float, error: Exception | None
    ) -> None:
        if not offsets and error is None:
            return
        for one in self.all:
            try:
                one.commit(offsets, seconds, error)
            except BaseException as failure:
                self._complain(one, "commit", failure)

    def rebalance(self, kind: RebalanceKind, partitions: frozenset[TopicPartition], seconds: float) -> None:
        for one in self.all:
            try:
                one.rebalance(kind, partitions, seconds)
            except BaseException as failure:
                self._complain(one, "rebalance", failure)
