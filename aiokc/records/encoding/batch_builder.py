"""A batch that a producer fills, record by record, and the frame that it becomes: OpenBatch, ClosedBatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Self

from ... import native
from ..batch import HEADER, TRANSACTIONAL_FLAG, BatchHeader
from ..compression import Codec, compress, decompress
from ..decode import new_reader
from . import _pure
from ._pure import KEYS_CHOOSE_BY_MURMUR2 as KEYS_CHOOSE_BY_MURMUR2
from ._pure import KEYS_CHOOSE_NOTHING as KEYS_CHOOSE_NOTHING
from ._pure import KEYS_STOP as KEYS_STOP
from ._pure import record_bound as record_bound

if TYPE_CHECKING:
    from ._pure import BufferMemory as BufferMemory
    from ._pure import RecordAppender
    from ._pure import append_records as append_records
else:
    _chosen = native.extension if native.NATIVE else _pure
    BufferMemory, RecordAppender = _chosen.BufferMemory, _chosen.RecordAppender
    append_records = _chosen.append_records

#: What a batch is longer than its records: the header.
BATCH_OVERHEAD: Final = HEADER.size
#: A step of a split has so many records at most, and about so many bytes: it takes a part of a millisecond.
_SPLIT_RECORDS: Final = 128
_SPLIT_BYTES: Final = 256 << 10


class OpenBatch(RecordAppender):
    """Records of one partition that were not sent yet. ``close`` ends it.

    What it can do beside that is in RecordAppender (``_pure``, or in C).
    """

    __slots__ = ("_codec", "_level", "_transactional")

    _codec: int
    _level: int | None
    _transactional: bool

    def __new__(
        cls,
        codec: int = Codec.NONE,
        level: int | None = None,
        capacity: int = 16384,
        transactional: bool = False,
        memory: BufferMemory | None = None,
    ) -> Self:
        """``capacity``: the frame is no longer than this, in bytes, unless it holds a single record.

        The bytes of its records are added to ``memory``, and never taken off by it.
        """
        self = super().__new__(cls, capacity, memory)
        self._codec, self._level, self._transactional = codec, level, transactional
        return self

    def close(self) -> ClosedBatch:
        """Compress the records and return the batch that can be sent. Nothing can be appended any more.

        It may run in a thread. Raises UnsupportedCodec.
        """
        buffer, codec = self.take(), self._codec
        uncompressed = len(buffer) - BATCH_OVERHEAD
        if codec != Codec.NONE:
            records, buffer = buffer, bytearray(BATCH_OVERHEAD)
            buffer += compress(codec, memoryview(records)[BATCH_OVERHEAD:], self._level)
        attributes = codec | (TRANSACTIONAL_FLAG if self._transactional else 0)
        return ClosedBatch(buffer, self, attributes, uncompressed, self._level)


class ClosedBatch:
    """The records of one partition as they are sent. ``size`` is the length of the frame.

    ``payload_size`` is how long the records are without compression.
    """

    __slots__ = ("_attributes", "_buffer", "_header", "_level", "_records", "count", "payload_size", "size")

    def __init__(
        self, buffer: bytearray, records: RecordAppender, attributes: int, payload_size: int, level: int | None
    ) -> None:
        """``records`` have filled the buffer; since then they may have been compressed."""
        self._buffer, self._records, self._attributes, self._level = buffer, records, attributes, level
        self.count, self.size, self.payload_size = records.count, len(buffer), payload_size
        self._header: tuple[int, int, int] | None = None

    @property
    def max_timestamp(self) -> int:
        """The latest timestamp of its records, in ms."""
        return self._records.max_timestamp

    def frame(self, producer_id: int, epoch: int, base_sequence: int) -> bytearray:
        """Return the whole batch, with a header of this producer. With the same arguments no byte of it changes.

        Each call returns the same buffer: another producer, epoch or sequence may be given only once no frame before
        is still being written.
        """
        given = (producer_id, epoch, base_sequence)
        if given != self._header:
            self._records.write_header(self._buffer, self._attributes, producer_id, epoch, base_sequence)
            self._header = given
        return self._buffer

    def split(self, capacity: int) -> Iterator[list[OpenBatch]]:
        """Put the same records in order into batches of ``capacity`` bytes at most, each with one record at least.

        A large batch takes many steps. Each yields the batches so far, the same list, and the last one leaves them
        whole. Until then, no other producer, epoch or sequence may be given to ``frame``.
        """
        header = self._read_header()
        payload = decompress(header.codec, memoryview(self._buffer)[BATCH_OVERHEAD:], self.payload_size)
        reader = new_reader(header, payload, topic="", partition=-1)
        transactional = bool(self._attributes & TRANSACTIONAL_FLAG)
        step = min(_SPLIT_RECORDS, max(1, self.count * _SPLIT_BYTES // max(1, len(payload))))
        batches: list[OpenBatch] = []
        while reader.remaining:
            for record in reader.take(step):
                parts = record.timestamp, record.key, record.value, record.headers
                if not batches or not batches[-1].append(*parts):
                    batches.append(OpenBatch(header.codec, self._level, capacity, transactional))
                    batches[-1].append(*parts)
            yield batches

    def _read_header(self) -> BatchHeader:
        if self._header is None:
            self.frame(-1, -1, -1)
        return BatchHeader._make(HEADER.unpack_from(self._buffer))
