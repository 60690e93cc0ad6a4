"""LoneBatch: Produce requests of one batch, and the answers to those that are stored, without objects for messages.

What such requests say beside the records is the same for each batch of a partition, and so is what their answers say
beside the offset. Both are encoded once, by the codec of all messages, and cut where they differ.
"""

from __future__ import annotations

from struct import Struct as Format
from typing import Final, NamedTuple

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

_START: Final = Format(">ihhi")  # the frame's length, API key, version, correlation id
_RECORDS_LENGTH: Final = Format(">i")
_OFFSETS: Final = Format(">qqq")  # base offset, time of the append, start of the log

#: Behind the offsets of a flexible answer: no record errors, no message, no tags, no tags, not throttled, no tags.
_ALL_WELL: Final = b"\1\0\0\0" + bytes(4) + b"\0"
#: Behind the records of a flexible request: no tags of the partition, of the topic, and of the request.
_NO_TAGS: Final = bytes(3)
#: Longer records stay a piece of their own.
_LEAST: Final = 4096


class StoredAt(NamedTuple):
    """What an answer says of a batch that is stored; -1: nothing of that."""

    base_offset: int
    append_time: int
    log_start_offset: int


class LoneBatch:
    """The requests that differ from ``request`` in their records alone, of which it has none, in one version."""

    __slots__ = ("_answer", "_client_id", "_head", "_is_flexible", "_request", "_tail", "topic_id", "version")

    def __init__(self, request: ProduceRequest, version: int) -> None:
        self.version = version
        self.topic_id = request.topic_data[0].topic_id  # NO_UUID: the request names the topic
        self._request = request
        self._client_id: str | None = None
        self._head = b""
        self._is_flexible = ProduceRequest.is_flexible_in(version)
        self._tail = _NO_TAGS if self._is_flexible else b""
        self._answer = _before_offsets(request, version) if self._is_flexible else None

    def parts(self, correlation_id: int, client_id: str, records: bytearray) -> Parts:
        """Return the frame of the request with these records, which may not change until it is sent."""
        if client_id != self._client_id:
            frame = encode_request(self._request, version=self.version, correlation_id=0, client_id=client_id)
            self._client_id = client_id
            self._head = frame[_START.size : -4]  # without the length of no records, as varint with tags or as int32
        size, tail = len(records), self._tail
        out = bytearray(_START.size)
        out += self._head
        if self._is_flexible:
            write_uvarint(out, size + 1)
        else:
            out += _RECORDS_LENGTH.pack(size)
        length = len(out) + size + len(tail) - 4
        _START.pack_into(out, 0, length, ProduceRequest.api_key, self.version, correlation_id)
        if size < _LEAST:
            out += records
            out += tail
            return (out,)
        return (out, memoryview(records), memoryview(tail)) if tail else (out, memoryview(records))

    def stored_at(self, body: memoryview) -> StoredAt | None:
        """Return what an answer says, if it says no more than where the batch is; None: it has to be decoded."""
        start = self._answer
        if start is None or len(body) != len(start) + _OFFSETS.size + len(_ALL_WELL):
            return None
        offsets = len(start)
        if body[:offsets] != start or body[offsets + _OFFSETS.size :] != _ALL_WELL:
            return None
        return StoredAt._make(_OFFSETS.unpack_from(body, offsets))


def _before_offsets(request: ProduceRequest, version: int) -> bytes:
    """Return how the answer begins that names the request's partition, and no error."""
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    stored = PartitionProduceResponse(index=partition.index, error_code=0, base_offset=0)
    answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[stored])
    body = encode(ProduceResponse(responses=[answer]), version)
    return body[: -_OFFSETS.size - len(_ALL_WELL)]
