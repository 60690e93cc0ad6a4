"""Records that are sound, and that columns can't hold: the errors of both builders."""

from __future__ import annotations

from ..errors import RecordError, RecordTooLarge


def too_large(topic: str, partition: int, offset: int, most: int) -> RecordTooLarge:
    """Return the error for a record that has more bytes of one column than its 32-bit offsets can tell."""
    return RecordTooLarge(
        f"the record is too large for columns, which hold {most} bytes each: read it with getmany(), leave its column "
        f"out, or seek() to {offset + 1} to skip it",
        topic=topic,
        partition=partition,
        offset=offset,
    )


def no_timestamp(topic: str, partition: int, offset: int, timestamp: int) -> RecordError:
    """Return the error for a timestamp (ms) that does not exist in microseconds."""
    return RecordError(
        f"the record's timestamp, {timestamp} ms, is beyond what 64 bits can tell in microseconds: read it with "
        f"timestamp_unit='ms', or seek() to {offset + 1} to skip it",
        topic=topic,
        partition=partition,
        offset=offset,
    )
