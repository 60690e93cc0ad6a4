"""Produce and InitProducerId (KIP-98): appending record batches, and the identity of the producer that does."""

from __future__ import annotations

from ..primitives import NO_UUID, Bool, Int16, Int32, Int64, Records, String, Uuid
from ..schema import Request, Response, Struct, field


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = field("8+", default=0)
    batch_index_error_message: String | None = field("8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", default=(), ignorable=True)
    error_message: String | None = field("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = field("10+", default=None, nullable="none", tag=0)


class TopicProduceResponse(Struct):
    name: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=NO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


class NodeEndpoint(Struct):
    node_id: Int32 = field("10+", default=0)
    host: String = field("10+", default="")
    port: Int32 = field("10+", default=0)
    rack: String | None = field("10+", default=None)


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", default=(), tag=0)


class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


class TopicProduceData(Struct):
    name: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=NO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData]


class ProduceRequest(Request[ProduceResponse], key=0, versions="3-13", flexible="9+"):
    transactional_id: String | None = field("3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)


class InitProducerIdRequest(Request[InitProducerIdResponse], key=22, versions="0-6", flexible="2+"):
    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: Bool = field("6+", default=False)
    keep_prepared_txn: Bool = field("6+", default=False)
