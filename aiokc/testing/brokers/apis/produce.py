"""Handles Produce: checks each batch, its producer and its transaction, and appends it to the log."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ....error_codes import ErrorCode
from ....records import BatchHeader
from ....wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ...log.produced_batch import checked_batch
from ...log.topics import Partition, Topic
from ...log.transaction_states import Place
from ...refusal import ClosesConnection, Refusal
from ..call import Call

_IDS_FROM: Final = 13
_LEADERS_FROM: Final = 10  # KIP-951
_ABORTABLE_FROM: Final = 11  # KIP-890
_BEGINS_FROM: Final = 12
_ACKS: Final = (-1, 0, 1)


async def produce(call: Call[ProduceRequest]) -> ProduceResponse | None:
    """Append to each partition. With ``acks=0`` there is no answer, and an error closes the connection."""
    request = call.request
    responses = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[_answer(call, topic, data) for data in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    call.cluster.timers_changed()  # a transaction may have begun
    if request.acks == 0:
        refused = [one for topic in responses for one in topic.partition_responses if one.error_code]
        if refused:
            raise ClosesConnection(f"Produce with acks=0: {refused[0].error_message or refused[0].error_code}")
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
            NodeEndpoint(node_id=node.node_id, host=at.host, port=at.port, rack=node.rack)
            for node, at in ((node, call.endpoint_of(node)) for node in nodes)
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


def _checked_batch(
    call: Call[ProduceRequest], topic: Topic, data: PartitionProduceData
) -> tuple[BatchHeader, memoryview]:
    cluster = call.cluster
    ahead = topic.integer("message.timestamp.after.max.ms", cluster.settings.log_message_timestamp_after_max_ms)
    return checked_batch(
        data.records,
        call.version,
        topic=topic,
        max_bytes=topic.integer("max.message.bytes", cluster.settings.message_max_bytes),
        latest_timestamp=cluster.now_ms() + ahead,
    )


def _check_transaction(call: Call[ProduceRequest], header: BatchHeader, place: Place) -> None:
    """Raise Refusal where the batch belongs to no transaction. From version 12 on the batch begins one (KIP-890)."""
    if call.request.transactional_id is None:
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without an id")
    transactions, cluster = call.cluster.transactions, call.cluster
    begins = call.version >= _BEGINS_FROM
    transactions.check_partition(call.request.transactional_id, header, place, cluster.now() if begins else None)


def _append(
    call: Call[ProduceRequest], topic: Topic, partition: Partition, data: PartitionProduceData
) -> PartitionProduceResponse:
    request = call.request
    if request.acks not in _ACKS:
        raise Refusal(ErrorCode.INVALID_REQUIRED_ACKS)
    partition.check_leader(call.node.node_id)
    in_sync = sum(call.cluster.nodes[replica].alive for replica in partition.in_sync)
    wanted = min(topic.integer("min.insync.replicas", 1), len(partition.replicas))
    if request.acks == -1 and in_sync < wanted:
        raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, f"{in_sync} of {len(partition.replicas)} are in sync")
    header, batch = _checked_batch(call, topic, data)
    if header.is_transactional:
        _check_transaction(call, header, (topic.name, data.index))
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
