"""Tells the application's observers of a producer's batches and transactions, and logs what they raise."""

from __future__ import annotations

import asyncio

from ...core.produce.batch import ProducerBatch, Stored
from ...core.produce.failure import Failure
from ...observer import ProducerObserver
from ..aio.observers import ClientObservers


class ProducerObservers(ClientObservers[ProducerObserver]):
    """The observers of one producer."""

    def __init__(self, first: ProducerObserver | None) -> None:
        super().__init__(first, "producer")

    def batches(self, batches: list[ProducerBatch]) -> None:
        """These batches have just got their outcome."""
        now = asyncio.get_running_loop().time()
        for batch in batches:
            outcome = batch.outcome
            offset = outcome.base_offset if isinstance(outcome, Stored) else None
            for one in self.all:
                error = outcome.error_of(batch.tp, 0) if isinstance(outcome, Failure) else None
                try:
                    one.batch(batch.tp, batch.count, offset, now - batch.created, error)
                except BaseException as failure:
                    self._complain(one, "batch", failure)

    def transaction(self, committed: bool, seconds: float, error: Exception | None) -> None:
        for one in self.all:
            try:
                one.transaction(committed, seconds, error)
            except BaseException as failure:
                self._complain(one, "transaction", failure)
