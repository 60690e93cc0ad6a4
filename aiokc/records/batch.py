"""Splits the records of a Fetch response into batches and reads their headers (magic 2, KIP-98).

Message sets (magic 0 and 1, see message_set), which may come before, behind and between batches, are split as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from ..errors import CorruptRecord
from ..types import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP

MAGIC: Final = 2

#: base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
#: max_timestamp, producer_id, producer_epoch, base_sequence, record_count
HEADER: Final = Struct(">qiibIhiqqqhii")
#: What ``batch_length`` does not count: itself and the base offset.
PREFIX_SIZE: Final = 12
#: The CRC covers everything from the attributes on. It does not cover offset and leader epoch, which a broker sets.
CRC_START: Final = 21

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20

#: The beginning of a message of magic 0 or 1: offset, size, CRC, magic, attributes.
MESSAGE: Final = Struct(">qiIbb")
#: The sizes of empty messages, by magic. An empty message of magic 0 is the smallest entry that a log can hold.
SMALLEST_MESSAGES: Final = (14, 22)

_PREFIX: Final = Struct(">qi")
_MAGIC_AT: Final = 16
_MESSAGE_TIMESTAMP: Final = Struct(">q")
_MESSAGE_TIMESTAMP_AT: Final = 18
_MESSAGE_ATTRIBUTES: Final = CODEC_MASK | LOG_APPEND_TIME_FLAG  # the others mean nothing yet
_MAX_OFFSET: Final = (1 << 63) - 1
# A longer run of messages is cut: 64 of these are found in one step, which takes 4 ms.
_MOST_MESSAGES: Final = 128

#: How far a reader has come in its batch. What the numbers mean is the reader's own affair.
Place: TypeAlias = tuple[int, int, int]


class BatchHeader(NamedTuple):
    """The header of one record batch. Offsets and record count are untrusted until the CRC was checked.

    For a message set (``magic`` 0 or 1) it describes a run of uncompressed messages, or one compressed message that
    holds others. Of a compressed one only the last offset is known: ``base_offset`` is that offset, too, and
    ``record_count`` is -1.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The bytes of the whole batch."""
        return PREFIX_SIZE + self.batch_length

    @property
    def last_offset(self) -> int:
        """The last offset of the batch. Compaction removes records and leaves this as it was."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset behind the batch: the position once the batch is read, whatever compaction left in it."""
        return self.base_offset + self.last_offset_delta + 1

    def begins_behind(self, offset: int) -> bool:
        """Whether all of the batch is known to lie at ``offset`` or behind it: of a compressed message it is not."""
        return self.record_count >= 0 and self.base_offset >= offset

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the leader that appended the batch; None if the broker did not store one."""
        return self.partition_leader_epoch if self.partition_leader_epoch >= 0 else None

    @property
    def codec(self) -> int:
        """The compression: a number of ``compression.Codec``."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME, or LOG_APPEND_TIME: then ``max_timestamp`` is the timestamp of every record in the batch.

        In a run of messages each one has its own timestamp. Messages of magic 0 have none, whatever this says.
        """
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, such as a transaction's marker, and no records of a producer."""
        return bool(self.attributes & CONTROL_FLAG)


# Does what BatchHeader._make does, without its check of the number of fields.
_new_header: Final[Callable[[type[BatchHeader], tuple[int, ...]], BatchHeader]] = tuple.__new__


def split_batches(records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each complete batch of a Fetch response's ``records`` as its header and all of its bytes.

    Of message sets it yields each compressed message, and each run of uncompressed ones. Brokers cut what they send at
    a byte limit: a partial batch at the end is no error and is left out. Only the header's own consistency is checked
    here, and nothing is decompressed. Raises CorruptRecord, after it has yielded the batches before the corrupt one.
    """
    start, end = 0, len(records)
    while end - start >= PREFIX_SIZE:
        base_offset, batch_length = _PREFIX.unpack_from(records, start)
        if batch_length < SMALLEST_MESSAGES[0]:
            raise CorruptRecord(f"a record batch cannot be {batch_length} bytes long", offset=base_offset)
        stop = start + PREFIX_SIZE + batch_length
        if stop > end:
            return
        if records[start + _MAGIC_AT] < MAGIC:
            header = _read_messages(records[start:])
            stop = start + header.size
            yield header, records[start:stop]
        else:
            view = records[start:stop]
            yield read_header(view), view
        start = stop


def _read_messages(records: memoryview) -> BatchHeader:
    """Return a header for the message or run at the beginning of ``records``. The first message must be complete."""
    base_offset, size, crc, magic, attributes = MESSAGE.unpack_from(records)
    if size < SMALLEST_MESSAGES[magic]:
        raise CorruptRecord(f"{size} bytes cannot hold a message of magic {magic}", offset=base_offset)
    if not 0 <= base_offset < _MAX_OFFSET:
        raise CorruptRecord(f"no message can lie at offset {base_offset}", offset=base_offset)
    attributes &= _MESSAGE_ATTRIBUTES
    timestamp = _MESSAGE_TIMESTAMP.unpack_from(records, _MESSAGE_TIMESTAMP_AT)[0] if magic else NO_TIMESTAMP
    last_offset, count, stop = base_offset, -1, PREFIX_SIZE + size
    if not attributes & CODEC_MASK:
        last_offset, count, stop = _run(records, stop, last_offset, magic, attributes)
    return BatchHeader(
        base_offset,
        stop - PREFIX_SIZE,
        -1,
        magic,
        crc,
        attributes,
        last_offset - base_offset,
        timestamp,
        timestamp,
        -1,
        -1,
        -1,
        count,
    )


def _run(records: memoryview, at: int, last_offset: int, magic: int, attributes: int) -> tuple[int, int, int]:
    """Return the last offset of the run of messages that goes on at ``at``, its number of messages, and where it ends.

    The run ends before a message that does not fit to it. That one is read next, and raises there if it is malformed.
    """
    unpack, smallest = MESSAGE.unpack_from, SMALLEST_MESSAGES[magic]
    count, end = 1, len(records)
    while end - at >= MESSAGE.size and count < _MOST_MESSAGES:
        offset, size, _, its_magic, its_attributes = unpack(records, at)
        is_alike = its_magic == magic and its_attributes & _MESSAGE_ATTRIBUTES == attributes
        if not is_alike or not smallest <= size <= end - at - PREFIX_SIZE or not last_offset < offset < _MAX_OFFSET:
            break
        at += PREFIX_SIZE + size
        last_offset = offset
        count += 1
    return last_offset, count, at


def read_header(view: memoryview) -> BatchHeader:
    """Return the header of the batch in ``view``, which must be as long as the batch. Raises CorruptRecord."""
    magic = view[_MAGIC_AT]
    if magic > MAGIC:
        raise CorruptRecord(f"{magic} is no magic of a record batch", offset=_PREFIX.unpack_from(view)[0])
    if len(view) < HEADER.size:
        base_offset, batch_length = _PREFIX.unpack_from(view)
        raise CorruptRecord(f"{batch_length} bytes cannot hold the header of a record batch", offset=base_offset)
    header = _new_header(BatchHeader, HEADER.unpack_from(view))
    base_offset, last_offset_delta, record_count = header[0], header[6], header[12]
    if last_offset_delta < 0 or not 0 <= base_offset < _MAX_OFFSET - last_offset_delta:
        raise CorruptRecord(
            f"no batch can span {last_offset_delta + 1} offsets from {base_offset} on", offset=base_offset
        )
    if not 0 <= record_count <= last_offset_delta + 1:
        raise CorruptRecord(
            f"a batch of {last_offset_delta + 1} offsets cannot hold {record_count} records", offset=base_offset
        )
    return header
