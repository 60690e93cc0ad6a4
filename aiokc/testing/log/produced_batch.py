"""The checks of a produced batch before a broker appends it: format, CRC, size, records (Kafka's LogValidator)."""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...errors import RecordError
from ...records import BatchHeader, Codec, RecordReader, split_batches
from ...records.batch import MAGIC
from ...records.decode import check_crc, new_reader, read_payload
from ...types import NO_TIMESTAMP
from ..refusal import Refusal
from .topics import Topic

_MAGIC_AT: Final = 16
_ZSTD_FROM: Final = 7  # KIP-110
_DECOMPRESSED_LIMIT: Final = 1 << 30


def checked_batch(
    records: memoryview | None, version: int, *, topic: Topic, max_bytes: int, timestamps: range
) -> tuple[BatchHeader, memoryview]:
    """Return the only batch of a partition's produced data, checked. Raises Refusal where it is not valid.

    ``timestamps`` (ms) are those that a record may have, where the producer sets the timestamps.
    """
    header, batch = _only_batch(records)
    if header.codec == Codec.ZSTD and version < _ZSTD_FROM:
        raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd in version {version}")
    try:
        check_crc(header, batch)
    except RecordError as error:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if header.is_control:
        raise Refusal(ErrorCode.INVALID_RECORD, "a producer may not write control records")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise Refusal(ErrorCode.INVALID_RECORD, "a producer's batch has as many records as offsets, at least one")
    if header.size > max_bytes:
        raise Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"{header.size} bytes, the limit is {max_bytes}")
    _check_records(header, _payload(header, batch), topic, timestamps)
    return header, batch


def _only_batch(records: memoryview | None) -> tuple[BatchHeader, memoryview]:
    given = records or memoryview(b"")
    try:
        batches = list(split_batches(given))
    except RecordError as error:
        is_known = len(given) > _MAGIC_AT and given[_MAGIC_AT] <= MAGIC
        code = ErrorCode.INVALID_RECORD if is_known else ErrorCode.CORRUPT_MESSAGE
        raise Refusal(code, str(error)) from error
    if batches and batches[0][0].magic < MAGIC:
        raise Refusal(ErrorCode.INVALID_RECORD, f"a message set of magic {batches[0][0].magic}")
    if len(batches) != 1 or batches[0][0].size != len(given):
        raise Refusal(ErrorCode.INVALID_RECORD, f"{len(batches)} complete batches, where there must be one")
    return batches[0]


def _payload(header: BatchHeader, batch: memoryview) -> bytes:
    try:
        return read_payload(header, batch, _DECOMPRESSED_LIMIT)
    except RecordError as error:  # Kafka has no code of its own for a codec that fails
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error


def _check_records(header: BatchHeader, payload: bytes, topic: Topic, timestamps: range) -> None:
    found = 0
    without_key: dict[int, str] = {}
    out_of_range: dict[int, str] = {}
    try:
        reader: RecordReader = new_reader(header, payload, topic="", partition=-1)
        while some := reader.take(header.record_count):
            for index, record in enumerate(some, found):
                if topic.is_compacted and record.key is None:
                    without_key[index] = "Compacted topic cannot accept message without key"
                elif not topic.has_append_time and not _is_within(record.timestamp, timestamps):
                    out_of_range[index] = f"Timestamp {record.timestamp} is not within {timestamps}"
            found += len(some)
    except RecordError as error:
        raise Refusal(ErrorCode.INVALID_RECORD, str(error)) from error
    if found != header.record_count:
        raise Refusal(ErrorCode.INVALID_RECORD, f"{found} records where the header says {header.record_count}")
    if out_of_range:
        text = "One or more records have been rejected due to invalid timestamp"
        raise Refusal(ErrorCode.INVALID_TIMESTAMP, text, without_key | out_of_range)
    if without_key:
        text = f"One or more records have been rejected due to {len(without_key)} record errors in total"
        raise Refusal(ErrorCode.INVALID_RECORD, text, without_key)


def _is_within(timestamp: int, timestamps: range) -> bool:
    return timestamp == NO_TIMESTAMP or timestamps.start <= timestamp < timestamps.stop
