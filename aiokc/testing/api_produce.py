"""Produce: checked, given offsets, and stored as it came."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ..error_codes import ErrorCode
from ..errors import RecordError
from ..records import BatchHeader, split_batches
from ..records.decode import check_crc
from .call import Call
from .messages.producing import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from .refusal import Refusal
from .topics import Partition, Topic

_IDS_FROM: Final = 13
_LEADERS_FROM: Final = 10  # KIP-951
_ABORTABLE_FROM: Final = 11  # KIP-890
_ACKS: Final = (-1, 0, 1)


async def produce(call: Call[ProduceRequest]) -> ProduceResponse | None:
    """Append to each partition; nobody is answered with ``acks=0``."""
    request = call.request
    responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[_answer(call, topic, data) for data in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    if request.acks == 0:
        return None
    leaders = {
        partition.current_leader.leader_id
        for topic in responses
        for partition in topic.partition_responses
        if partition.current_leader is not None
    }
    nodes = [call.cluster.nodes[leader] for leader in sorted(leaders) if leader in call.cluster.nodes]
    return ProduceResponse(
        responses=responses,
        node_endpoints=[
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack) for node in nodes
        ],
    )


def _answer(
    call: Call[ProduceRequest], topic_data: TopicProduceData, data: PartitionProduceData
) -> PartitionProduceResponse:
    partition = None
    try:
        topic = _topic(call, topic_data.name, topic_data.topic_id)
        partition = call.cluster.topics.partition(topic.name, data.index)
        return _append(call, topic, partition, data)
    except Refusal as refusal:
        code = refusal.code
        if code == ErrorCode.INVALID_TXN_STATE and call.version >= _ABORTABLE_FROM:
            code = ErrorCode.TRANSACTION_ABORTABLE
        answer = PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1, error_message=refusal.why)
        moved = refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and call.version >= _LEADERS_FROM
        if moved and partition is not None:
            leader = -1 if partition.leader is None else partition.leader
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=partition.leader_epoch)
        return answer


def _topic(call: Call[ProduceRequest], name: str, topic_id: UUID) -> Topic:
    topics = call.cluster.topics
    return topics.of_id(topic_id) if call.version >= _IDS_FROM else topics.named(name)


def _max_bytes(call: Call[ProduceRequest], topic: Topic) -> int:
    return topic.integer("max.message.bytes", call.cluster.settings.message_max_bytes)


def _append(
    call: Call[ProduceRequest], topic: Topic, partition: Partition, data: PartitionProduceData
) -> PartitionProduceResponse:
    request = call.request
    if request.acks not in _ACKS:
        raise Refusal(ErrorCode.INVALID_REQUIRED_ACKS)
    partition.check_leader(call.node.node_id)
    in_sync = sum(call.cluster.nodes[replica].alive for replica in partition.in_sync)
    if request.acks == -1 and in_sync < topic.integer("min.insync.replicas", 1):
        raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, f"{in_sync} of {len(partition.replicas)} are in sync")
    header, batch = _only_batch(
        data.records, topic.integer("max.message.bytes", call.cluster.settings.message_max_bytes)
    )
    if header.is_transactional:
        call.cluster.transactions.check_partition(request.transactional_id, header, (topic.name, data.index))
    log = partition.log
    base_offset = log.producers.offset_of_retry(header)
    append_time = call.cluster.now_ms() if topic.has_append_time else None
    if base_offset is None:
        base_offset = log.append(batch, partition.leader_epoch, append_time=append_time)
        partition.wake()
    return PartitionProduceResponse(
        index=data.index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=-1 if append_time is None else append_time,
        log_start_offset=log.start_offset,
    )


def _only_batch(records: memoryview | None, max_bytes: int) -> tuple[BatchHeader, memoryview]:
    """Return the one batch that a producer may send at a time. Raises Refusal."""
    try:
        batches = list(split_batches(records or memoryview(b"")))
        if len(batches) != 1 or batches[0][0].size != len(records or b""):
            raise Refusal(ErrorCode.INVALID_RECORD, f"{len(batches)} complete batches, where there must be one")
        header, batch = batches[0]
        check_crc(header, batch)
    except RecordError as error:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if header.is_control:
        raise Refusal(ErrorCode.INVALID_RECORD, "a producer may not write control records")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise Refusal(ErrorCode.INVALID_RECORD, "a producer's batch has as many records as offsets, at least one")
    if header.size > max_bytes:
        raise Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"{header.size} bytes, the limit is {max_bytes}")
    return header, batch
