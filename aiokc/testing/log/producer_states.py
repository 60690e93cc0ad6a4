"""A partition's state of each idempotent producer (KIP-98): its epoch, and its last batches, to recognise a retry."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from ...error_codes import ErrorCode
from ...records import BatchHeader
from ..refusal import Refusal

_REMEMBERED_BATCHES: Final = 5  # max.in.flight.requests.per.connection of an idempotent producer
_SEQUENCES: Final = 1 << 31


class Appended(NamedTuple):
    """A producer's batch in the log. ``timestamp`` is the highest of its records."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


class Gaps(Enum):
    """What the first batch that a partition knows of a producer may begin with.

    ALLOWED  any sequence: older batches may have been deleted
    UNKNOWN  0, else UNKNOWN_PRODUCER_ID: brokers before 2.5 (KIP-360)
    REFUSED  0, else OUT_OF_ORDER_SEQUENCE_NUMBER: a transaction that its first batch begins (KIP-890)
    """

    ALLOWED = auto()
    UNKNOWN = auto()
    REFUSED = auto()

    def check(self, header: BatchHeader) -> None:
        """Raise Refusal for a first batch that may not begin with its sequence."""
        if self is Gaps.UNKNOWN and header.base_sequence != 0:
            raise Refusal(ErrorCode.UNKNOWN_PRODUCER_ID, f"no batch of producer {header.producer_id} is known")
        if self is Gaps.REFUSED:
            _expect(0, header, "the first batch of a transaction")


@dataclass
class _Producer:
    epoch: int
    batches: deque[Appended] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))


class ProducerStates:
    """The producers of one partition, by producer id."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def find_retry(self, header: BatchHeader, *, gaps: Gaps = Gaps.ALLOWED) -> Appended | None:
        """Return the batch in the log of which this one is a retry, None for a new batch.

        ``gaps`` says what may come from a producer of which no batch is known. Raises Refusal where the producer's
        epoch is old, or the batch's sequence does not follow.
        """
        if header.producer_id < 0:
            return None
        known = self._producers.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            raise Refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {header.producer_epoch}, the current one is {known.epoch}"
            )
        if header.is_control or header.base_sequence < 0:
            return None
        if known is None or not known.batches:
            gaps.check(header)
        if known is None:
            return None
        if header.producer_epoch > known.epoch:
            _expect(0, header, "the first batch of a new epoch")
            return None
        last_sequence = _last_sequence(header)
        for batch in known.batches:
            if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, last_sequence):
                return batch
        # A producer of which there is only a marker begins at 0.
        _expect((known.batches[-1].last_sequence + 1) % _SEQUENCES if known.batches else 0, header, "the next batch")
        return None

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """Remember a batch that has been appended."""
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        if not header.is_control:
            appended = Appended(header.base_sequence, _last_sequence(header), base_offset, header.max_timestamp)
            known.batches.append(appended)

    def epoch_of(self, producer_id: int) -> int:
        """Return the latest epoch of a producer, -1 where it has never written to this partition."""
        known = self._producers.get(producer_id)
        return known.epoch if known is not None else -1


def _expect(sequence: int, header: BatchHeader, what: str) -> None:
    if header.base_sequence != sequence:
        raise Refusal(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id}: sequence {header.base_sequence}, where {what} has {sequence}",
        )


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
