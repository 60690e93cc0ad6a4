"""The failures of records that nobody has looked at: counted, logged once per cause, and raised by the next flush."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from ...core.produce.batch import ProducerBatch
from ...core.produce.failure import Cause, Failure
from ..aio.complaints import Complaints

logger = logging.getLogger("aiokc.produce")

#: So many failed batches are kept to raise one of them; the others are counted.
_MOST_KEPT: Final = 1000


class Unobserved:
    """Failed batches of which some record's failure nobody has seen: no call, and no callback.

    Who awaits a record when it fails counts as one who sees it, until it gives up: its task may be cancelled in the
    same step.
    """

    def __init__(self) -> None:
        self._batches: dict[ProducerBatch, None] = {}
        self.count = 0  # how many records have failed unseen so far; of one that is looked at later this stays true
        self._transactions = 0  # that have ended
        self._complaints = Complaints(logger)

    def failed(self, batch: ProducerBatch, failure: Failure) -> None:
        """A batch has failed, and those who await its records now are told."""
        if failure.cause is Cause.ABORTED:
            return  # who aborts a transaction knows that its records go
        batch.on_given_up = partial(self._look, self._transactions)
        self._look(self._transactions, batch)

    def _look(self, transaction: int, batch: ProducerBatch) -> None:
        """Keep a batch of which nobody sees some failure any more."""
        failure = batch.outcome
        if transaction != self._transactions or not isinstance(failure, Failure):
            return
        unseen = batch.count_unobserved()
        self.count += unseen
        if not unseen or batch in self._batches:
            return
        are = "were not stored" if failure.persisted == "no" else "are not known to be stored"
        text = f"%d records {are}, and nothing awaits %d of them: %s"
        kind = failure.cause, failure.code, batch.tp.topic
        self._complaints.warn(kind, text, batch.count, unseen, failure.error_of(batch.tp, 0))
        if len(self._batches) >= _MOST_KEPT:
            batch.observe_all()
        else:
            self._batches[batch] = None

    def transaction_ended(self) -> None:
        """The end of a transaction tells of all failures in it: nothing else has to raise them."""
        self._transactions += 1
        self._batches.clear()

    def take(self) -> Exception | None:
        """Return the first error that nobody has seen, and take all of them for told; None if there is none."""
        error: Exception | None = None
        for batch in self._batches:
            index = batch.first_unobserved()
            if index is None:
                continue
            batch.observe_all()
            if error is None and isinstance(batch.outcome, Failure):
                error = batch.outcome.error_of(batch.tp, index)
        self._batches.clear()
        return error
