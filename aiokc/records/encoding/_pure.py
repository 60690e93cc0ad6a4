"""The encoder in Python: the oracle of the one in C (_native/record_appender.c), and what stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Final, Self

from ...types import NO_TIMESTAMP
from ..batch import HEADER

_MOST_32: Final = (1 << 31) - 1
_BEYOND_64: Final = 1 << 63


def varint(number: int) -> bytes:
    """Return a number of 64 bits as records have it: in zigzag, seven bits in a byte. A larger one wraps around."""
    number = (number << 1 ^ -(number >> 63 & 1)) & 0xFFFF_FFFF_FFFF_FFFF
    output = bytearray()
    while number > 0x7F:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    output.append(number)
    return bytes(output)


#: The varints of small numbers: nearly all lengths, deltas and counts are among them.
_SMALL: Final = tuple(varint(number) for number in range(8192))
_NULL: Final = varint(-1)


def _number(number: int) -> bytes:
    return _SMALL[number] if 0 <= number < 8192 else varint(number)


def _content(content: bytes | bytearray | memoryview | None) -> tuple[bytes, bytes]:
    """Return the length and the bytes of a key or value; copies what is no bytes but has a buffer."""
    if content is None:
        return _NULL, b""
    if not isinstance(content, bytes):
        content = memoryview(content).tobytes()
    return _number(len(content)), content


def encoded_record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> bytes:
    """Return a record of a batch (magic 2)."""
    parts = [b"\0", _number(timestamp_delta), _number(offset_delta), *_content(key), *_content(value)]
    headers = tuple(headers)
    parts.append(_number(len(headers)))
    for name, content in headers:
        encoded = str.encode(name)
        parts += _number(len(encoded)), encoded, *_content(content)
    body = b"".join(parts)
    return _number(len(body)) + body


class RecordAppender:
    """The records of a batch that is being filled, behind room for the batch's header.

    ``size`` is what the frame will have, uncompressed; ``largest`` is the longest record's own part of it.
    """

    __slots__ = ("_buffer", "_capacity", "base_timestamp", "count", "largest", "max_timestamp", "size")

    base_timestamp: int
    count: int
    largest: int
    max_timestamp: int
    size: int
    _buffer: bytearray | None
    _capacity: int

    def __new__(cls, capacity: int) -> Self:
        """``capacity``: the frame is no longer than this, in bytes, unless it holds a single record."""
        self = super().__new__(cls)
        self._capacity = min(capacity, _MOST_32)
        self._buffer = bytearray(HEADER.size)
        self.size = HEADER.size
        self.count = self.largest = 0
        self.base_timestamp = self.max_timestamp = NO_TIMESTAMP
        return self

    @property
    def is_full(self) -> bool:
        """Whether no record fits any more."""
        return self.count > 0 and self.size >= self._capacity

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        /,
    ) -> bool:
        """Append a record; return False, and append nothing, where it has no room. The first one always has."""
        if not -_BEYOND_64 <= index(timestamp) < _BEYOND_64:
            raise OverflowError("a timestamp has 64 bits")
        count = self.count
        record = encoded_record(timestamp - self.base_timestamp if count else 0, count, key, value, headers)
        if self._buffer is None or count == _MOST_32 or (count and self.size + len(record) > self._capacity):
            return False
        if self.size + len(record) > _MOST_32:
            raise OverflowError("a record batch has less than 2 GiB")
        if not count:
            self.base_timestamp = self.max_timestamp = timestamp
        self._buffer += record
        self.size += len(record)
        self.count = count + 1
        self.largest = max(self.largest, len(record))
        self.max_timestamp = max(self.max_timestamp, timestamp)
        return True

    def take(self) -> bytearray:
        """Return the records, behind room for the batch's header. Nothing can be appended any more."""
        buffer, self._buffer = self._buffer, None
        if buffer is None:
            raise ValueError("the buffer was taken before")
        return buffer
