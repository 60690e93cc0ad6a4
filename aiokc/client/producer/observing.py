"""Tells the application's observers of a producer's batches and transactions, and logs what they raise."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ...core.produce.batch import ProducerBatch, Stored
from ...core.produce.failure import Failure
from ...core.rate_limit import RateLimit, and_more
from ...errors import shown
from ...net.user_errors import leaves_the_loop
from ...observer import ProducerObserver

logger = logging.getLogger("aiokc.observer")

_COMPLAINT_SECONDS: Final = 30.0


class ProducerObservers:
    """The observers of one producer. ``all`` is empty for most producers: then nothing is measured for them."""

    def __init__(self, first: ProducerObserver | None) -> None:
        self.all: tuple[ProducerObserver, ...] = () if first is None else (first,)
        self._complaints = RateLimit(_COMPLAINT_SECONDS)

    def add(self, observer: ProducerObserver) -> None:
        if observer not in self.all:
            self.all = (*self.all, observer)

    def remove(self, observer: ProducerObserver) -> None:
        self.all = tuple(one for one in self.all if one is not observer)

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

    def _complain(self, one: ProducerObserver, method: str, error: BaseException) -> None:
        """Log the error, at most every 30 s for each method. A CancelledError is one, too: nothing is awaited here.

        What ends the loop's run, does so: soon, and the client goes on until then.
        """
        if leaves_the_loop(error):
            return
        name = f"{type(one).__name__}.{method}()"
        held_back = self._complaints.admit(name, asyncio.get_running_loop().time())
        if held_back is not None:
            logger.error(
                "observer %s failed, and the producer goes on: %s%s",
                name,
                shown(error),
                and_more(held_back),
                exc_info=error,
            )
