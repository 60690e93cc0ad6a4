"""Handles Produce: checks each batch, its producer and its transaction, and appends it to the log."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ....error_codes import ErrorCode
from ....records import BatchHeader
from ....wire.messages.produce import (
    BatchIndexAndErrorMessage,
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
from ...log.producer_states import Gaps
from ...log.topic_log import TopicLog
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
        answer = PartitionProduceResponse(
            index=data.index,
            error_code=_code(refusal, call.version),
            base_offset=-1,
            error_message=refusal.why,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in sorted(refusal.records.items())
            ],
        )
        moved = refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and call.version >= _LEADERS_FROM
        if moved and partition is not None:
            leader = -1 if partition.leader is None else partition.leader
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=partition.leader_epoch)
        return answer


def _code(refusal: Refusal, version: int) -> ErrorCode:
    """Return the code that clients of this version know."""
    if refusal.code == ErrorCode.INVALID_TXN_STATE and version >= _ABORTABLE_FROM:
        return ErrorCode.TRANSACTION_ABORTABLE
    if refusal.code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _BEGINS_FROM:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # the one after which an old client asks again, and no more
    return refusal.code


def _topic(call: Call[ProduceRequest], name: str, topic_id: UUID) -> Topic:
    topics = call.cluster.topics
    return topics.of_id(topic_id) if call.version >= _IDS_FROM else topics.named(name)


def _checked_batch(
    call: Call[ProduceRequest], topic: Topic, data: PartitionProduceData
) -> tuple[BatchHeader, memoryview]:
    cluster, now = call.cluster, call.cluster.now_ms()
    ahead = topic.integer("message.timestamp.after.max.ms", cluster.settings.log_message_timestamp_after_max_ms)
    behind = topic.integer("message.timestamp.before.max.ms", cluster.settings.log_message_timestamp_before_max_ms)
    return checked_batch(
        data.records,
        call.version,
        topic=topic,
        max_bytes=topic.integer("max.message.bytes", cluster.settings.message_max_bytes),
        timestamps=range(now - behind, now + ahead + 1),
    )


def _check_transaction(call: Call[ProduceRequest], header: BatchHeader, log: TopicLog, place: Place) -> bool:
    """Raise Refusal where the batch belongs to no transaction; return whether it has begun its partition's part in one.

    A log in which the producer's transaction is open asks no coordinator. From version 12 on the first batch makes the
    partition a part of the transaction (KIP-890).
    """
    if call.request.transactional_id is None:
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without an id")
    producer = header.producer_id, header.producer_epoch
    if log.has_open_transaction(header.producer_id) and log.producers.epoch_of(header.producer_id) == producer[1]:
        return False
    transactions, cluster = call.cluster.transactions, call.cluster
    begins = call.version >= _BEGINS_FROM
    transactions.check_partition(call.request.transactional_id, producer, place, cluster.now() if begins else None)
    return begins


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
    log = partition.log
    gaps = Gaps.UNKNOWN if call.cluster.forgets_producers else Gaps.ALLOWED
    if header.is_transactional and _check_transaction(call, header, log, (topic.name, data.index)):
        gaps = Gaps.REFUSED
    append_time = call.cluster.now_ms() if topic.has_append_time else None
    retried = log.producers.find_retry(header, gaps=gaps)
    if retried is None:
        base_offset = log.append(batch, partition.leader_epoch, append_time=append_time)
        partition.wake()
    else:
        base_offset = retried.base_offset
        append_time = None if append_time is None else retried.timestamp
    return PartitionProduceResponse(
        index=data.index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=-1 if append_time is None else append_time,
        log_start_offset=log.start_offset,
    )
