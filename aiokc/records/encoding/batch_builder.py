"""A batch that a producer fills, record by record, and the frame that it becomes: OpenBatch, ClosedBatch."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from crc32c import crc32c

from ...types import NO_TIMESTAMP
from ..batch import CRC_START, HEADER, MAGIC, PREFIX_SIZE, TRANSACTIONAL_FLAG, BatchHeader
from ..compression import Codec, compress, decompress
from ..decode import new_reader

#: What a batch is longer than its records: the header.
BATCH_OVERHEAD: Final = HEADER.size
#: What a record is longer than key, value and headers at most: its length, attributes, timestamp, offset, three counts.
RECORD_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5

_CHECKED: Final = Struct(">hiqqqhii")
_CHECKED_END: Final = CRC_START + _CHECKED.size
_UNCHECKED: Final = Struct(">qiibI")


def _varint(number: int) -> bytes:
    number = (number << 1 ^ -(number >> 63 & 1)) & 0xFFFF_FFFF_FFFF_FFFF  # zigzag, in 64 bits
    output = bytearray()
    while number > 0x7F:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    output.append(number)
    return bytes(output)


#: The varints of small numbers: nearly all lengths, deltas and counts are among them.
_SMALL: Final = tuple(_varint(number) for number in range(8192))
_NULL: Final = _varint(-1)


def _number(number: int) -> bytes:
    return _SMALL[number] if 0 <= number < 8192 else _varint(number)


def record_bound(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return how many bytes a record of these takes in a batch at most, before compression."""
    size = RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
    for name, content in headers:
        size += 10 + len(name.encode()) + (len(content) if content is not None else 0)
    return size


class OpenBatch:
    """Records of one partition that were not sent yet. ``close`` ends it.

    ``size`` is what the frame will have at most, uncompressed; ``largest`` is the longest record's own part of it.
    """

    __slots__ = ("_base_timestamp", "_buffer", "_capacity", "_codec", "_level", "_transactional", "count", "largest",
                 "max_timestamp")  # fmt: skip

    def __init__(
        self, codec: int = Codec.NONE, level: int | None = None, capacity: int = 16384, transactional: bool = False
    ) -> None:
        """``capacity``: the frame is no longer than this, in bytes, unless it holds a single record."""
        self._codec, self._level, self._capacity, self._transactional = codec, level, capacity, transactional
        self._buffer = bytearray(BATCH_OVERHEAD)
        self._base_timestamp = NO_TIMESTAMP
        self.count = 0
        self.largest = 0
        self.max_timestamp = NO_TIMESTAMP

    @property
    def size(self) -> int:
        return len(self._buffer)

    @property
    def is_full(self) -> bool:
        """Whether no record fits any more."""
        return self.count > 0 and len(self._buffer) >= self._capacity

    @property
    def is_compressed(self) -> bool:
        return self._codec != Codec.NONE

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> bool:
        """Append a record; return False, and append nothing, where it has no room. The first one always has."""
        count = self.count
        delta = timestamp - self._base_timestamp if count else 0
        parts = [
            b"\0",
            _number(delta),
            _number(count),
            _NULL if key is None else _number(len(key)),
            key or b"",
            _NULL if value is None else _number(len(value)),
            value or b"",
            _number(len(headers)),
        ]
        for name, content in headers:
            encoded = name.encode()
            parts += _number(len(encoded)), encoded, _NULL if content is None else _number(len(content)), content or b""
        body = b"".join(parts)
        length = _number(len(body))
        size = len(length) + len(body)
        if count and len(self._buffer) + size > self._capacity:
            return False
        if not count:
            self._base_timestamp = timestamp
        self._buffer += length
        self._buffer += body
        self.count = count + 1
        if size > self.largest:
            self.largest = size
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return True

    def close(self) -> ClosedBatch:
        """Compress the records and return the batch that can be sent. Nothing can be appended any more.

        It may run in a thread. Raises UnsupportedCodec.
        """
        buffer, codec = self._buffer, self._codec
        uncompressed = len(buffer) - BATCH_OVERHEAD
        if codec != Codec.NONE:
            buffer = bytearray(BATCH_OVERHEAD)
            buffer += compress(codec, memoryview(self._buffer)[BATCH_OVERHEAD:], self._level)
            self._buffer = bytearray()
        attributes = codec | (TRANSACTIONAL_FLAG if self._transactional else 0)
        return ClosedBatch(
            buffer,
            attributes,
            self.count,
            self._base_timestamp,
            self.max_timestamp,
            uncompressed,
            level=self._level,
            largest=self.largest,
        )


class ClosedBatch:
    """The records of one partition as they are sent. ``size`` is the length of the frame.

    ``payload_size`` is how long the records are without compression.
    """

    __slots__ = ("_attributes", "_base_timestamp", "_buffer", "_header", "_level", "count", "largest", "max_timestamp",
                 "payload_size")  # fmt: skip

    def __init__(
        self,
        buffer: bytearray,
        attributes: int,
        count: int,
        base_timestamp: int,
        max_timestamp: int,
        payload_size: int,
        *,
        level: int | None,
        largest: int,
    ) -> None:
        self._buffer, self._attributes, self._base_timestamp, self._level = buffer, attributes, base_timestamp, level
        self.count, self.max_timestamp, self.payload_size, self.largest = count, max_timestamp, payload_size, largest
        self._header: tuple[int, int, int] | None = None

    @property
    def size(self) -> int:
        return len(self._buffer)

    def frame(self, producer_id: int, epoch: int, base_sequence: int) -> bytearray:
        """Return the whole batch, with a header of this producer. With the same arguments no byte of it changes.

        Each call returns the same buffer: another producer, epoch or sequence may be given only once no frame before
        is still being written.
        """
        given = (producer_id, epoch, base_sequence)
        if given != self._header:
            buffer = self._buffer
            _CHECKED.pack_into(
                buffer,
                CRC_START,
                self._attributes,
                self.count - 1,
                self._base_timestamp,
                self.max_timestamp,
                producer_id,
                epoch,
                base_sequence,
                self.count,
            )
            crc = crc32c(memoryview(buffer)[CRC_START:])
            _UNCHECKED.pack_into(buffer, 0, 0, len(buffer) - PREFIX_SIZE, -1, MAGIC, crc)
            self._header = given
        return self._buffer

    def split(self, capacity: int) -> list[OpenBatch]:
        """Return the same records in order, in batches of ``capacity`` bytes at most, each with one record at least."""
        header = self._read_header()
        payload = decompress(header.codec, memoryview(self._buffer)[BATCH_OVERHEAD:], self.payload_size)
        reader = new_reader(header, payload, topic="", partition=-1)
        transactional = bool(self._attributes & TRANSACTIONAL_FLAG)
        batches: list[OpenBatch] = []
        for record in reader.take(self.count):
            parts = record.timestamp, record.key, record.value, record.headers
            if not batches or not batches[-1].append(*parts):
                batches.append(OpenBatch(header.codec, self._level, capacity, transactional))
                batches[-1].append(*parts)
        return batches

    def _read_header(self) -> BatchHeader:
        if self._header is None:
            self.frame(-1, -1, -1)
        return BatchHeader._make(HEADER.unpack_from(self._buffer))
