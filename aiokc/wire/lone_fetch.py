"""Reads a Fetch response that brings the records of one partition, and nothing else to tell, by one call.

So are nearly all answers to a consumer that waits for each record. The codec of all messages takes more than twice as
long, which is worth as much as to decode the record.
"""

from __future__ import annotations

import struct
from struct import Struct as Format
from typing import Any, Final

from .compile_read import decode_with, reader
from .messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from .primitives import read_uuid

_FIRST_VERSION: Final = 13  # topics have ids; all later versions have the same fields, or tags

# throttle time, error, session; one topic: its id; one partition: index, error, high watermark, last stable offset, log
# start offset, aborted transactions (null or none), preferred replica
_HEAD: Final = Format(">ihiB16sBihqqqBi")
_ONE: Final = 2  # as a compact array counts
_NO_TAGS: Final = bytes(3)  # of the partition, of the topic, and of the response


def prepare_lone_fetch() -> None:
    """Have ``decode`` read such responses at once. It reads all others as before."""
    for version in range(_FIRST_VERSION, FetchResponse.max_version + 1):
        decode_with(FetchResponse, version, _reader(version))


def _reader(version: int) -> Any:
    unpack, size, new = _HEAD.unpack_from, _HEAD.size, object.__new__

    def read(buffer: memoryview, at: int, end: int) -> tuple[FetchResponse, int]:
        try:
            (
                throttle_time_ms,
                error_code,
                session_id,
                topics,
                topic_id,
                partitions,
                partition_index,
                partition_error,
                high_watermark,
                last_stable_offset,
                log_start_offset,
                aborted,
                preferred_read_replica,
            ) = unpack(buffer, at)
            length, start = _length(buffer, at + size)
        except (struct.error, IndexError):
            return reader(FetchResponse, version, True)(buffer, at, end)
        stop = end - len(_NO_TAGS)
        if (
            topics != _ONE
            or partitions != _ONE
            or aborted > 1
            or length < 0
            or start + length != stop
            or buffer[stop:end] != _NO_TAGS
        ):
            return reader(FetchResponse, version, True)(buffer, at, end)
        data = new(PartitionData)
        data.partition_index, data.error_code = partition_index, partition_error
        data.high_watermark, data.last_stable_offset = high_watermark, last_stable_offset
        data.log_start_offset, data.preferred_read_replica = log_start_offset, preferred_read_replica
        data.diverging_epoch = data.current_leader = data.snapshot_id = None
        data.aborted_transactions = [] if aborted else None
        data.records = buffer[start:stop]
        topic = new(FetchableTopicResponse)
        topic.topic, topic.topic_id, topic.partitions = "", read_uuid(topic_id), [data]
        response = new(FetchResponse)
        response.throttle_time_ms, response.error_code, response.session_id = throttle_time_ms, error_code, session_id
        response.responses, response.node_endpoints = [topic], []
        return response, end

    return read


def _length(buffer: memoryview, at: int) -> tuple[int, int]:
    """Read a compact length of at most three bytes, -1 for null or a longer one, and where it ends."""
    first = buffer[at]
    if first < 0x80:
        return first - 1, at + 1
    second = buffer[at + 1]
    if second < 0x80:
        return (first & 0x7F | second << 7) - 1, at + 2
    third = buffer[at + 2]
    if third < 0x80:
        return (first & 0x7F | (second & 0x7F) << 7 | third << 14) - 1, at + 3
    return -1, at
