"""The reader of a batch with one record of 1 MiB or more, which is built where the batch is opened: in a thread."""

from __future__ import annotations

from typing import Final

from ..types import RawRecord
from .batch import BatchHeader, Place

#: The bytes from which on a record is long. To copy 60 MB takes 60 ms, most of that for getting new memory.
LONG_BYTES: Final = 1 << 20


class LoneRecord:
    """A RecordReader of one record that is built already."""

    __slots__ = ("_record", "next_offset", "remaining")

    def __init__(self, header: BatchHeader, record: RawRecord) -> None:
        self._record = record
        self.next_offset = header.base_offset
        self.remaining = 1

    def take(self, count: int, from_offset: int = 0) -> list[RawRecord]:
        if count < 1 or not self.remaining:
            return []
        self.remaining = 0
        self.next_offset = self._record.offset + 1
        return [self._record] if self._record.offset >= from_offset else []

    def mark(self) -> Place:
        return 0, self.next_offset, self.remaining

    def go_back(self, place: Place) -> None:
        _, self.next_offset, self.remaining = place
