"""Tells the application's observers of batches, commits and rebalances, and logs what they raise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...core.rate_limit import RateLimit, and_more
from ...errors import shown
from ...net.user_errors import leaves_the_loop
from ...observer import Observer, RebalanceKind
from ...types import ConsumerRecord, OffsetAndMetadata, TopicPartition

logger = logging.getLogger("aiokc.observer")

_COMPLAINT_SECONDS: Final = 30.0


class Observers:
    """The observers of one consumer. ``all`` is empty for most consumers: then nothing is measured for them."""

    def __init__(self, first: Observer | None) -> None:
        self.all: tuple[Observer, ...] = ()
        #: With the least time of a call that each is told of. What the last batch has left in the processor's caches is
        #: not this code: a call of Python costs several times here what it costs in a loop of its own.
        self._hearing: tuple[tuple[Observer, float], ...] = ()
        self._least = 0.0  # of them all
        self._complaints = RateLimit(_COMPLAINT_SECONDS)
        if first is not None:
            self.add(first)

    def add(self, observer: Observer) -> None:
        self._set(self.all if observer in self.all else (*self.all, observer))

    def remove(self, observer: Observer) -> None:
        self._set(tuple(one for one in self.all if one is not observer))

    def _set(self, observers: tuple[Observer, ...]) -> None:
        self.all = observers
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

    def _complain(self, one: Observer, method: str, error: BaseException) -> None:
        """Log the error, at most every 30 s for each method. A CancelledError is one, too: nothing is awaited here.

        What ends the loop's run, does so: soon, and the client goes on until then.
        """
        if leaves_the_loop(error):
            return
        name = f"{type(one).__name__}.{method}()"
        held_back = self._complaints.admit(name, asyncio.get_running_loop().time())
        if held_back is not None:
            logger.error(
                "observer %s failed, and the consumer goes on: %s%s",
                name,
                shown(error),
                and_more(held_back),
                exc_info=error,
            )
