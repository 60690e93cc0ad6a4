"""What administrators do to topics: CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

from typing import Final

from ..error_codes import ErrorCode
from ..wire.primitives import NO_UUID
from .api_metadata import is_legal_name
from .call import Call
from .messages.topic_admin import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from .refusal import Refusal
from .topics import Topic

_HIGH_WATERMARK: Final = -1  # what DeleteRecords calls the end


async def create_topics(call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_create(call, topic) for topic in call.request.topics])


def _create(call: Call[CreateTopicsRequest], asked: CreatableTopic) -> CreatableTopicResult:
    cluster = call.cluster
    try:
        if not is_legal_name(asked.name):
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{asked.name!r} is no name of a topic")
        if asked.name in cluster.topics.by_name:
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
        replicas = _replicas(call, asked)
    except Refusal as refusal:
        return CreatableTopicResult(
            name=asked.name, topic_id=NO_UUID, error_code=refusal.code, error_message=refusal.why, configs=[]
        )
    config = {setting.name: setting.value for setting in asked.configs if setting.value is not None}
    topic = Topic(asked.name, NO_UUID, [], config)
    if not call.request.validate_only:
        topic = cluster.create_topic(asked.name, 0, config=config)
        for nodes in replicas:
            cluster.place_partition(topic, nodes)
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=[],
    )


def _replicas(call: Call[CreateTopicsRequest], asked: CreatableTopic) -> list[list[int]]:
    """Return the replicas of each partition. Raises Refusal."""
    ids = list(call.cluster.nodes)
    if asked.assignments:
        if asked.num_partitions != -1 or asked.replication_factor != -1:
            raise Refusal(ErrorCode.INVALID_REQUEST, "an assignment says already how many partitions there are")
        by_partition = {one.partition_index: one.broker_ids for one in asked.assignments}
        if sorted(by_partition) != list(range(len(asked.assignments))):
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 on")
        if not all(nodes and set(nodes) <= set(ids) for nodes in by_partition.values()):
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the brokers are {ids}")
        return [by_partition[index] for index in range(len(by_partition))]
    count = call.cluster.settings.num_partitions if asked.num_partitions == -1 else asked.num_partitions
    factor = min(3, len(ids)) if asked.replication_factor == -1 else asked.replication_factor
    if count <= 0:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if not 0 < factor <= len(ids):
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, f"{factor} replicas on {len(ids)} brokers")
    return [[ids[(index + replica) % len(ids)] for replica in range(factor)] for index in range(count)]


async def delete_topics(call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    asked = call.request.topics
    if call.version < 6:
        asked = [DeleteTopicState(name=name, topic_id=NO_UUID) for name in call.request.topic_names]
    return DeleteTopicsResponse(responses=[_delete(call, topic) for topic in asked])


def _delete(call: Call[DeleteTopicsRequest], asked: DeleteTopicState) -> DeletableTopicResult:
    topics = call.cluster.topics
    try:
        topic = topics.of_id(asked.topic_id) if asked.name is None else topics.named(asked.name)
    except Refusal as refusal:
        return DeletableTopicResult(
            name=asked.name, topic_id=asked.topic_id, error_code=refusal.code, error_message=refusal.why
        )
    call.cluster.delete_topic(topic.name)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=0)


async def create_partitions(call: Call[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_grow(call, topic) for topic in call.request.topics])


def _grow(call: Call[CreatePartitionsRequest], asked: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
    cluster = call.cluster
    try:
        topic = cluster.topics.named(asked.name)
        existing = len(topic.partitions)
        if asked.count <= existing:
            raise Refusal(ErrorCode.INVALID_PARTITIONS, f"{asked.name} has {existing} partitions already")
        if asked.assignments is not None and len(asked.assignments) != asked.count - existing:
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{asked.count - existing} partitions would be new")
    except Refusal as refusal:
        return CreatePartitionsTopicResult(name=asked.name, error_code=refusal.code, error_message=refusal.why)
    if not call.request.validate_only:
        for assignment in asked.assignments or []:
            cluster.place_partition(topic, assignment.broker_ids)
        cluster.add_partitions(topic, asked.count)
    return CreatePartitionsTopicResult(name=asked.name, error_code=0)


async def delete_records(call: Call[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_trim(call, topic.name, partition) for partition in topic.partitions],
            )
            for topic in call.request.topics
        ]
    )


def _trim(call: Call[DeleteRecordsRequest], topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    try:
        partition = call.cluster.topics.partition(topic, index)
        partition.check_leader(call.node.node_id)
        log = partition.log
        offset = log.end_offset if asked.offset == _HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= log.end_offset:
            raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}-{index} ends at {log.end_offset}")
    except Refusal as refusal:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=refusal.code)
    log.trim(max(offset, log.start_offset))
    partition.wake()
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=log.start_offset, error_code=0)
