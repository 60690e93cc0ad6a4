"""LoneBatch: Produce requests of one batch, and the answers to those that are stored, without objects for messages.

What such requests say beside the records is the same for each batch of a partition, and so is what their answers say
beside the offset. Both are encoded once, by the codec of all messages, and cut where they differ.
"""

from __future__ import annotations

from struct import Struct as Format
from typing import Final

from .compile_write import encode
from .frame_parts import Parts
from .frames import encode_request
from .messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from .primitives import write_uvarint

_START: Final = Format(">ihh")  # the frame's length, API key, version
_LENGTH_SIZE: Final = 4
_CORRELATION_ID: Final = Format(">i")
_RECORDS_LENGTH: Final = Format(">i")
_OFFSETS_SIZE: Final = 24  # base offset, time of the append, start of the log

#: Behind the offsets of a flexible answer: no record errors, no message, no tags, no tags, not throttled, no tags.
_ALL_WELL: Final = b"\1\0\0\0" + bytes(4) + b"\0"
#: Behind the records of a flexible request: no tags of the partition, of the topic, and of the request.
_NO_TAGS: Final = bytes(3)
#: Longer records stay a piece of their own.
_LEAST: Final = 4096


class LoneBatch:
    """The requests that differ from ``request`` in their records alone, of which it has none, in one version."""

    __slots__ = (
        "_answer",
        "_client_id",
        "_head",
        "_is_flexible",
        "_layout",
        "_request",
        "_size",
        "_start",
        "_tail",
        "version",
    )

    def __init__(self, request: ProduceRequest, version: int) -> None:
        self.version = version
        self._request = request
        self._client_id: str | None = None
        self._head = b""
        self._size, self._start = -1, (b"", b"")  # how the last frame began, and how many bytes of records it had
        self._is_flexible = ProduceRequest.is_flexible_in(version)
        self._tail = _NO_TAGS if self._is_flexible else b""
        self._answer = _before_offsets(request, version) if self._is_flexible else b""
        self._layout = Format(f">{len(self._answer)}sqqq{len(_ALL_WELL)}s") if self._is_flexible else None

    def parts(self, correlation_id: int, client_id: str, records: bytearray) -> Parts:
        """Return the frame of the request with these records, which may not change until it is sent."""
        size, tail = len(records), self._tail
        if size != self._size or client_id != self._client_id:
            self._start = self._begun(size, client_id)
            self._size = size
        before, behind = self._start
        start = before, _CORRELATION_ID.pack(correlation_id), behind
        if size < _LEAST:
            return (b"".join((*start, records, tail)),)
        return (b"".join(start), memoryview(records), tail) if tail else (b"".join(start), memoryview(records))

    def _begun(self, size: int, client_id: str) -> tuple[bytes, bytes]:
        """Return the start of a frame with so many bytes of records: before its correlation id, and behind it."""
        if client_id != self._client_id:
            frame = encode_request(self._request, version=self.version, correlation_id=0, client_id=client_id)
            self._client_id = client_id
            self._head = frame[
                _START.size + _CORRELATION_ID.size : -4
            ]  # without the length of no records, as varint with tags or as int32
        behind = bytearray(self._head)
        if self._is_flexible:
            write_uvarint(behind, size + 1)
        else:
            behind += _RECORDS_LENGTH.pack(size)
        length = _START.size - _LENGTH_SIZE + _CORRELATION_ID.size + len(behind) + size + len(self._tail)
        return _START.pack(length, ProduceRequest.api_key, self.version), bytes(behind)

    def stored_at(self, body: memoryview) -> tuple[int, int, int] | None:
        """Return what an answer says, if it says no more than where the batch is; None: it has to be decoded.

        That is the base offset, the time of the append, and the start of the log; -1: nothing of that.
        """
        layout = self._layout
        if layout is None or len(body) != layout.size:
            return None
        start, base_offset, append_time, log_start_offset, end = layout.unpack(body)
        if start != self._answer or end != _ALL_WELL:
            return None
        return base_offset, append_time, log_start_offset


def _before_offsets(request: ProduceRequest, version: int) -> bytes:
    """Return how the answer begins that names the request's partition, and no error."""
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    stored = PartitionProduceResponse(index=partition.index, error_code=0, base_offset=0)
    answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[stored])
    body = encode(ProduceResponse(responses=[answer]), version)
    return body[: -_OFFSETS_SIZE - len(_ALL_WELL)]
