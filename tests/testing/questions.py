"""The requests that tests send to the Cluster and to a real Kafka, in one line each."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from aiokc.error_codes import ErrorCode
from aiokc.records import NewRecord, encode_batch, split_batches
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from aiokc.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from aiokc.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokc.wire.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from aiokc.wire.messages.txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest

from .wire_client import WireClient

NO_ID = UUID(int=0)
#: Near that of the markers: a real broker begins a new segment for a record that is a week younger than the first.
NOW = int(time.time() * 1000)
#: The codes of a coordinator that is not ready, or busy with the transaction before.
NOT_YET = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


def batch_of(*values: bytes, timestamps: list[int] | None = None, **options: Any) -> bytes:
    times = timestamps or [NOW] * len(values)
    records = [NewRecord(value, timestamp=time) for value, time in zip(values, times, strict=True)]
    return encode_batch(records, **options)


async def produce_to(
    client: WireClient,
    topic: str,
    records: bytes | None,
    *,
    index: int = 0,
    acks: int = -1,
    txn: str | None = None,
    version: int = 11,
) -> PartitionProduceResponse:
    view = memoryview(records) if records is not None else None
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=view)])]
    request = ProduceRequest(transactional_id=txn, acks=acks, timeout_ms=5000, topic_data=data)
    answer = await client.ask(request, version)
    return answer.responses[0].partition_responses[0]


async def topic_id_of(client: WireClient, topic: str) -> UUID:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return (await client.ask(request)).topics[0].topic_id


async def new_producer(
    client: WireClient, txn: str | None = None, producer_id: int = -1, epoch: int = -1
) -> tuple[int, int, int]:
    """Ask for a producer id until the coordinator is ready."""
    request = InitProducerIdRequest(
        transactional_id=txn, transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch
    )
    while True:
        answer = await client.ask(request, 4)
        if answer.error_code not in NOT_YET:
            return answer.error_code, answer.producer_id, answer.producer_epoch


async def offset_at(
    client: WireClient, topic: str, timestamp: int, version: int = 9, **options: Any
) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, **options)
    topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
    return (await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), version)).topics[0].partitions[0]


async def fetch_from(
    client: WireClient, topic_id: UUID, offset: int, version: int = 16, **options: Any
) -> FetchResponse:
    """``options``: FetchRequest's; ``partition``, its partition's; ``name``, for brokers that know no topic ids."""
    name = options.pop("name", "")
    limits = {"partition_max_bytes": 1 << 20}
    partition = FetchPartition(partition=0, fetch_offset=offset, **limits | options.pop("partition", {}))
    defaults = {"max_wait_ms": 500, "min_bytes": 1}
    topics = [FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])] if topic_id != NO_ID or name else []
    return await client.ask(FetchRequest(topics=topics, **defaults | options), version)


async def add_to_transaction(
    client: WireClient, txn: str, producer: tuple[int, int], topic: str, *indexes: int
) -> list[int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=txn,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
    )
    while True:
        (found,) = (await client.ask(request, 3)).results_by_topic_v3_and_below
        by_partition = {one.partition_index: one.partition_error_code for one in found.results_by_partition}
        codes = [by_partition[index] for index in indexes]
        if ErrorCode.CONCURRENT_TRANSACTIONS not in codes:
            return codes


async def end_transaction(client: WireClient, txn: str, producer: tuple[int, int], committed: bool) -> int:
    request = EndTxnRequest(
        transactional_id=txn, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )
    while (answer := await client.ask(request, 3)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        pass
    return answer.error_code


async def read_stable(client: WireClient, topic_id: UUID, until: int) -> Any:
    """Fetch, read_committed, until all below ``until`` is stable and read: markers come a little later."""
    while True:
        answer = await fetch_from(client, topic_id, 0, isolation_level=1, max_wait_ms=0)
        (partition,) = answer.responses[0].partitions
        ends = [header.next_offset for header, _ in split_batches(partition.records or memoryview(b""))]
        if partition.last_stable_offset == until and (ends or [0])[-1] == until:
            return partition


async def transactions_are_ready(client: WireClient, txn: str) -> None:
    request = FindCoordinatorRequest(key_type=1, key=txn)
    while (await client.ask(request, 3)).error_code:
        pass
