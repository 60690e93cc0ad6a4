"""The counters behind a producer's metrics(): records that ended, batches that were sent, and how they came out."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...error_codes import ErrorCode, error_name
from ..stopwatch import Stopwatch
from .batch import ProducerBatch, Stored
from .failure import Failure


@dataclass(slots=True)
class ProduceCounters:
    """What one producer has counted so far. ``failed`` is by the name of the error code, or of what else ended it."""

    stored: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    batch_bytes: int = 0
    payload_bytes: int = 0
    batch_records: int = 0
    retries: int = 0
    splits: int = 0
    expired: int = 0
    lingered: Stopwatch = field(default_factory=Stopwatch)

    def ended(self, batch: ProducerBatch) -> None:
        """A batch has got its outcome."""
        outcome = batch.outcome
        if isinstance(outcome, Stored):
            self.stored += batch.count
        elif isinstance(outcome, Failure):
            # NETWORK_EXCEPTION stands for an answer that never came: no broker has said it
            has_answer = outcome.code not in (0, ErrorCode.NETWORK_EXCEPTION)
            name = error_name(outcome.code) if has_answer else outcome.cause.name
            self.failed[name] = self.failed.get(name, 0) + batch.count

    def sent(self, batch: ProducerBatch, now: float) -> None:
        """A batch goes to a broker: counted when it does so for the first time."""
        if batch.attempts == 1 and batch.closed is not None:
            self.batches += 1
            self.batch_bytes += batch.closed.size
            self.payload_bytes += batch.closed.payload_size
            self.batch_records += batch.count
            self.lingered.add(now - batch.created)
