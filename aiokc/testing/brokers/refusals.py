"""``refused``: the answer of each API that has an error code for every topic, partition or group of the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ...error_codes import ErrorCode
from ...wire import Request, Response
from ...wire.messages import (
    describing,
    discovery,
    fetch,
    group,
    group_admin,
    group_description,
    offsets,
    produce,
    sasl,
    txn,
)
from ...wire.primitives import NO_UUID
from ..log.fetch_sessions import refused_session
from ..messages import topic_admin

_Answer: TypeAlias = Callable[[Any, int, ErrorCode], Response]

#: The errors of a fetch as a whole; all other errors belong to its partitions.
_OF_SESSION: Final = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}


def refused(request: Request[Any], version: int, code: ErrorCode) -> Response:
    """Return the answer to ``request`` that has ``code``, for every topic and partition that the request names.

    Raises TypeError where this API's answers have no error code.
    """
    answer = _ANSWERS.get(type(request))
    if answer is None:
        raise TypeError(f"{type(request).__name__} has no answer with an error code; return a response instead")
    return answer(request, version, code)


def _fetch(request: fetch.FetchRequest, version: int, code: ErrorCode) -> Response:
    if code in _OF_SESSION:
        return refused_session(code)
    return fetch.FetchResponse(
        session_id=0,
        responses=[
            fetch.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    fetch.PartitionData(
                        partition_index=one.partition,
                        error_code=code,
                        high_watermark=-1,
                        aborted_transactions=None,
                        records=memoryview(b""),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _produce(request: produce.ProduceRequest, version: int, code: ErrorCode) -> Response:
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1)
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _metadata(request: discovery.MetadataRequest, version: int, code: ErrorCode) -> Response:
    topics = [
        discovery.MetadataResponseTopic(error_code=code, name=topic.name, topic_id=topic.topic_id, partitions=[])
        for topic in request.topics or []
    ]
    return discovery.MetadataResponse(brokers=[], topics=topics, error_code=code if version >= 13 else 0)


def _find_coordinator(request: discovery.FindCoordinatorRequest, version: int, code: ErrorCode) -> Response:
    if version < 4:
        return discovery.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    return discovery.FindCoordinatorResponse(
        coordinators=[
            discovery.Coordinator(key=key, node_id=-1, port=-1, error_code=code) for key in request.coordinator_keys
        ]
    )


def _list_offsets(request: offsets.ListOffsetsRequest, version: int, code: ErrorCode) -> Response:
    return offsets.ListOffsetsResponse(
        topics=[
            offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    offsets.ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _epochs(request: offsets.OffsetForLeaderEpochRequest, version: int, code: ErrorCode) -> Response:
    return offsets.OffsetForLeaderEpochResponse(
        topics=[
            offsets.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    offsets.EpochEndOffset(error_code=code, partition=one.partition) for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_commit(request: offsets.OffsetCommitRequest, version: int, code: ErrorCode) -> Response:
    return offsets.OffsetCommitResponse(
        topics=[
            offsets.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offsets.OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: offsets.OffsetFetchRequest, version: int, code: ErrorCode) -> Response:
    if version >= 8:
        groups = [offsets.OffsetFetchResponseGroup(group_id=one.group_id, error_code=code) for one in request.groups]
        return offsets.OffsetFetchResponse(groups=groups)
    if version >= 2:
        return offsets.OffsetFetchResponse(error_code=code)
    return offsets.OffsetFetchResponse(
        topics=[
            offsets.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    offsets.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ]
    )


def _txn_offset_commit(request: txn.TxnOffsetCommitRequest, version: int, code: ErrorCode) -> Response:
    return txn.TxnOffsetCommitResponse(
        topics=[
            txn.TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    txn.TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _join_group(request: group.JoinGroupRequest, version: int, code: ErrorCode) -> Response:
    name = None if version >= 7 else ""
    return group.JoinGroupResponse(
        error_code=code, protocol_name=name, leader="", member_id=request.member_id, members=[]
    )


def _init_producer_id(request: produce.InitProducerIdRequest, version: int, code: ErrorCode) -> Response:
    return produce.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _create_topics(request: topic_admin.CreateTopicsRequest, version: int, code: ErrorCode) -> Response:
    return topic_admin.CreateTopicsResponse(
        topics=[
            topic_admin.CreatableTopicResult(name=topic.name, error_code=code, error_message=None, configs=[])
            for topic in request.topics
        ]
    )


def _delete_topics(request: topic_admin.DeleteTopicsRequest, version: int, code: ErrorCode) -> Response:
    named = (
        [(topic.name, topic.topic_id) for topic in request.topics]
        if version >= 6
        else [(name, NO_UUID) for name in request.topic_names]
    )
    return topic_admin.DeleteTopicsResponse(
        responses=[
            topic_admin.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code) for name, topic_id in named
        ]
    )


def _create_partitions(request: topic_admin.CreatePartitionsRequest, version: int, code: ErrorCode) -> Response:
    return topic_admin.CreatePartitionsResponse(
        results=[topic_admin.CreatePartitionsTopicResult(name=topic.name, error_code=code) for topic in request.topics]
    )


def _delete_records(request: topic_admin.DeleteRecordsRequest, version: int, code: ErrorCode) -> Response:
    return topic_admin.DeleteRecordsResponse(
        topics=[
            topic_admin.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    topic_admin.DeleteRecordsPartitionResult(
                        partition_index=one.partition_index, low_watermark=-1, error_code=code
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _add_partitions_to_txn(request: txn.AddPartitionsToTxnRequest, version: int, code: ErrorCode) -> Response:
    if version >= 4:
        return txn.AddPartitionsToTxnResponse(error_code=code)
    return txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            txn.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    txn.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _describe_groups(request: group_admin.DescribeGroupsRequest, version: int, code: ErrorCode) -> Response:
    return group_admin.DescribeGroupsResponse(
        groups=[
            group_admin.DescribedGroup(
                error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
            )
            for group_id in request.groups
        ]
    )


def _delete_groups(request: group_admin.DeleteGroupsRequest, version: int, code: ErrorCode) -> Response:
    return group_admin.DeleteGroupsResponse(
        results=[group_admin.DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
    )


def _describe_consumer_groups(
    request: group_description.ConsumerGroupDescribeRequest, version: int, code: ErrorCode
) -> Response:
    return group_description.ConsumerGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[
            group_description.DescribedConsumerGroup(
                error_code=code,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for group_id in request.group_ids
        ],
    )


def _describe_configs(request: describing.DescribeConfigsRequest, version: int, code: ErrorCode) -> Response:
    return describing.DescribeConfigsResponse(
        results=[
            describing.DescribeConfigsResult(
                error_code=code,
                error_message=None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                configs=[],
            )
            for one in request.resources
        ]
    )


def _consumer_group_heartbeat(request: group.ConsumerGroupHeartbeatRequest, version: int, code: ErrorCode) -> Response:
    return group.ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)


_ANSWERS: Final[dict[type[Request[Any]], _Answer]] = {
    discovery.ApiVersionsRequest: lambda _, __, code: discovery.ApiVersionsResponse(error_code=code, api_keys=[]),
    sasl.SaslHandshakeRequest: lambda _, __, code: sasl.SaslHandshakeResponse(error_code=code, mechanisms=[]),
    sasl.SaslAuthenticateRequest: lambda _, __, code: sasl.SaslAuthenticateResponse(
        error_code=code, error_message=None, auth_bytes=b""
    ),
    discovery.MetadataRequest: _metadata,
    discovery.FindCoordinatorRequest: _find_coordinator,
    fetch.FetchRequest: _fetch,
    produce.ProduceRequest: _produce,
    produce.InitProducerIdRequest: _init_producer_id,
    offsets.ListOffsetsRequest: _list_offsets,
    offsets.OffsetForLeaderEpochRequest: _epochs,
    offsets.OffsetCommitRequest: _offset_commit,
    offsets.OffsetFetchRequest: _offset_fetch,
    txn.TxnOffsetCommitRequest: _txn_offset_commit,
    txn.AddOffsetsToTxnRequest: lambda _, __, code: txn.AddOffsetsToTxnResponse(error_code=code),
    txn.EndTxnRequest: lambda _, __, code: txn.EndTxnResponse(error_code=code),
    group.JoinGroupRequest: _join_group,
    group.SyncGroupRequest: lambda _, __, code: group.SyncGroupResponse(error_code=code, assignment=b""),
    group.HeartbeatRequest: lambda _, __, code: group.HeartbeatResponse(error_code=code),
    group.LeaveGroupRequest: lambda _, __, code: group.LeaveGroupResponse(error_code=code),
    group.ConsumerGroupHeartbeatRequest: _consumer_group_heartbeat,
    describing.DescribeClusterRequest: lambda _, __, code: describing.DescribeClusterResponse(
        error_code=code, cluster_id="", brokers=[]
    ),
    describing.DescribeConfigsRequest: _describe_configs,
    describing.DescribeLogDirsRequest: lambda _, version, code: describing.DescribeLogDirsResponse(
        error_code=code if version >= 3 else 0, results=[]
    ),
    group_description.ConsumerGroupDescribeRequest: _describe_consumer_groups,
    group_admin.DescribeGroupsRequest: _describe_groups,
    group_admin.DeleteGroupsRequest: _delete_groups,
    group_admin.OffsetDeleteRequest: lambda _, __, code: group_admin.OffsetDeleteResponse(error_code=code, topics=[]),
    group_admin.ListGroupsRequest: lambda _, __, code: group_admin.ListGroupsResponse(error_code=code, groups=[]),
    topic_admin.CreateTopicsRequest: _create_topics,
    topic_admin.DeleteTopicsRequest: _delete_topics,
    topic_admin.CreatePartitionsRequest: _create_partitions,
    topic_admin.DeleteRecordsRequest: _delete_records,
    txn.AddPartitionsToTxnRequest: _add_partitions_to_txn,
}
