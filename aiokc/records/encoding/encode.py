"""Encodes record batches as a producer or a transaction coordinator writes them, for aiokc.testing and tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from ...types import NO_TIMESTAMP
from ..batch import CONTROL_FLAG, CRC_START, LOG_APPEND_TIME_FLAG, MAGIC, PREFIX_SIZE, TRANSACTIONAL_FLAG
from ..compression import Codec, compress
from ..transactions import CONTROL_KEY, ControlType
from ._pure import encoded_record


class NewRecord(NamedTuple):
    """A record to write. ``timestamp`` is in ms; ``offset_delta`` None: one more than that of the record before it."""

    value: bytes | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = NO_TIMESTAMP
    offset_delta: int | None = None


def encode_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    codec: int = Codec.NONE,
    leader_epoch: int = -1,
    append_time: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    last_offset_delta: int | None = None,
) -> bytes:
    """Return a record batch.

    ``append_time`` (ms) makes its timestamps LOG_APPEND_TIME. ``last_offset_delta`` is by default that of the last
    record: a compacted batch keeps its former one, and may have no record at all. Raises UnsupportedCodec.
    """
    records = list(records)
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    codec = codec if records else Codec.NONE  # as Kafka's log cleaner does
    payload = bytearray()
    delta = -1
    for record in records:
        delta = delta + 1 if record.offset_delta is None else record.offset_delta
        payload += encoded_record(record.timestamp - base_timestamp, delta, record.key, record.value, record.headers)
    max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    attributes = (
        codec
        | (LOG_APPEND_TIME_FLAG if append_time is not None else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
    )
    checked = _CHECKED.pack(
        attributes,
        delta if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp if append_time is None else append_time,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    ) + compress(codec, bytes(payload))
    length = CRC_START - PREFIX_SIZE + len(checked)
    return _UNCHECKED.pack(base_offset, length, leader_epoch, MAGIC, crc32c(memoryview(checked))) + checked


def encode_control_batch(
    marker: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    timestamp: int = NO_TIMESTAMP,
    coordinator_epoch: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the control batch with which a transaction coordinator ends a producer's transaction."""
    record = NewRecord(
        key=CONTROL_KEY.pack(0, marker), value=_END_MARKER.pack(0, coordinator_epoch), timestamp=timestamp
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


#: batch.HEADER in two parts: what the CRC does not cover, with the CRC as its last field; and what the CRC covers.
_UNCHECKED: Final = Struct(">qiibI")
_CHECKED: Final = Struct(">hiqqqhii")
_END_MARKER: Final = Struct(">hi")  # EndTxnMarker: version, epoch of the coordinator
