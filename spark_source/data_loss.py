"""Data loss: records that a query has to read are no longer in Kafka. It fails, or logs a warning; never silent."""

from __future__ import annotations

import logging

from aiokc import KafkaError, TopicPartition

_logger = logging.getLogger(__name__)

_REMEDY = (
    "To go on with what is there, set failOnDataLoss=false; to choose where to start, give a new checkpoint and "
    "startingOffsets. Longer retention on the topic prevents it."
)


class DataLoss(KafkaError):
    """Offsets that a query has to read are not in the log: ``wanted`` and ``available`` are (from, until).

    The end of ``wanted`` is None if no batch was planned yet; ``available`` is None for a partition that is gone.
    """

    def __init__(
        self,
        partition: TopicPartition,
        what: str,
        *,
        wanted: tuple[int, int | None],
        available: tuple[int, int] | None,
    ) -> None:
        self.partition, self.wanted, self.available = partition, wanted, available
        start, until = wanted
        need = f"from offset {start} on" if until is None else f"offsets {start} to {until} (exclusive)"
        have = "nothing of it" if available is None else f"{available[0]} to {available[1]} (exclusive)"
        super().__init__(
            f"data loss: topic {partition.topic!r}, partition {partition.partition}: {what}. "
            f"Wanted: {need}; available: {have}. {_REMEDY}"
        )


def report(loss: DataLoss, *, fail: bool) -> None:
    """Raise ``loss``, or with failOnDataLoss=false only log it."""
    if fail:
        raise loss
    _logger.warning("failOnDataLoss=false: going on after %s", loss)


def within(
    partition: TopicPartition,
    wanted: tuple[int, int],
    available: tuple[int, int] | None,
    *,
    fail: bool,
    from_earliest: bool = False,
) -> tuple[int, int]:
    """Return the part of ``wanted`` that the log holds. If that is not all, raise DataLoss, or warn if not ``fail``.

    A range that is ``from_earliest`` has no fixed start: if retention deletes its first records, that is no loss.
    """
    start, until = wanted
    if available is None:
        report(DataLoss(partition, "the partition is gone", wanted=wanted, available=None), fail=fail)
        return start, start
    earliest, latest = available
    if start > until:
        what = "its log ended before what was read already"
        report(DataLoss(partition, what, wanted=(start, None), available=available), fail=fail)
    elif start < earliest and not from_earliest:
        report(DataLoss(partition, "its oldest records were deleted", wanted=wanted, available=available), fail=fail)
    elif until > latest:
        what = "its log ends before offsets that were read or planned already"
        report(DataLoss(partition, what, wanted=wanted, available=available), fail=fail)
    kept = max(start, earliest), min(until, latest)
    return kept if kept[0] < kept[1] else (start, start)
