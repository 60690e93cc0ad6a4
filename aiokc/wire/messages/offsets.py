"""Offsets: by timestamp (ListOffsets), by group (OffsetCommit, OffsetFetch), by epoch (OffsetForLeaderEpoch)."""

from __future__ import annotations

from ..primitives import NO_UUID, Bool, Int8, Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]


class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    timestamp: Int64


class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Request[ListOffsetsResponse], key=2, versions="1-11", flexible="6+"):
    replica_id: Int32
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Struct):
    name: String = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
    committed_metadata: String | None


class OffsetCommitRequestTopic(Struct):
    name: String = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Request[OffsetCommitResponse], key=8, versions="2-10", flexible="8+"):
    group_id: String
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field("1+", ignorable=True)
    group_instance_id: String | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = field("0-7", default=0)
    committed_offset: Int64 = field("0-7", default=0)
    committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
    metadata: String | None = field("0-7", default="")
    error_code: Int16 = field("0-7", default=0)


class OffsetFetchResponseTopic(Struct):
    name: String = field("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = field("0-7", default=())


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = field("8+", default=0)
    committed_offset: Int64 = field("8+", default=0)
    committed_leader_epoch: Int32 = field("8+", default=-1, ignorable=True)
    metadata: String | None = field("8+", default="")
    error_code: Int16 = field("8+", default=0)


class OffsetFetchResponseTopics(Struct):
    name: String = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field("8+", default=())


class OffsetFetchResponseGroup(Struct):
    group_id: String = field("8+", default="")
    topics: list[OffsetFetchResponseTopics] = field("8+", default=())
    error_code: Int16 = field("8+", default=0)


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7", default=())
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", default=())


class OffsetFetchRequestTopic(Struct):
    name: String = field("0-7", default="")
    partition_indexes: list[Int32] = field("0-7", default=())


class OffsetFetchRequestTopics(Struct):
    name: String = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=NO_UUID, ignorable=True)
    partition_indexes: list[Int32] = field("8+", default=())


class OffsetFetchRequestGroup(Struct):
    group_id: String = field("8+", default="")
    member_id: String | None = field("9+", default=None, ignorable=True)
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field("8+", default=())


class OffsetFetchRequest(Request[OffsetFetchResponse], key=9, versions="1-10", flexible="6+"):
    group_id: String = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", default=(), nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+", default=())
    require_stable: Bool = field("7+", default=False)


class EpochEndOffset(Struct):
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = field("1+", default=-1, ignorable=True)
    end_offset: Int64 = field(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: String
    partitions: list[EpochEndOffset]


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]


class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    leader_epoch: Int32


class OffsetForLeaderTopic(Struct):
    topic: String
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse], key=23, versions="2-4", flexible="4+"):
    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]
