"""Record batches (magic 2, KIP-98): where each one begins and ends in a Fetch response, and what its header says."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ..errors import CorruptRecord, RecordError
from ..types import CREATE_TIME, LOG_APPEND_TIME

MAGIC: Final = 2

#: base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
#: max_timestamp, producer_id, producer_epoch, base_sequence, record_count
HEADER: Final = Struct(">qiibIhiqqqhii")
#: What ``batch_length`` does not count: itself and the base offset.
PREFIX_SIZE: Final = 12
#: The CRC covers everything from the attributes on. The offset and the leader epoch lie before it: a broker sets them.
CRC_START: Final = 21

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20

_PREFIX: Final = Struct(">qi")
_MAGIC_AT: Final = 16
_SMALLEST_MESSAGE: Final = 14  # batch_length of an empty message of magic 0, the smallest thing that a log ever held
_MAX_OFFSET: Final = (1 << 63) - 1


class BatchHeader(NamedTuple):
    """The header of one record batch. Offsets and record count are untrusted until the CRC was checked."""

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
        """Bytes of the whole batch."""
        return PREFIX_SIZE + self.batch_length

    @property
    def last_offset(self) -> int:
        """The last offset that the batch ever held: compaction removes records and leaves this."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Where the next batch begins: the position once this one is read, whatever compaction left in it."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the leader that appended the batch; None where the broker did not store one."""
        return self.partition_leader_epoch if self.partition_leader_epoch >= 0 else None

    @property
    def codec(self) -> int:
        """The compression, as a number: see ``compression.Codec``."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """LOG_APPEND_TIME: ``max_timestamp`` is the timestamp of every record in the batch."""
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """The batch holds a transaction marker, not records of a user."""
        return bool(self.attributes & CONTROL_FLAG)


def split_batches(records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield each complete batch of a Fetch response's ``records`` as its header and all of its bytes.

    Brokers cut what they send at a byte limit: a partial batch at the end is no error and is left out. Nothing is
    checked or decompressed here beyond the header's own consistency. Raises RecordError, after the batches before it.
    """
    start, end = 0, len(records)
    while end - start >= PREFIX_SIZE:
        base_offset, batch_length = _PREFIX.unpack_from(records, start)
        if batch_length < _SMALLEST_MESSAGE:
            raise CorruptRecord(f"a record batch cannot be {batch_length} bytes long", offset=base_offset)
        stop = start + PREFIX_SIZE + batch_length
        if stop > end:
            return
        view = records[start:stop]
        yield read_header(view), view
        start = stop


def read_header(view: memoryview) -> BatchHeader:
    """Return the header of the batch that ``view`` holds. Raises RecordError."""
    base_offset, batch_length = _PREFIX.unpack_from(view)
    magic = view[_MAGIC_AT]
    if magic < MAGIC:
        raise RecordError(
            f"the log holds a message set of magic {magic} here, the format of brokers before 0.11; "
            f"this version of aiokc reads record batches (magic {MAGIC}) only",
            offset=base_offset,
        )
    if magic > MAGIC:
        raise CorruptRecord(f"{magic} is no magic of a record batch", offset=base_offset)
    if PREFIX_SIZE + batch_length < HEADER.size:
        raise CorruptRecord(f"{batch_length} bytes cannot hold the header of a record batch", offset=base_offset)
    header = BatchHeader._make(HEADER.unpack_from(view))
    if not 0 <= base_offset <= _MAX_OFFSET - max(header.last_offset_delta, 0) - 1 or header.last_offset_delta < 0:
        raise CorruptRecord(
            f"no batch can span {header.last_offset_delta + 1} offsets from {base_offset} on", offset=base_offset
        )
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptRecord(
            f"a batch of {header.last_offset_delta + 1} offsets cannot hold {header.record_count} records",
            offset=base_offset,
        )
    return header
