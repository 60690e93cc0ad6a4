"""The encoder in Python: the oracle of the one in C (_native/record_appender.c), and what stands in for it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from struct import Struct
from typing import Final, Self

from crc32c import crc32c

from ...types import NO_TIMESTAMP, Headers, HeadersToSend, ProducerRecord
from ..batch import CRC_START, HEADER, MAGIC, PREFIX_SIZE
from .murmur2 import murmur2_partition

_MOST_32: Final = (1 << 31) - 1
_BEYOND_64: Final = 1 << 63

_CHECKED: Final = Struct(">hiqqqhii")  # the part of a batch's header that its CRC covers
_UNCHECKED: Final = Struct(">qiibI")


#: What a record is longer than key, value and headers at most: its length, attributes, timestamp, offset, three counts.
RECORD_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
HEADER_OVERHEAD: Final = 5 + 5
_MOST_SIMPLE_HEADERS: Final = 8


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
    headers: HeadersToSend,
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


def record_bound(key: bytes | None, value: bytes | None, headers: HeadersToSend) -> int:
    """Return how many bytes a record of these takes in a batch at most, before compression."""
    size = RECORD_OVERHEAD + (0 if key is None else len(key)) + (0 if value is None else len(value))
    for name, content in headers:
        size += HEADER_OVERHEAD + len(name.encode()) + (0 if content is None else len(content))
    return size


class BufferMemory:
    """How much memory the records of a producer take: ``used`` bytes of ``limit``. Appenders add what they append."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0


class RecordAppender:
    """The records of a batch that is being filled, behind room for the batch's header.

    ``size`` is what the frame will have, uncompressed; ``largest`` is the longest record's own part of it.
    """

    __slots__ = (
        "_buffer",
        "_capacity",
        "_is_sealed",
        "_memory",
        "base_timestamp",
        "count",
        "largest",
        "max_timestamp",
        "size",
    )

    base_timestamp: int
    count: int
    largest: int
    max_timestamp: int
    size: int
    _buffer: bytearray | None
    _capacity: int
    _is_sealed: bool
    _memory: BufferMemory | None

    def __new__(cls, capacity: int, memory: BufferMemory | None = None) -> Self:
        """``capacity``: the frame is no longer than this, in bytes, unless it holds a single record."""
        self = super().__new__(cls)
        self._capacity, self._memory, self._is_sealed = min(capacity, _MOST_32), memory, False
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
        headers: HeadersToSend = (),
        /,
    ) -> bool:
        """Append a record; return False, and append nothing, where it has no room. The first one always has."""
        if not -_BEYOND_64 <= index(timestamp) < _BEYOND_64:
            raise OverflowError("a timestamp has 64 bits")
        count = self.count
        record = encoded_record(timestamp - self.base_timestamp if count else 0, count, key, value, headers)
        if count == _MOST_32 or not self.fits(len(record)):
            return False
        assert self._buffer is not None
        if self.size + len(record) > _MOST_32:
            raise OverflowError("a record batch has less than 2 GiB")
        if not count:
            self.base_timestamp = self.max_timestamp = timestamp
            self._buffer[:] = bytes(HEADER.size)  # where the first record found no memory, this is gone, too
        self._buffer += record
        self.size += len(record)
        self.count = count + 1
        self.largest = max(self.largest, len(record))
        self.max_timestamp = max(self.max_timestamp, timestamp)
        if self._memory is not None:
            self._memory.used += len(record)
        return True

    def fits(self, size: int, /) -> bool:
        """Whether a record of this size, in bytes, has room."""
        if self._buffer is None or self._is_sealed or self._is_lost:
            return False
        return self.count == 0 or self.size + size <= self._capacity

    @property
    def _is_lost(self) -> bool:
        """Whether the records are gone.

        From Python 3.15 on, a bytearray that can't grow for want of memory is empty then (gh-139871).
        """
        return self._buffer is not None and self.count > 0 and len(self._buffer) < self.size

    def seal(self) -> None:
        """From now on nothing has room."""
        self._is_sealed = True

    def take(self) -> bytearray:
        """Return the records, behind room for the batch's header. Nothing can be appended any more.

        Raises MemoryError if they were lost when there was no memory for another one.
        """
        is_lost = self._is_lost
        buffer, self._buffer = self._buffer, None
        if buffer is None:
            raise ValueError("the buffer was taken before")
        if is_lost:
            raise MemoryError
        return buffer

    def write_header(
        self, buffer: bytearray, attributes: int, producer_id: int, epoch: int, base_sequence: int, /
    ) -> None:
        """Write the batch's header to the start of ``buffer``, which has the records behind it, maybe compressed."""
        if len(buffer) < HEADER.size:
            raise ValueError("the buffer has no room for a header")
        count = self.count
        _CHECKED.pack_into(
            buffer,
            CRC_START,
            attributes,
            count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            epoch,
            base_sequence,
            count,
        )
        crc = crc32c(memoryview(buffer)[CRC_START:])
        _UNCHECKED.pack_into(buffer, 0, 0, len(buffer) - PREFIX_SIZE, -1, MAGIC, crc)


#: How keys choose partitions in ``append_records``: not at all, by murmur2; or a record with a key ends the call.
KEYS_CHOOSE_NOTHING: Final = 0
KEYS_CHOOSE_BY_MURMUR2: Final = 1
KEYS_STOP: Final = 2


def append_records(
    appenders: Sequence[RecordAppender | None],
    topic: str,
    records: tuple[object, ...],
    start: int,
    stop: int,
    timestamp: int,
    sticky: int,
    keys: int,
    largest: int,
    room: int,
    touched: list[int],
    /,
) -> tuple[int, int]:
    """Append records[start:stop] of one topic, each to the appender of its partition, as far as that is simple.

    A record is a value (bytes or None) or a ProducerRecord. Return the index of the first one that was not appended,
    for the caller to look at, and what is left of ``room``, the bytes that may be appended. It stops before a record
    whose partition has no appender, or one without room for it; whose upper bound is more than ``largest`` or ``room``;
    that is of another topic or partition than there are; or whose contents are not of the simplest types. ``sticky`` is
    the partition of what no key and no partition decides on, -1: it stops there. Each partition that it has appended to
    is added to ``touched``.
    """
    at, known = max(start, 0), len(touched)
    for record in records[at : max(stop, 0)]:
        found = _placed(record, topic, timestamp, sticky, keys, len(appenders))
        if found is None:
            break
        partition, timestamp_ms, key, value, headers = found
        bound = record_bound(key, value, headers)
        appender = appenders[partition]
        if bound > min(largest, room) or not isinstance(appender, RecordAppender):
            break
        before = appender.size
        if not appender.append(timestamp_ms, key, value, headers):
            break
        room -= appender.size - before
        if partition not in touched[known:]:
            touched.append(partition)
        at += 1
    return at, room


def _placed(
    record: object, topic: str, timestamp: int, sticky: int, keys: int, count: int
) -> tuple[int, int, bytes | None, bytes | None, Headers] | None:
    """Return partition, timestamp, key, value and headers of a record; None if it is out of the ordinary."""
    key: object = None
    value: object = record
    headers: Headers | None = ()
    partition = sticky
    if record is not None and type(record) is not bytes:
        if type(record) is not ProducerRecord or record.topic != topic:
            return None
        value, key, headers = record.value, record.key, _simple_headers(record.headers)
        if record.timestamp_ms is not None:
            timestamp = record.timestamp_ms
        if record.partition is not None:
            partition = record.partition
        elif type(key) is bytes and keys == KEYS_CHOOSE_BY_MURMUR2:
            partition = murmur2_partition(key, count)
        elif key is not None and keys == KEYS_STOP:
            return None
    if headers is None or not _is_simple(key) or not _is_simple(value):
        return None
    if type(timestamp) is not int or type(partition) is not int:
        return None
    if not 0 <= timestamp < _BEYOND_64 or not 0 <= partition < count:
        return None
    return partition, timestamp, key, value, headers  # type: ignore[return-value]


def _is_simple(content: object) -> bool:
    return content is None or type(content) is bytes


def _simple_headers(headers: object) -> Headers | None:
    if type(headers) is not tuple or len(headers) > _MOST_SIMPLE_HEADERS:
        return None
    for pair in headers:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str or not _is_simple(pair[1]):
            return None
        try:
            pair[0].encode()
        except UnicodeEncodeError:  # half a surrogate pair
            return None
    return headers
