"""The messages CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from ...wire.primitives import NO_UUID, Bool, Int8, Int16, Int32, Int64, String, Uuid
from ...wire.schema import Request, Response, Struct, field


class CreatableTopicConfigs(Struct):
    name: String = field("5+", default="")
    value: String | None = field("5+", default="")
    read_only: Bool = field("5+", default=False)
    config_source: Int8 = field("5+", default=-1, ignorable=True)
    is_sensitive: Bool = field("5+", default=False)


class CreatableTopicResult(Struct):
    name: String
    topic_id: Uuid = field("7+", default=NO_UUID, ignorable=True)
    error_code: Int16
    error_message: String | None = field("1+", default="", nullable="0+", ignorable=True)
    topic_config_error_code: Int16 = field("5+", default=0, tag=0, ignorable=True)
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", default=(), ignorable=True)


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult]


class CreatableReplicaAssignment(Struct):
    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    name: String
    value: String | None


class CreatableTopic(Struct):
    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(Request[CreateTopicsResponse], key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field("1+", default=False)


class DeletableTopicResult(Struct):
    name: String | None = field(nullable="6+")
    topic_id: Uuid = field("6+", default=NO_UUID, ignorable=True)
    error_code: Int16
    error_message: String | None = field("5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult]


class DeleteTopicState(Struct):
    name: String | None = field("6+", default=None)
    topic_id: Uuid = field("6+", default=NO_UUID)


class DeleteTopicsRequest(Request[DeleteTopicsResponse], key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = field("6+", default=())
    topic_names: list[String] = field("0-5", default=(), ignorable=True)
    timeout_ms: Int32


class CreatePartitionsTopicResult(Struct):
    name: String
    error_code: Int16
    error_message: String | None = field(default=None)


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[CreatePartitionsTopicResult]


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32]


class CreatePartitionsTopic(Struct):
    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


class CreatePartitionsRequest(Request[CreatePartitionsResponse], key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


class DeleteRecordsTopicResult(Struct):
    name: String
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[DeleteRecordsTopicResult]


class DeleteRecordsPartition(Struct):
    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(Struct):
    name: String
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsRequest(Request[DeleteRecordsResponse], key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32
