"""A partition's state of each idempotent producer (KIP-98): its epoch, and its last batches, to recognise a retry."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...error_codes import ErrorCode
from ...records import BatchHeader
from ..refusal import Refusal

_REMEMBERED_BATCHES: Final = 5  # max.in.flight.requests.per.connection of an idempotent producer
_SEQUENCES: Final = 1 << 31


class _Appended(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


@dataclass
class _Producer:
    epoch: int
    batches: deque[_Appended] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))


class ProducerStates:
    """The producers of one partition, by producer id."""

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def offset_of_retry(self, header: BatchHeader) -> int | None:
        """Return the base offset of a batch that was appended before, None for a new batch.

        Raises Refusal where the producer's epoch is old, or the batch's sequence does not follow.
        """
        known = self._producers.get(header.producer_id)
        if header.producer_id < 0 or known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise Refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {header.producer_epoch}, the current one is {known.epoch}"
            )
        if header.is_control or header.base_sequence < 0:
            return None
        if header.producer_epoch > known.epoch:
            _expect(0, header, "the first batch of a new epoch")
            return None
        last_sequence = _last_sequence(header)
        for batch in known.batches:
            if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, last_sequence):
                return batch.base_offset
        if known.batches:
            _expect((known.batches[-1].last_sequence + 1) % _SEQUENCES, header, "the next batch")
        return None

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """Remember a batch that has been appended."""
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        if not header.is_control:
            known.batches.append(_Appended(header.base_sequence, _last_sequence(header), base_offset))

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
