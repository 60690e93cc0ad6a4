"""Handles ApiVersions, Metadata, DescribeCluster and FindCoordinator: what a client asks about the cluster."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

from ....error_codes import ErrorCode
from ....wire.messages.describing import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ....wire.messages.discovery import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Coordinator,
    FinalizedFeatureKey,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    SupportedFeatureKey,
)
from ....wire.primitives import NO_UUID
from ...log.topics import Partition, Topic, is_legal_name
from ...refusal import Refusal
from ...security.authorizer import CLUSTER_NAME, Operation, ResourceType
from ..api_keys import ApiKey
from ..call import Call
from ..cluster_state import ClusterState

#: The errors that belong to a topic; all other errors are those of the request as a whole.
OF_TOPICS: Final = {
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}

GROUP: Final = 0  # key types of FindCoordinator
TRANSACTION: Final = 1

_FEATURES_FROM_0: Final = 4
_IDS_FROM: Final = 12
_BROKER: Final = 1  # endpoint types of DescribeCluster
_CONTROLLER: Final = 2
#: Authorized operations, as bits: all that there are.
_ALL_OF_CLUSTER: Final = 8096
_ALL_OF_TOPIC: Final = 3576
_NOT_ASKED: Final = -2147483648

_LEGAL_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_INTERNAL: Final = ("__consumer_offsets", "__transaction_state")


async def api_versions(call: Call[ApiVersionsRequest]) -> ApiVersionsResponse:
    request = call.request
    if call.version >= 3:  # KIP-511
        for text in (request.client_software_name, request.client_software_version):
            if not _LEGAL_SOFTWARE.fullmatch(text):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    call.authenticator.told_versions()
    cluster = call.cluster
    # A feature that may be off has 0 as its minimum version. Version 3 can't say so, and does not name such features.
    supported = cluster.supported_features.items() if call.version >= _FEATURES_FROM_0 else ()
    finalized = [(name, level) for name, level in cluster.features.items() if level] if call.version >= 3 else []
    return ApiVersionsResponse(
        error_code=0,
        api_keys=advertised(cluster),
        supported_features=[SupportedFeatureKey(name=name, max_version=level) for name, level in supported],
        finalized_features_epoch=cluster.features_epoch if finalized else -1,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized
        ],
    )


def advertised(cluster: ClusterState) -> list[ApiVersion]:
    """Return the API versions that every broker advertises.

    Real brokers advertise Produce 0 too, though they refuse it: an old librdkafka takes a broker without it for one
    that knows no compression.
    """
    return [
        ApiVersion(api_key=key, min_version=0 if key == ApiKey.PRODUCE else first, max_version=last)
        for key, (first, last) in sorted(cluster.versions.items())
    ]


async def metadata(call: Call[MetadataRequest]) -> MetadataResponse:
    cluster, asked = call.cluster, call.request.topics
    if call.version < _IDS_FROM and any(topic.name is None or topic.topic_id != NO_UUID for topic in asked or ()):
        return _without_ids(asked or [])
    if asked is None or (call.version == 0 and not asked):
        known = cluster.topics.by_name.items()
        topics = [_topic(cluster, one) for name, one in known if call.allows(Operation.DESCRIBE, "topic", name)]
    else:
        by_id = [topic for topic in asked if topic.name is None]
        once = {(topic.name, topic.topic_id): topic for topic in by_id or asked}  # one id: all names are ignored
        topics = [_asked_topic(call, topic) for topic in once.values()]
    if call.request.include_topic_authorized_operations:
        for topic in topics:
            if not topic.error_code:
                topic.topic_authorized_operations = _bits(call, "topic", topic.name or "", _ALL_OF_TOPIC)
    return _answer(call, topics)


def refused_topics(call: Call[MetadataRequest], code: ErrorCode) -> MetadataResponse:
    """Return the answer that has ``code`` for each topic asked for: for all of them, where the request names none.

    The brokers are in it, as in any answer. Without brokers it is one from which a client learns nothing.
    """
    asked = call.request.topics
    if asked is None or (call.version == 0 and not asked):
        known = call.cluster.topics.by_name.values()
        asked = [MetadataRequestTopic(name=topic.name, topic_id=topic.topic_id) for topic in known]
    return _answer(
        call,
        [
            MetadataResponseTopic(error_code=code, name=topic.name, topic_id=topic.topic_id, partitions=[])
            for topic in asked
        ],
    )


def _answer(call: Call[MetadataRequest], topics: list[MetadataResponseTopic]) -> MetadataResponse:
    cluster = call.cluster
    wants_operations = call.request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=at.host, port=at.port, rack=node.rack)
            for node, at in call.endpoints()
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
        cluster_authorized_operations=_cluster_bits(call) if wants_operations else _NOT_ASKED,
    )


def _without_ids(asked: list[MetadataRequestTopic]) -> MetadataResponse:
    """Refuse topic ids before version 12: no broker accepts the field that versions 10 and 11 have (KIP-516)."""
    refused = [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id, partitions=[]
        )
        for topic in asked
    ]
    return MetadataResponse(brokers=[], topics=refused)


def _asked_topic(call: Call[MetadataRequest], asked: MetadataRequestTopic) -> MetadataResponseTopic:
    topics = call.cluster.topics
    try:
        found = topics.of_id(asked.topic_id) if asked.name is None else topics.named(asked.name)
        if call.allows(Operation.DESCRIBE, "topic", found.name):
            return _topic(call.cluster, found)
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    except Refusal as refusal:
        code = refusal.code
        if asked.name is not None and not call.allows(Operation.DESCRIBE, "topic", asked.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # whether the topic exists is not told
        elif asked.name is not None and not is_legal_name(asked.name):
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif asked.name is not None and _may_create(call):
            code = _create(call, asked.name)
    return MetadataResponseTopic(error_code=code, name=asked.name, topic_id=asked.topic_id, partitions=[])


def _create(call: Call[MetadataRequest], name: str) -> ErrorCode:
    of_cluster = call.allows(Operation.CREATE, "cluster", CLUSTER_NAME)
    if not of_cluster and not call.allows(Operation.CREATE, "topic", name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with suppress(Refusal):  # the controller tells the broker alone why it creates none
        call.cluster.create_topic(name, call.cluster.settings.num_partitions)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # the broker has just asked the controller to create it


def _bits(call: Call[Any], kind: ResourceType, name: str, all_bits: int) -> int:
    return call.cluster.security.acls.bits(call.user, kind, name, all_bits)


def _cluster_bits(call: Call[Any]) -> int:
    may_describe = call.allows(Operation.DESCRIBE, "cluster", CLUSTER_NAME)
    return _bits(call, "cluster", CLUSTER_NAME, _ALL_OF_CLUSTER) if may_describe else 0


def _may_create(call: Call[MetadataRequest]) -> bool:
    wished = call.request.allow_auto_topic_creation or call.version < 4
    return wished and call.cluster.settings.auto_create_topics_enable


def _topic(cluster: ClusterState, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in _INTERNAL,
        partitions=[_partition(cluster, partition) for partition in topic.partitions],
    )


def _partition(cluster: ClusterState, partition: Partition) -> MetadataResponsePartition:
    offline = partition.leader is None
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if offline else ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=-1 if partition.leader is None else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.in_sync,
        offline_replicas=[replica for replica in partition.replicas if not cluster.nodes[replica].alive],
    )


async def describe_cluster(call: Call[DescribeClusterRequest]) -> DescribeClusterResponse:
    cluster = call.cluster
    endpoint = call.request.endpoint_type
    if endpoint != _BROKER:
        code, why = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint}"
        if endpoint == _CONTROLLER:
            code, why = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of type BROKER"
        return DescribeClusterResponse(error_code=code, error_message=why, cluster_id="", brokers=[])
    wants_operations = call.request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_code=0,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.node_id, host=at.host, port=at.port, rack=node.rack)
            for node, at in call.endpoints()
        ],
        cluster_authorized_operations=_cluster_bits(call) if wants_operations else _NOT_ASKED,
    )


async def find_coordinator(call: Call[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    request = call.request
    if call.version >= 4:
        found = [_coordinator(call, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _coordinator(call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or ("" if one.error_code else ErrorCode.NONE.name),
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(call: Call[FindCoordinatorRequest], key_type: int, key: str) -> Coordinator:
    try:
        if key_type not in (GROUP, TRANSACTION):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{key_type} is no type of a coordinator's key here")
        if key_type == GROUP and not call.allows(Operation.DESCRIBE, "group", key):
            raise Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if key_type == TRANSACTION and not call.allows(Operation.DESCRIBE, "transactional_id", key):
            raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        node = call.cluster.nodes[call.cluster.coordinator_of(key)]
    except Refusal as refusal:
        message = refusal.why
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=refusal.code, error_message=message)
    at = call.endpoint_of(node)
    return Coordinator(key=key, node_id=node.node_id, host=at.host, port=at.port, error_message="")
