"""ApiVersions, Metadata and FindCoordinator: the versions, brokers, leaders and coordinators of a cluster."""

from __future__ import annotations

from ..primitives import NO_UUID, Bool, Int8, Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class ApiVersion(Struct):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    name: String = field("3+", default="")
    min_version: Int16 = field("3+", default=0)
    max_version: Int16 = field("3+", default=0)


class FinalizedFeatureKey(Struct):
    name: String = field("3+", default="")
    max_version_level: Int16 = field("3+", default=0)
    min_version_level: Int16 = field("3+", default=0)


class ApiVersionsResponse(Response, key=18, versions="0-5", flexible="3+"):
    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", default=(), tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", default=(), tag=2, ignorable=True)
    zk_migration_ready: Bool = field("3+", default=False, tag=3, ignorable=True)


class ApiVersionsRequest(Request[ApiVersionsResponse], key=18, versions="0-5", flexible="3+"):
    client_software_name: String = field("3+", default="", ignorable=True)
    client_software_version: String = field("3+", default="", ignorable=True)
    cluster_id: String | None = field("5+", default=None, ignorable=True)
    node_id: Int32 = field("5+", default=-1, ignorable=True)


class MetadataResponseBroker(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field("1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field("5+", default=(), ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: Int16
    name: String | None = field(nullable="12+")
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    is_internal: Bool = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field("8+", default=-2147483648)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", default=0, ignorable=True)


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    name: String | None = field(nullable="10+")


class MetadataRequest(Request[MetadataResponse], key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


class Coordinator(Struct):
    key: String = field("4+", default="")
    node_id: Int32 = field("4+", default=0)
    host: String = field("4+", default="")
    port: Int32 = field("4+", default=0)
    error_code: Int16 = field("4+", default=0)
    error_message: String | None = field("4+", default="", ignorable=True)


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", default=())


class FindCoordinatorRequest(Request[FindCoordinatorResponse], key=10, versions="0-6", flexible="3+"):
    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[String] = field("4+", default=())
