"""The decoder of message sets (magic 0 and 1): Kafka's format before 0.11, which brokers before 4.0 may still send.

A message is: offset (8 bytes), size (4), CRC-32 of all that follows it (4), magic, attributes, with magic 1 a timestamp
(8, KIP-32), key and value, each behind its length (4; negative: null). A compressed message, the wrapper, has another
message set as its value, and the offset of the last message in that set. With magic 0, the offsets inside are those of
the log; with magic 1 they are relative to the first one (KIP-31), which follows from the wrapper's offset and the last.

Message sets have no headers, leader epochs, transactions or batches. ``batch.split_batches`` makes runs of uncompressed
messages that lie side by side.
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from zlib import crc32

from ..errors import CorruptRecord
from ..native import NATIVE, extension
from ..types import LOG_APPEND_TIME, NO_TIMESTAMP, RawRecord, raw_record
from .batch import CODEC_MASK, MESSAGE, PREFIX_SIZE, SMALLEST_MESSAGES, BatchHeader, Place
from .compression import Codec, decompress
from .lone_record import LONG_BYTES, LoneRecord
from .lz4_header import with_right_checksum

_LENGTH: Final = Struct(">i")
_TIMESTAMP: Final = Struct(">q")
_CRC_START: Final = 16
_TIMESTAMP_AT: Final = 18
#: Where the key's length is, by magic.
_KEY_AT: Final = (18, 26)
#: So many messages take about 0.5 ms to read.
_MOST_AT_ONCE: Final = 256
#: A value of so many bytes is copied without the GIL, where the extension is there: a thread may be opening the batch.
_LONG: Final = LONG_BYTES if NATIVE else 1 << 31


class _Malformed(Exception):
    """A message of the set is malformed; the exception's text says how."""


class MessageReader:
    """The records of one run of messages, or of a wrapper's messages, decoded as the caller asks for them.

    The caller has checked that the ``messages`` in ``payload`` begin and end where their sizes say, and that their
    offsets ascend. ``base_offset`` is added to their offsets. ``append_time``, if given, replaces their timestamps.
    """

    __slots__ = (
        "_append_time",
        "_base_offset",
        "_check_crcs",
        "_partition",
        "_payload",
        "_position",
        "_timestamp_type",
        "_topic",
        "next_offset",
        "remaining",
    )

    def __init__(
        self,
        payload: bytes,
        messages: int,
        *,
        topic: str,
        partition: int,
        timestamp_type: int,
        base_offset: int = 0,
        append_time: int | None = None,
        check_crcs: bool = True,
    ) -> None:
        self._payload = payload
        self._topic = topic
        self._partition = partition
        self._timestamp_type = timestamp_type
        self._base_offset = base_offset
        self._append_time = append_time
        self._check_crcs = check_crcs
        self._position = 0
        #: How many messages were neither read nor skipped yet. 0: all are read.
        self.remaining = messages
        #: The offset behind the last record that was read or skipped.
        self.next_offset = base_offset

    def mark(self) -> Place:
        """Return the place of the next record, for ``go_back``."""
        return self._position, self.next_offset, self.remaining

    def go_back(self, place: Place) -> None:
        """Go back to a place that ``mark`` returned."""
        self._position, self.next_offset, self.remaining = place

    def take(self, count: int, from_offset: int = 0) -> list[RawRecord]:
        """Return the next records with an offset >= ``from_offset``, at most ``count``; [] once all are read.

        Raises CorruptRecord. If messages before the corrupt one could be read, this call returns them and the next one
        raises.
        """
        before = self.mark()
        self._skip_to(from_offset - self._base_offset)
        taken: list[RawRecord] = []
        try:
            self._read(min(count, self.remaining, _MOST_AT_ONCE), taken)
        except _Malformed as error:
            if not taken:
                offset = self._base_offset + MESSAGE.unpack_from(self._payload, self._position)[0]
                raise CorruptRecord(
                    f"{error}; if it stays so, seek() to {offset + 1} to skip the message",
                    topic=self._topic,
                    partition=self._partition,
                    offset=offset,
                ) from error
        except BaseException:  # no memory, say: nothing is handed out, so nothing is read
            self.go_back(before)
            raise
        return taken

    def _skip_to(self, wanted: int) -> None:
        """Skip the messages before the offset ``wanted``. Of each, it reads only offset and size."""
        unpack, payload = MESSAGE.unpack_from, self._payload
        while self.remaining:
            offset, size, _, _, _ = unpack(payload, self._position)
            if offset >= wanted:
                return
            self._position += PREFIX_SIZE + size
            self.remaining -= 1
            self.next_offset = self._base_offset + offset + 1

    def _read(self, count: int, taken: list[RawRecord]) -> None:
        """Append the next ``count`` records to ``taken``."""
        topic, partition, check_crcs = self._topic, self._partition, self._check_crcs
        base_offset, append_time = self._base_offset, self._append_time
        payload, view = self._payload, memoryview(self._payload)
        unpack, unpack_length = MESSAGE.unpack_from, _LENGTH.unpack_from
        start = self._position
        try:
            for _ in range(count):
                offset, size, crc, magic, _ = unpack(payload, start)
                end = start + PREFIX_SIZE + size
                if check_crcs and crc32(view[start + _CRC_START : end]) != crc:
                    raise _wrong_crc(crc, view[start + _CRC_START : end])
                at = start + _KEY_AT[magic] + 4
                (length,) = unpack_length(payload, at - 4)
                key = None if length < 0 else payload[at : (at := at + length)]
                at += 4
                if at > end:
                    raise _Malformed("the key of a message is longer than the message")
                (length,) = unpack_length(payload, at - 4)
                if length < _LONG:
                    value = None if length < 0 else payload[at : (at := at + length)]
                else:
                    value = extension.copied(view[at : (at := at + length)])
                if at != end:
                    raise _Malformed("the parts of a message do not add up to its size")
                timestamp = timestamp_type = NO_TIMESTAMP
                if magic:
                    timestamp_type = self._timestamp_type
                    if append_time is None:
                        (timestamp,) = _TIMESTAMP.unpack_from(payload, start + _TIMESTAMP_AT)
                    else:
                        timestamp = append_time
                offset += base_offset
                record = raw_record(topic, partition, offset, timestamp, timestamp_type, key, value, (), None)
                taken.append(record)
                start = end
        finally:
            self._position = start
            self.remaining -= len(taken)
            if taken:
                self.next_offset = taken[-1].offset + 1


def open_messages(
    header: BatchHeader,
    view: memoryview,
    *,
    topic: str,
    partition: int,
    check_crcs: bool,
    max_decompressed_bytes: int,
) -> tuple[MessageReader | LoneRecord, int]:
    """Return a reader of a batch that split_batches made of messages, and how many bytes the reader keeps.

    ``view`` is not kept. A wrapper is checked and decompressed here. Uncompressed messages are checked as they are
    read, and a long one that is alone is read here. Raises RecordError, whose place the caller sets.
    """
    if header.codec == Codec.NONE:
        payload = extension.copied(view) if NATIVE else bytes(view)  # as in ``read_payload``
        messages, base_offset, append_time = header.record_count, 0, None
    else:
        try:
            payload = _unwrap(header, view, max_decompressed_bytes, check_crcs=check_crcs)
            messages, base_offset = _scan(payload, header)
        except _Malformed as error:
            raise CorruptRecord(f"{error}; if it stays so, seek() to {header.next_offset} to skip it") from error
        append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    reader = MessageReader(
        payload,
        messages,
        topic=topic,
        partition=partition,
        timestamp_type=header.timestamp_type,
        base_offset=base_offset,
        append_time=append_time,
        check_crcs=check_crcs,
    )
    if messages == 1 and len(payload) >= LONG_BYTES:
        return LoneRecord(header, reader.take(1)[0]), len(payload)
    return reader, len(payload)


def _unwrap(header: BatchHeader, view: memoryview, limit: int, *, check_crcs: bool) -> bytes:
    """Return the message set that a wrapper holds."""
    covered = view[_CRC_START:]
    if check_crcs and crc32(covered) != header.crc:
        raise _wrong_crc(header.crc, covered)
    at, end = _KEY_AT[header.magic] + 4, len(view)
    (length,) = _LENGTH.unpack_from(view, at - 4)
    at += max(length, 0) + 4
    length = _LENGTH.unpack_from(view, at - 4)[0] if at <= end else -1
    if length < 0 or at + length != end:
        raise _Malformed("a compressed message set without its bytes")
    value = view[at:]
    if header.codec == Codec.ZSTD:
        raise _Malformed("a message set cannot be compressed with zstd, which came after it")
    if header.codec == Codec.LZ4 and header.magic == 0:
        value = memoryview(with_right_checksum(bytes(value)))
    return decompress(header.codec, value, limit)


def _scan(payload: bytes, wrapper: BatchHeader) -> tuple[int, int]:
    """Return how many messages a wrapper holds, and what their offsets are relative to.

    A partial message at the end is an error here, unlike at the end of a Fetch response: the wrapper is complete.
    """
    unpack, size = MESSAGE.unpack_from, len(payload)
    at, messages, last = 0, 0, -1
    while at < size:
        if size - at < MESSAGE.size:
            raise _Malformed("the messages inside of a compressed one break off")
        offset, length, _, magic, attributes = unpack(payload, at)
        if magic not in (0, 1):
            raise _Malformed(f"a message of magic {magic} inside of one of magic {wrapper.magic}")
        if attributes & CODEC_MASK:
            raise _Malformed("a compressed message inside of a compressed one")
        if not SMALLEST_MESSAGES[magic] <= length <= size - at - PREFIX_SIZE:
            raise _Malformed(f"a message of {length} bytes inside of a compressed one, where it has no room")
        if offset <= last:
            raise _Malformed(f"offset {offset} follows {last} inside of a compressed message")
        at += PREFIX_SIZE + length
        last = offset
        messages += 1
    if not messages:
        raise _Malformed("a compressed message set without messages")
    if last > wrapper.last_offset:
        raise _Malformed(f"offset {last} inside of a compressed message that ends at {wrapper.last_offset}")
    return messages, wrapper.last_offset - last if wrapper.magic else 0


def _wrong_crc(expected: int, covered: memoryview) -> _Malformed:
    return _Malformed(f"the CRC-32 of a message is {crc32(covered):#010x} and not {expected:#010x}")
