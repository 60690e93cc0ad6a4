"""The errors for sound records that columns can't hold: too many bytes, or a timestamp beyond the unit."""

from __future__ import annotations

from ..errors import RecordError, RecordTooLarge


def too_large(topic: str, partition: int, offset: int, most: int) -> RecordTooLarge:
    """Return the error for a record with more bytes in one column than the column's 32-bit offsets can address."""
    return RecordTooLarge(
        f"the record is too large for columns, which hold {most} bytes each: read it with getmany(), leave its column "
        f"out, or seek() to {offset + 1} to skip it",
        topic=topic,
        partition=partition,
        offset=offset,
    )


def no_timestamp(topic: str, partition: int, offset: int, timestamp: int) -> RecordError:
    """Return the error for a timestamp (ms) that 64 bits can't hold in microseconds."""
    return RecordError(
        f"the record's timestamp, {timestamp} ms, is beyond what 64 bits can tell in microseconds: read it with "
        f"timestamp_unit='ms', or seek() to {offset + 1} to skip it",
        topic=topic,
        partition=partition,
        offset=offset,
    )
