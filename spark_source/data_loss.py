"""Data loss: records that a query has to read are no longer in Kafka. It fails, or logs a warning; never silent."""

from __future__ import annotations

import logging
from typing import Final

from aiokc import KafkaError, TopicPartition
from aiokc.errors import LogTruncated

_logger = logging.getLogger(__name__)

GO_ON: Final = (
    "To go on with what is there, set failOnDataLoss=false; to choose where to start, give startingOffsets, to a "
    "stream with a new checkpoint."
)
DELETED: Final = f"{GO_ON} Longer retention on the topic prevents it."
GONE: Final = "To go on without it, set failOnDataLoss=false."
# The checkpoint has no place for a topic's id, so a log that is too short may also be that of a new topic.
CUT: Final = (
    f"{GO_ON} If the topic was deleted and created again, a stream reads the new one from its beginning only with a "
    "new checkpoint and startingOffsets=earliest."
)

# Not failOnDataLoss=false: that is for a query that runs while the topic is recreated.
RECREATED: Final = (
    "To read the new topic from its beginning, start the query again: a stream with a new checkpoint and "
    "startingOffsets=earliest, since with this checkpoint it goes on at the same offset of the new topic."
)


class DataLoss(KafkaError):
    """Offsets that a query has to read are not in the log: ``wanted`` and ``available`` are (from, until).

    The end of ``wanted`` is None if no batch was planned yet; ``available`` is None for a partition that is gone. The
    message ends with ``remedy``: what to do once the query has failed; ``what_happened`` is the message without it.
    """

    def __init__(
        self,
        partition: TopicPartition,
        what: str,
        *,
        wanted: tuple[int, int | None],
        available: tuple[int, int] | None,
        remedy: str,
    ) -> None:
        self.partition, self.wanted, self.available = partition, wanted, available
        start, until = wanted
        need = f"from offset {start} on" if until is None else f"offsets {start} to {until} (exclusive)"
        have = "nothing of it" if available is None else f"{available[0]} to {available[1]} (exclusive)"
        self.what_happened = (
            f"data loss: topic {partition.topic!r}, partition {partition.partition}: {what}. "
            f"Wanted: {need}; available: {have}."
        )
        super().__init__(f"{self.what_happened} {remedy}")


class OtherTopic(LogTruncated):
    """What a task has read is of another topic than the one that was planned."""


def named_beyond(option: str) -> tuple[str, str]:
    """Return what is wrong, and the remedy, if this option names an offset that the log does not reach."""
    return (
        f"its log ends before the offset that {option} names",
        f"Correct {option}, or, to go on with what is there, set failOnDataLoss=false.",
    )


def report(loss: DataLoss, *, fail: bool) -> None:
    """Raise ``loss``, or with failOnDataLoss=false only log it."""
    if fail:
        raise loss from None  # not the client's error, whose advice is for a Consumer
    _logger.warning("failOnDataLoss=false: going on after %s", loss.what_happened)


def within(
    partition: TopicPartition,
    wanted: tuple[int, int],
    available: tuple[int, int] | None,
    *,
    fail: bool,
    from_earliest: bool = False,
    named: tuple[str | None, str | None] = (None, None),
) -> tuple[int, int]:
    """Return the part of ``wanted`` that the log holds. If that is not all, raise DataLoss, or warn if not ``fail``.

    A range that is ``from_earliest`` has no fixed start: if retention deletes its first records, that is no loss.
    ``named`` are the options that give its start and its end as offsets; None where another batch or the log does.
    """
    start, until = wanted
    if available is None:
        report(DataLoss(partition, "the partition is gone", wanted=wanted, available=None, remedy=GONE), fail=fail)
        return start, start
    earliest, latest = available
    if start > until:
        what, remedy = named_beyond(named[0]) if named[0] else ("its log ended before what was read already", CUT)
        report(DataLoss(partition, what, wanted=(start, None), available=available, remedy=remedy), fail=fail)
    elif start < earliest and not from_earliest:
        what = "its oldest records were deleted"
        report(DataLoss(partition, what, wanted=wanted, available=available, remedy=DELETED), fail=fail)
    elif until > latest:
        planned = "its log ends before offsets that were read or planned already"
        what, remedy = named_beyond(named[1]) if named[1] else (planned, CUT)
        report(DataLoss(partition, what, wanted=wanted, available=available, remedy=remedy), fail=fail)
    kept = max(start, earliest), min(until, latest)
    return kept if kept[0] < kept[1] else (start, start)
