"""Tells the application's observers of batches, commits and rebalances, and logs what they raise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...core.rate_limit import RateLimit, and_more
from ...errors import shown
from ...net.user_errors import USER_ERRORS
from ...observer import Observer, RebalanceKind
from ...types import ConsumerRecord, OffsetAndMetadata, TopicPartition

logger = logging.getLogger("aiokc.observer")

_COMPLAINT_SECONDS: Final = 30.0


class Observers:
    """The observers of one consumer. ``all`` is empty for most consumers: then nothing is measured for them."""

    def __init__(self, first: Observer | None) -> None:
        self.all: tuple[Observer, ...] = () if first is None else (first,)
        self._complaints = RateLimit(_COMPLAINT_SECONDS)

    def add(self, observer: Observer) -> None:
        if observer not in self.all:
            self.all = (*self.all, observer)

    def remove(self, observer: Observer) -> None:
        self.all = tuple(one for one in self.all if one is not observer)

    def batch(
        self,
        partitions: Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]],
        count: int,
        seconds: float,
        error: Exception | None = None,
    ) -> None:
        for one in self.all:
            try:
                one.batch(partitions, count, seconds, error)
            except USER_ERRORS as failure:
                self._complain(one, "batch", failure)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], seconds: float, error: Exception | None
    ) -> None:
        if not offsets and error is None:
            return
        for one in self.all:
            try:
                one.commit(offsets, seconds, error)
            except USER_ERRORS as failure:
                self._complain(one, "commit", failure)

    def rebalance(self, kind: RebalanceKind, partitions: frozenset[TopicPartition], seconds: float) -> None:
        for one in self.all:
            try:
                one.rebalance(kind, partitions, seconds)
            except USER_ERRORS as failure:
                self._complain(one, "rebalance", failure)

    def _complain(self, one: Observer, method: str, error: BaseException) -> None:
        """Log the error, at most every 30 s for each method. A CancelledError is one, too: nothing is awaited here."""
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
