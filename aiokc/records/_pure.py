"""The record decoder in Python: used where the C extension is missing, and the reference in the extension's tests.

A record is: length, attributes (1 byte), timestamp delta, offset delta, key, value, number of headers, headers. All
numbers are zigzag varints; a key or value is its length (negative: null) and its bytes. Nothing of this is trusted: a
read behind the payload is an IndexError, and a record must end where its length says. The caller gets CorruptRecord
for both.
"""

from __future__ import annotations

from typing import Final

from ..errors import CorruptRecord
from ..types import LOG_APPEND_TIME, Headers, RawRecord, _Fields, _Record
from .batch import BatchHeader, Place

_SMALLEST_RECORD: Final = 7
#: Far above what any producer sends. Without this limit, every 2 bytes of a batch could become 60 bytes of memory.
_MOST_HEADERS: Final = 1_000_000
_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1


class _Malformed(Exception):
    """A record is malformed; the message says how."""


class RecordReader:
    """The records of one batch, decoded as the caller asks for them.

    ``payload`` is what follows the batch's header, decompressed. Records have copies of their bytes and do not keep
    ``payload`` alive.
    """

    __slots__ = ("_header", "_partition", "_payload", "_position", "_previous_delta", "_topic", "remaining")

    def __init__(self, header: BatchHeader, payload: bytes, *, topic: str, partition: int) -> None:
        self._header = header
        self._payload = payload
        self._topic = topic
        self._partition = partition
        self._position = 0
        self._previous_delta = -1
        #: How many records were neither read nor skipped yet. 0: the batch is finished.
        self.remaining = header.record_count
        if header.record_count * _SMALLEST_RECORD > len(payload):
            raise self._corrupt(f"{len(payload)} bytes cannot hold {header.record_count} records")
        if header.record_count == 0 and payload:
            raise self._corrupt(f"{len(payload)} bytes in a batch without records")

    def take(self, count: int, from_offset: int = 0) -> list[RawRecord]:
        """Return the next records with an offset >= ``from_offset``, at most ``count``; [] once the batch is finished.

        Raises CorruptRecord. If records before the corrupt one could be read, this call returns them and the next one
        raises.
        """
        taken: list[RawRecord] = []
        before = self.mark()
        try:
            if self._header.base_offset + self._previous_delta + 1 < from_offset:
                self._skip_to(from_offset)
            self._read(count, taken)
        except (IndexError, _Malformed) as error:
            if not taken:
                what = str(error) if isinstance(error, _Malformed) else "a record runs past the end of its batch"
                raise self._corrupt(what) from error
        except BaseException:  # no memory, say: nothing is handed out, so nothing is read
            self.go_back(before)
            raise
        return taken

    def mark(self) -> Place:
        """Return the place of the next record, for ``go_back``."""
        return self._position, self._previous_delta, self.remaining

    def go_back(self, place: Place) -> None:
        """Go back to a place that ``mark`` returned."""
        self._position, self._previous_delta, self.remaining = place

    @property
    def next_offset(self) -> int:
        """The offset behind the last record that was read or skipped."""
        return self._header.base_offset + self._previous_delta + 1

    def _read(self, count: int, taken: list[RawRecord]) -> None:
        """Append the next ``count`` records to ``taken``.

        Nearly all of the time goes into this loop: so it reads numbers of one byte in place, and builds records as
        ``raw_record`` does, without the call.
        """
        header = self._header
        topic, partition, leader_epoch = self._topic, self._partition, header.leader_epoch
        base_offset, last_delta = header.base_offset, header.last_offset_delta
        base_timestamp, timestamp_type = header.base_timestamp, header.timestamp_type
        append_time = header.max_timestamp if timestamp_type == LOG_APPEND_TIME else None
        data, size = self._payload, len(self._payload)
        start, previous_delta = self._position, self._previous_delta
        try:
            for remaining in range(self.remaining, max(self.remaining - count, 0), -1):
                length = data[start]
                at = start + 1
                if length > 0x7F:
                    length, at = _varint(data, start)
                end = at + (length >> 1)
                at += 2  # past the attributes too: Kafka uses none
                number = data[at - 1]
                if number > 0x7F:
                    number, at = _varint(data, at - 1, 10)
                timestamp = base_timestamp + (number >> 1 ^ -(number & 1)) if append_time is None else append_time
                if not _MIN_INT64 <= timestamp <= _MAX_INT64:  # from -1 to Long.MAX_VALUE, say: Java's sum wraps around
                    timestamp = (timestamp - _MIN_INT64) % (1 << 64) + _MIN_INT64
                number = data[at]
                at += 1
                if number > 0x7F:
                    number, at = _varint(data, at - 1)
                delta = number >> 1
                if number & 1 or not previous_delta < delta <= last_delta:
                    raise _Malformed(f"offset delta {delta} of a record is out of range")
                number = data[at]
                at += 1
                if number > 0x7F:
                    number, at = _varint(data, at - 1)
                key = None if number & 1 else data[at : (at := at + (number >> 1))]
                number = data[at]
                at += 1
                if number > 0x7F:
                    number, at = _varint(data, at - 1)
                value = None if number & 1 else data[at : (at := at + (number >> 1))]
                if data[at]:
                    headers, at = _headers(data, at)
                else:
                    headers, at = (), at + 1
                if at != end or length & 1 or end > size or (remaining == 1 and end != size):
                    raise _Malformed("the parts of a record do not add up to its length, or to the batch's")
                offset = base_offset + delta
                fields = _Fields(topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch)
                fields.__class__ = _Record
                taken.append(fields)  # type: ignore[arg-type]
                start, previous_delta = end, delta
        finally:
            self._position, self._previous_delta = start, previous_delta
            self.remaining -= len(taken)

    def _skip_to(self, from_offset: int) -> None:
        """Skip the records before ``from_offset``. Of each, it reads only the offset and where the record ends."""
        data, size = self._payload, len(self._payload)
        wanted_delta, last_delta = from_offset - self._header.base_offset, self._header.last_offset_delta
        while self.remaining:
            length, at = _varint(data, self._position)
            end = at + (length >> 1)
            at += 1
            if data[at] > 0x7F:
                _, at = _varint(data, at, 10)
            else:
                at += 1
            number, at = _varint(data, at)
            delta = number >> 1
            if number & 1 or not self._previous_delta < delta <= last_delta:
                raise _Malformed(f"offset delta {delta} of a record is out of range")
            if delta >= wanted_delta:
                return
            if at > end or length & 1 or end > size or (self.remaining == 1 and end != size):
                raise _Malformed("a record's length does not fit into the batch's")
            self._position, self._previous_delta = end, delta
            self.remaining -= 1

    def _corrupt(self, what: str) -> CorruptRecord:
        offset = self._header.base_offset + self._previous_delta + 1
        return CorruptRecord(
            f"{what}; seek() to {self._header.next_offset} to skip the batch",
            topic=self._topic,
            partition=self._partition,
            offset=offset,
        )


def _varint(data: bytes, at: int, most: int = 5) -> tuple[int, int]:
    """Return the number at ``at``, still in zigzag, and where it ends; ``most`` bytes: 5 for 32 bits, 10 for 64."""
    number = data[at]
    if number < 0x80:
        return number, at + 1
    high = data[at + 1]
    if high < 0x80:
        return number + (high << 7) - 0x80, at + 2
    number += (high << 7) - 0x4080
    for index in range(2, most):
        byte = data[at + index]
        number += (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at + index + 1
    raise _Malformed(f"a number of more than {most} bytes")


def _headers(data: bytes, at: int) -> tuple[Headers, int]:
    """Return the headers whose count is at ``at``, and where they end."""
    number, at = _varint(data, at)
    if number & 1 or not number <= min(_MOST_HEADERS * 2, len(data) - at):
        raise _Malformed(f"no record can have {number >> 1} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(number >> 1):
        number, at = _varint(data, at)
        if number & 1:
            raise _Malformed("a header without a key")
        # No broker checks a header's key. One that is not UTF-8 must not stop the partition (as in Java).
        key = str(data[at : (at := at + (number >> 1))], "utf-8", "replace")
        number, at = _varint(data, at)
        value = None if number & 1 else data[at : (at := at + (number >> 1))]
        headers.append((key, value))
    return tuple(headers), at
