"""Fetch: record batches from the partition's leader, or from a closer replica."""

from __future__ import annotations

from ..primitives import NO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid
from ..schema import Request, Response, Struct, field


class EpochEndOffset(Struct):
    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


class SnapshotId(Struct):
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


class AbortedTransaction(Struct):
    producer_id: Int64 = field("4+")
    first_offset: Int64 = field("4+")


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = field("4+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = field("12+", default=None, nullable="none", tag=0)
    current_leader: LeaderIdAndEpoch | None = field("12+", default=None, nullable="none", tag=1)
    snapshot_id: SnapshotId | None = field("12+", default=None, nullable="none", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field("4+", ignorable=True)
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records | None


class FetchableTopicResponse(Struct):
    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=NO_UUID, ignorable=True)
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32 = field("16+", default=0)
    host: String = field("16+", default="")
    port: Int32 = field("16+", default=0)
    rack: String | None = field("16+", default=None)


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field("16+", default=(), tag=0)


class ReplicaState(Struct):
    replica_id: Int32 = field("15+", default=-1)
    replica_epoch: Int64 = field("15+", default=-1)


class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field("17+", default=NO_UUID, tag=0, ignorable=True)
    high_watermark: Int64 = field("18+", default=0x7FFFFFFFFFFFFFFF, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=NO_UUID, ignorable=True)
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic: String = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=NO_UUID, ignorable=True)
    partitions: list[Int32] = field("7+", default=())


class FetchRequest(Request[FetchResponse], key=1, versions="4-18", flexible="12+"):
    cluster_id: String | None = field("12+", default=None, tag=0, ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState | None = field("15+", default=None, nullable="none", tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: Int8 = field("4+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default=())
    rack_id: String = field("11+", default="", ignorable=True)
