"""Handles ListOffsets and OffsetForLeaderEpoch: which offset a log has for a timestamp, and where an epoch ends."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ....error_codes import ErrorCode
from ....types import EARLIEST, LATEST
from ....wire.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ...log.topic_log import TimedOffset, TopicLog
from ...refusal import Refusal
from ..call import Call
from .fetch import READ_COMMITTED

MAX_TIMESTAMP: Final = -3  # KIP-734
EARLIEST_LOCAL: Final = -4  # KIP-405
LATEST_TIERED: Final = -5  # KIP-1005
EARLIEST_PENDING_UPLOAD: Final = -6  # KIP-1023

#: The version that first had each special timestamp.
_SINCE: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


async def list_offsets(call: Call[ListOffsetsRequest]) -> ListOffsetsResponse:
    named = Counter(
        (topic.name, partition.partition_index) for topic in call.request.topics for partition in topic.partitions
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _listed(call, topic.name, partition, named[topic.name, partition.partition_index])
                    for partition in topic.partitions
                ],
            )
            for topic in call.request.topics
        ]
    )


def _listed(
    call: Call[ListOffsetsRequest], topic: str, asked: ListOffsetsPartition, times_named: int
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        if times_named > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{topic}-{index} is named {times_named} times")
        if asked.timestamp < 0 and call.version < _SINCE.get(asked.timestamp, 1 << 15):
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {asked.timestamp} in version {call.version}")
        partition = call.cluster.topics.partition(topic, index)
        partition.check_leader(call.node.node_id, asked.current_leader_epoch)
    except Refusal as refusal:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=refusal.code)
    found = _find(partition.log, asked.timestamp, call.request.isolation_level == READ_COMMITTED)
    answer = ListOffsetsPartitionResponse(
        partition_index=index, error_code=0, timestamp=found.timestamp, offset=found.offset
    )
    if call.version >= 4:
        answer.leader_epoch = found.leader_epoch
    return answer


def _find(log: TopicLog, timestamp: int, committed: bool) -> TimedOffset:
    end = log.last_stable_offset if committed else log.end_offset
    if timestamp == LATEST:
        return TimedOffset(end, leader_epoch=log.epochs.latest)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimedOffset(log.start_offset, leader_epoch=log.epochs.at(log.start_offset))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return TimedOffset()  # there is no tiered storage
    found = log.of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.first_at_or_after(timestamp)
    return found if found.offset < end else TimedOffset()


async def offset_for_leader_epoch(call: Call[OffsetForLeaderEpochRequest]) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(call, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in call.request.topics
        ]
    )


def _epoch_end(call: Call[OffsetForLeaderEpochRequest], topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = call.cluster.topics.partition(topic, asked.partition)
        partition.check_leader(call.node.node_id, asked.current_leader_epoch)
    except Refusal as refusal:
        return EpochEndOffset(error_code=refusal.code, partition=asked.partition)
    end = partition.log.epochs.end_of(asked.leader_epoch, partition.log.end_offset)
    return EpochEndOffset(error_code=0, partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
