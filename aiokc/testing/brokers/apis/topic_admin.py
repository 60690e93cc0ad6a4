"""Handles CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords: what an administrator does to topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from ....error_codes import ErrorCode
from ....wire.primitives import NO_UUID
from ...log.topic_settings import check_config
from ...log.topics import Topic, is_legal_name
from ...messages.topic_admin import (
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
from ...refusal import Refusal
from ..call import Call

T = TypeVar("T")

_HIGH_WATERMARK: Final = -1  # the offset in DeleteRecords that stands for the high watermark


async def create_topics(call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    twice = _more_than_once(topic.name for topic in call.request.topics)
    return CreateTopicsResponse(
        topics=[_refused(name, Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")) for name in twice]
        + [_create(call, topic) for topic in call.request.topics if topic.name not in twice]
    )


def _more_than_once(names: Iterable[T]) -> list[T]:
    return [name for name, times in Counter(names).items() if times > 1]


def _refused(name: str, refusal: Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, topic_id=NO_UUID, error_code=refusal.code, error_message=refusal.why, configs=[]
    )


def _create(call: Call[CreateTopicsRequest], asked: CreatableTopic) -> CreatableTopicResult:
    cluster = call.cluster
    try:
        if not is_legal_name(asked.name):
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{asked.name!r} is no name of a topic")
        if asked.name in cluster.topics.by_name:
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
        cluster.topics.check_collision(asked.name)
        replicas = _replicas(call, asked)
        check_config({setting.name: setting.value for setting in asked.configs})
    except Refusal as refusal:
        return _refused(asked.name, refusal)
    config = {setting.name: setting.value for setting in asked.configs if setting.value is not None}
    topic = Topic(asked.name, NO_UUID, [], config)
    if not call.request.validate_only:
        topic = cluster.place_topic(asked.name, replicas, config)
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=[],
    )


def _check_brokers(call: Call[Any], replicas: list[list[int]], factor: int) -> None:
    """Raise Refusal unless each partition has ``factor`` different brokers that exist."""
    known = set(call.cluster.nodes)
    for ids in replicas:
        if not ids or len(set(ids)) < len(ids) or not set(ids) <= known or len(ids) != factor:
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{ids}: wanted are {factor} of {sorted(known)}")


def _replicas(call: Call[CreateTopicsRequest], asked: CreatableTopic) -> list[list[int]]:
    """Return the replicas of each partition. Raises Refusal where the request asks for impossible ones."""
    if asked.assignments:
        if asked.num_partitions != -1 or asked.replication_factor != -1:
            raise Refusal(ErrorCode.INVALID_REQUEST, "an assignment says already how many partitions there are")
        by_partition = {one.partition_index: one.broker_ids for one in asked.assignments}
        if sorted(by_partition) != list(range(len(asked.assignments))):
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 on")
        replicas = [by_partition[index] for index in range(len(by_partition))]
        _check_brokers(call, replicas, len(replicas[0]))
        return replicas
    count = call.cluster.settings.num_partitions if asked.num_partitions == -1 else asked.num_partitions
    return call.cluster.spread(count, None if asked.replication_factor == -1 else asked.replication_factor)


async def delete_topics(call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    asked = call.request.topics
    if call.version < 6:
        asked = [DeleteTopicState(name=name, topic_id=NO_UUID) for name in call.request.topic_names]
    known = call.cluster.topics
    names = [topic.name if topic.name is not None else known.name_of(topic.topic_id) for topic in asked]
    ids = [topic.topic_id for topic in asked if topic.name is None]
    twice = {*_more_than_once(name for name in names if name is not None), *_more_than_once(ids)}
    wrong = [topic for topic in asked if topic.name is not None and topic.topic_id != NO_UUID]
    responses = {}
    for topic, name in zip(asked, names, strict=True):
        key = name if name is not None else topic.topic_id
        refused = topic in wrong or key in twice
        responses[key] = _undeletable(topic, name) if refused else _delete(call, topic)
    return DeleteTopicsResponse(responses=list(responses.values()))


def _undeletable(asked: DeleteTopicState, name: str | None) -> DeletableTopicResult:
    why = "A topic must be named once, by its name or by its id."
    return DeletableTopicResult(
        name=name, topic_id=asked.topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=why
    )


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
    twice = _more_than_once(topic.name for topic in call.request.topics)
    why = "Duplicate topic name."
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=why)
            for name in twice
        ]
        + [_grow(call, topic) for topic in call.request.topics if topic.name not in twice]
    )


def _grow(call: Call[CreatePartitionsRequest], asked: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
    cluster = call.cluster
    try:
        topic = cluster.topics.named(asked.name)
        existing = len(topic.partitions)
        if asked.count <= existing:
            raise Refusal(ErrorCode.INVALID_PARTITIONS, f"{asked.name} has {existing} partitions already")
        if asked.assignments is not None and len(asked.assignments) != asked.count - existing:
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{asked.count - existing} partitions would be new")
        assigned = [assignment.broker_ids for assignment in asked.assignments or []]
        _check_brokers(call, assigned, len(topic.partitions[0].replicas))
    except Refusal as refusal:
        return CreatePartitionsTopicResult(name=asked.name, error_code=refusal.code, error_message=refusal.why)
    if not call.request.validate_only:
        for brokers in assigned:
            cluster.place_partition(topic, brokers)
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
        topics = call.cluster.topics
        partition = topics.partition(topic, index)
        if not topics.named(topic).is_deletable:
            raise Refusal(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted only")
        partition.check_leader(call.node.node_id)
        log = partition.log
        offset = log.end_offset if asked.offset == _HIGH_WATERMARK else asked.offset
        log.trim(offset)
    except Refusal as refusal:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=refusal.code)
    partition.wake()
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=log.start_offset, error_code=0)
