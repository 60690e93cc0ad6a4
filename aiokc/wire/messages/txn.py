"""Transactions (KIP-98, KIP-890): AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn."""

from __future__ import annotations

from ..primitives import NO_UUID, Bool, Int16, Int32, Int64, String, Uuid
from ..schema import Request, Response, Struct, field


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsToTxnTopicResult(Struct):
    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = field("4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+", default=())


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", default=())
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", default=())


class AddPartitionsToTxnTopic(Struct):
    name: String
    partitions: list[Int32]


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = field("4+", default="")
    producer_id: Int64 = field("4+", default=0)
    producer_epoch: Int16 = field("4+", default=0)
    verify_only: Bool = field("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field("4+", default=())


class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse], key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = field("4+", default=())
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", default=())


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16


class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse], key=25, versions="0-4", flexible="3+"):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)


class EndTxnRequest(Request[EndTxnResponse], key=26, versions="0-5", flexible="3+"):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class TxnOffsetCommitResponseTopic(Struct):
    name: String = field("0-5", default="", ignorable=True)
    topic_id: Uuid = field("6+", default=NO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Response, key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: String | None


class TxnOffsetCommitRequestTopic(Struct):
    name: String = field("0-5", default="", ignorable=True)
    topic_id: Uuid = field("6+", default=NO_UUID, ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse], key=28, versions="0-6", flexible="3+"):
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]
