"""No client: a blocking socket that fetches the same bytes, reads only the headers of the batches, and drops all."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Final

from aiokc.wire import decode, encode_request, read_response_header
from aiokc.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

from ..measuring.job import FETCH_MAX_BYTES, FETCH_MAX_WAIT_MS, FETCH_MIN_BYTES, MAX_PARTITION_FETCH_BYTES, Job
from ..measuring.stopwatch import Stopwatch
from ..measuring.tally import Tally

_VERSION: Final = 11  # has topic names, and needs no session
_LENGTH: Final = struct.Struct(">i")
_BATCH: Final = struct.Struct(">qi")  # base offset and length
_AFTER_LENGTH: Final = 12
_LAST_DELTA_AT: Final = 23
_COUNT: Final = struct.Struct(">i")
_COUNT_AT: Final = 57
_HEADER_SIZE: Final = 61


def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    host, _, port = job.bootstrap.rpartition(":")
    offsets = dict.fromkeys(range(job.partitions), 0)
    buffer = bytearray(FETCH_MAX_BYTES + (1 << 20))
    with socket.create_connection((host, int(port))) as connection:
        stopwatch.start()
        records = sum(drain(connection, job.topic, offsets, job.records, buffer))
        stopwatch.stop()
    # It reads no record, so it only knows what the offsets say.
    offset_sum = sum(end * (end - 1) // 2 for end in offsets.values())
    return Tally(records, 0, offset_sum, data_bytes_error=1 << 62)


def drain(
    connection: socket.socket,
    topic: str,
    offsets: dict[int, int],
    records: int,
    buffer: bytearray,
    partition_bytes: int = MAX_PARTITION_FETCH_BYTES,
) -> Iterator[int]:
    """Fetch from ``offsets`` on, which move, until there were so many records; yield how many each answer brought.

    Each answer is received into ``buffer``, in the place of the one before. Raises ValueError if one is longer.
    """
    missing = records
    while missing > 0:
        connection.sendall(_request(topic, offsets, partition_bytes))
        frame = _receive(connection, memoryview(buffer))
        _, start = read_response_header(frame, FetchRequest, _VERSION)
        response = decode(FetchResponse, frame[start:], _VERSION)
        arrived = 0
        for data in response.responses[0].partitions:
            for next_offset, count in _batches(data.records or memoryview(b"")):
                offsets[data.partition_index] = next_offset
                arrived += count
        missing -= arrived
        yield arrived


def _request(topic: str, offsets: dict[int, int], partition_bytes: int) -> bytes:
    partitions = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=partition_bytes)
        for number, offset in offsets.items()
    ]
    request = FetchRequest(
        max_wait_ms=FETCH_MAX_WAIT_MS,
        min_bytes=FETCH_MIN_BYTES,
        max_bytes=FETCH_MAX_BYTES,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )
    return encode_request(request, version=_VERSION, correlation_id=0, client_id="benchmark")


def _receive(connection: socket.socket, buffer: memoryview) -> memoryview:
    frame = buffer[: _LENGTH.size]
    _fill(connection, frame)
    (length,) = _LENGTH.unpack(frame)
    if length > len(buffer):
        raise ValueError(f"an answer of {length} bytes does not fit into {len(buffer)}")
    frame = buffer[:length]
    _fill(connection, frame)
    return frame


def _fill(connection: socket.socket, view: memoryview) -> None:
    while view:
        count = connection.recv_into(view)
        if count == 0:
            raise ConnectionError("the broker closed the connection")
        view = view[count:]


def _batches(records: memoryview) -> Iterator[tuple[int, int]]:
    """Yield for each complete batch the offset after it, and how many records it has."""
    start = 0
    while start + _HEADER_SIZE <= len(records):
        base_offset, length = _BATCH.unpack_from(records, start)
        if start + _AFTER_LENGTH + length > len(records):
            return
        (last_delta,) = _COUNT.unpack_from(records, start + _LAST_DELTA_AT)
        yield base_offset + last_delta + 1, _COUNT.unpack_from(records, start + _COUNT_AT)[0]
        start += _AFTER_LENGTH + length
