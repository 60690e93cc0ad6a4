"""The log of one partition: appends batches, reads them back, finds offsets, trims, truncates, tracks transactions."""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from ...error_codes import ErrorCode
from ...records import BatchHeader, ControlType, control_type, open_batch, split_batches
from ...records.batch import CRC_START, LOG_APPEND_TIME_FLAG
from ..refusal import Refusal
from .leader_epochs import LeaderEpochs
from .producer_states import ProducerStates

_BASE_OFFSET: Final = Struct(">q")  # the fields of a batch that a broker sets, and their byte offsets
_LEADER_EPOCH: Final = Struct(">i")
_LEADER_EPOCH_AT: Final = 12
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_DECOMPRESSED_LIMIT: Final = 1 << 30


class Batch(NamedTuple):
    """A batch in the log."""

    header: BatchHeader
    data: bytes


class AbortedRange(NamedTuple):
    """An aborted transaction: the offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class TimedOffset(NamedTuple):
    """A record's offset and timestamp, and the epoch of its leader; all -1 where there is none."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


class TopicLog:
    """One partition's log. All replicas share it: a record is replicated as soon as it is appended."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.epochs = LeaderEpochs()
        self._batches: list[Batch] = []
        self._forget_producers()

    def _forget_producers(self) -> None:
        self.producers = ProducerStates()
        self._aborted: list[AbortedRange] = []
        self._open: dict[int, int] = {}  # by producer id: the first offset of its open transaction

    @property
    def size(self) -> int:
        """The bytes of all batches."""
        return sum(len(batch.data) for batch in self._batches)

    # Appending and deleting

    def append(self, batch: memoryview | bytes, leader_epoch: int, *, append_time: int | None = None) -> int:
        """Append one valid batch; return its base offset. ``append_time`` (ms) becomes the timestamp of its records."""
        data = bytearray(batch)
        _BASE_OFFSET.pack_into(data, 0, self.end_offset)
        _LEADER_EPOCH.pack_into(data, _LEADER_EPOCH_AT, leader_epoch)
        if append_time is not None:
            (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_START)
            _ATTRIBUTES.pack_into(data, CRC_START, attributes | LOG_APPEND_TIME_FLAG)
            _MAX_TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_AT, append_time)
            _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[CRC_START:]))
        stored = bytes(data)
        ((header, _),) = split_batches(memoryview(stored))
        if leader_epoch > self.epochs.latest:
            self.epochs.begin(leader_epoch, self.end_offset)
        self._batches.append(Batch(header, stored))
        self.end_offset = header.next_offset
        self._observe(self._batches[-1])
        return header.base_offset

    def _observe(self, batch: Batch) -> None:
        """Update the state of producers and transactions."""
        header = batch.header
        self.producers.appended(header, header.base_offset)
        if header.is_control:
            first = self._open.pop(header.producer_id, None)
            if first is not None and control_type(header, memoryview(batch.data)) == ControlType.ABORT:
                self._aborted.append(AbortedRange(header.producer_id, first, header.last_offset))
        elif header.is_transactional:
            self._open.setdefault(header.producer_id, header.base_offset)

    def trim(self, start: int) -> None:
        """Delete the records before ``start``, as retention and DeleteRecords do; none where they are gone already.

        Raises Refusal where ``start`` is behind the end of the log.
        """
        if not 0 <= start <= self.end_offset:
            raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"{start} is not in the log, which ends at {self.end_offset}")
        start = self.start_offset = max(start, self.start_offset)
        self._batches = [batch for batch in self._batches if batch.header.last_offset >= start]
        self._aborted = [aborted for aborted in self._aborted if aborted.last_offset >= start]
        self.epochs.trim(start)

    def truncate(self, end: int) -> None:
        """Lose the records from ``end`` on, in whole batches, as in an unclean leader election."""
        self._batches = [batch for batch in self._batches if batch.header.last_offset < end]
        self.end_offset = max(self._batches[-1].header.next_offset if self._batches else 0, min(self.start_offset, end))
        self.start_offset = min(self.start_offset, self.end_offset)
        self.epochs.truncate(self.end_offset)
        self._forget_producers()
        for batch in self._batches:
            self._observe(batch)

    # Reading

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction; the end of the log if there is none.

        Where the transaction's first records are deleted, it is the start of the log.
        """
        return max(self.start_offset, min(self._open.values(), default=self.end_offset))

    def has_open_transaction(self, producer_id: int) -> bool:
        return producer_id in self._open

    def read(self, offset: int, until: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Return the batches from the one with ``offset`` to ``until``, cut at ``max_bytes`` as a broker does.

        The last batch may be partial. The first never is: if it is too large, the result is that whole batch with
        ``at_least_one``, and empty without.
        """
        parts: list[bytes] = []
        size = 0
        for batch in self._batches[self._position(offset) :]:
            if batch.header.base_offset >= until or (parts and size >= max_bytes):
                break
            if not parts and len(batch.data) > max_bytes and not at_least_one:
                break
            parts.append(batch.data)
            size += len(batch.data)
        limit = max(max_bytes, len(parts[0])) if parts else 0
        return b"".join(parts)[:limit]

    def aborted_between(self, offset: int, until: int) -> list[AbortedRange]:
        """Return the aborted transactions that overlap the offsets from ``offset`` to before ``until``."""
        return [aborted for aborted in self._aborted if aborted.last_offset >= offset and aborted.first_offset < until]

    def offset_behind(self, records: bytes, offset: int) -> int:
        """Return the offset after the ``records`` that ``read`` returned; ``offset`` if there are none."""
        ends = [header.next_offset for header, _ in split_batches(memoryview(records))]
        return ends[-1] if ends else offset

    def first_at_or_after(self, timestamp: int) -> TimedOffset:
        """Return the first record whose timestamp is ``timestamp`` (ms) or later."""
        for batch in self._batches:
            if batch.header.max_timestamp >= timestamp:
                for offset, time in _times(batch):
                    if time >= timestamp and offset >= self.start_offset:
                        return TimedOffset(offset, time, batch.header.partition_leader_epoch)
        return TimedOffset()

    def of_max_timestamp(self) -> TimedOffset:
        """Return the first record that has the log's highest timestamp (KIP-734)."""
        if not self._batches:
            return TimedOffset()
        return self.first_at_or_after(max(batch.header.max_timestamp for batch in self._batches))

    def _position(self, offset: int) -> int:
        return bisect_left(self._batches, offset, key=lambda batch: batch.header.last_offset)


def _times(batch: Batch) -> list[tuple[int, int]]:
    """Return the offset and timestamp of each record, control records included."""
    header = batch.header
    if header.is_control:
        return [(header.base_offset, header.max_timestamp)]
    reader = open_batch(
        header, memoryview(batch.data), topic="", partition=-1, max_decompressed_bytes=_DECOMPRESSED_LIMIT
    )
    return [(record.offset, record.timestamp) for record in reader.take(header.record_count)]
