"""Finds the first record at or behind an offset in what one Fetch returned, for its timestamp."""

from __future__ import annotations

from typing import NamedTuple

from ...records import AbortedTransactions, open_batch, split_batches
from ...wire.messages.fetch import PartitionData


class Look(NamedTuple):
    """What one Fetch had: the record's timestamp (None: no record), and the offset from which to look on."""

    timestamp: int | None
    next_offset: int


def first_record(
    data: PartitionData, offset: int, *, topic: str, check_crcs: bool, max_decompressed_bytes: int
) -> Look:
    """Look for the first record at or behind ``offset``. Without one, ``next_offset`` lies behind what was looked at.

    It is ``offset`` again where no batch arrived. Raises RecordError.
    """
    aborted = AbortedTransactions(
        ((one.producer_id, one.first_offset) for one in data.aborted_transactions or ()), check_crcs=check_crcs
    )
    for header, view in split_batches(data.records or memoryview(b"")):
        if aborted.skips(header, view) or header.last_offset < offset:
            offset = max(offset, header.next_offset)
            continue
        reader = open_batch(
            header,
            view,
            topic=topic,
            partition=data.partition_index,
            check_crcs=check_crcs,
            max_decompressed_bytes=max_decompressed_bytes,
        )
        first = reader.take(1, offset)
        if first:
            return Look(first[0].timestamp, first[0].offset)
        offset = max(offset, header.next_offset)
    return Look(None, offset)
