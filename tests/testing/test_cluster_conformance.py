"""The same requests to the cluster and to a real Kafka: the same answers, error codes included."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.records import Codec, ControlType, NewRecord, control_type, encode_batch, split_batches
from aiokc.testing.api_keys import ApiKey
from aiokc.testing.apis import REQUESTS, versions_of
from aiokc.testing.kafka_jars import KAFKA_VERSION
from aiokc.testing.messages.producing import (
    InitProducerIdRequest,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from aiokc.testing.messages.topic_admin import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from aiokc.testing.messages.txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest
from aiokc.wire.messages.discovery import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from aiokc.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from aiokc.wire.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .conftest import Kafka
from .wire_client import WireClient, connected

pytestmark = pytest.mark.every_kafka

NO_ID = UUID(int=0)
#: Near that of the markers: a real broker begins a new segment for a record that is a week younger than the first.
_NOW = int(time.time() * 1000)


@pytest.fixture
async def topic(either: Kafka, topic_name: str) -> str:
    """A topic of two partitions whose leaders know already that they lead."""
    either.create_topic(topic_name, 2)
    async with connected(either.bootstrap) as client:
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic_name, partitions=partitions)])
        while any(one.error_code for one in (await client.ask(request, 7)).topics[0].partitions):
            pass
    return topic_name


def _batch(*values: bytes, timestamps: list[int] | None = None, **options: Any) -> bytes:
    times = timestamps or [_NOW] * len(values)
    records = [NewRecord(value, timestamp=time) for value, time in zip(values, times, strict=True)]
    return encode_batch(records, **options)


async def _produce(
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


async def _topic_id(client: WireClient, topic: str) -> UUID:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return (await client.ask(request)).topics[0].topic_id


# Metadata


@pytest.mark.every_kafka(since="4.0")
async def test_the_versions_of_the_apis(either: Kafka) -> None:
    """Only ApiVersions itself may differ: the cluster is one release newer than the real Kafka at hand."""
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    async with connected(either.bootstrap) as client:
        answer = await client.ask(request, 4)
        named = [one for one in answer.api_keys if one.api_key in REQUESTS and one.api_key != request.api_key]
        expected = {**versions_of(KAFKA_VERSION.rpartition(".")[0]), ApiKey.PRODUCE: (0, 13)}  # and 0 to 2 are refused
        del expected[request.api_key]
        assert {one.api_key: (one.min_version, one.max_version) for one in named} == expected
        nobody = await client.ask(ApiVersionsRequest(client_software_name="?"), 4)
        assert nobody.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.every_kafka(since="3.9")
async def test_metadata_of_what_does_not_exist(either: Kafka, topic_name: str) -> None:
    async with connected(either.bootstrap) as client:
        named = [MetadataRequestTopic(name=topic_name), MetadataRequestTopic(name="not/legal")]
        answer = await client.ask(MetadataRequest(topics=named, allow_auto_topic_creation=False))
        codes = {topic.name: topic.error_code for topic in answer.topics}
        assert codes == {
            topic_name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "not/legal": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        both = [*named, MetadataRequestTopic(name=None, topic_id=UUID(int=1))]  # the names do not count then
        answer = await client.ask(MetadataRequest(topics=both, allow_auto_topic_creation=False))
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.every_kafka(since="3.9")
async def test_metadata_of_a_topic(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        (found,) = (await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))).topics
        (by_id,) = (
            await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=found.topic_id)]))
        ).topics
        assert (await client.ask(MetadataRequest(topics=[]))).topics == []
    assert by_id == found
    assert (found.error_code, found.is_internal) == (0, False)
    shape = sorted((one.partition_index, one.leader_epoch, one.offline_replicas) for one in found.partitions)
    assert shape == [(0, 0, []), (1, 0, [])]


async def test_a_coordinator_of_no_known_type(either: Kafka) -> None:
    async with connected(either.bootstrap) as client:
        answer = await client.ask(FindCoordinatorRequest(key_type=7, key="x"), 3)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


# Produce


async def test_offsets_are_assigned(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        first = await _produce(client, topic, _batch(b"a", b"b"))
        second = await _produce(client, topic, _batch(b"c", codec=Codec.ZSTD), acks=1)
    assert (first.error_code, first.base_offset, first.log_append_time_ms, first.log_start_offset) == (0, 0, -1, 0)
    assert (second.error_code, second.base_offset) == (0, 2)


def _flipped(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (_flipped(_batch(b"a")), ErrorCode.CORRUPT_MESSAGE),
        (_batch(b"a") + _batch(b"b"), ErrorCode.INVALID_RECORD),
        (_batch(b"." * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
        (_batch(b"a", control=True), ErrorCode.INVALID_RECORD),
    ],
    ids=["crc", "two batches", "too large", "control"],
)
async def test_batches_that_are_refused(either: Kafka, topic: str, records: bytes, code: ErrorCode) -> None:
    async with connected(either.bootstrap) as client:
        answer = await _produce(client, topic, records)
    assert (answer.error_code, answer.base_offset) == (code, -1)


@pytest.mark.parametrize(
    ("index", "acks", "code"),
    [(7, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, 2, ErrorCode.INVALID_REQUIRED_ACKS)],
)
async def test_errors_of_produce(either: Kafka, topic: str, index: int, acks: int, code: ErrorCode) -> None:
    async with connected(either.bootstrap) as client:
        assert (await _produce(client, topic, _batch(b"a"), index=index, acks=acks)).error_code == code


#: What a coordinator says that is not ready, or busy with the transaction before.
NOT_YET = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


async def _producer(
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


async def test_an_idempotent_producer(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        code, producer_id, epoch = await _producer(client)
        assert (code, epoch) == (0, 0)

        async def produce(sequence: int, *values: bytes, epoch: int = 0) -> tuple[int, int]:
            batch = _batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            answer = await _produce(client, topic, batch)
            return answer.error_code, answer.base_offset

        assert await produce(0, b"a", b"b") == (0, 0)
        assert await produce(2, b"c") == (0, 2)
        assert await produce(0, b"a", b"b") == (0, 0)  # a retry
        assert await produce(4, b"e") == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(3, b"d", epoch=1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(0, b"d", epoch=1) == (0, 3)
        assert await produce(3, b"d", epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


# ListOffsets, OffsetForLeaderEpoch


async def _offset(
    client: WireClient, topic: str, timestamp: int, version: int = 9, **options: Any
) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, **options)
    topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
    return (await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), version)).topics[0].partitions[0]


@pytest.mark.every_kafka(since="3.9")
async def test_offsets_by_timestamp(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        empty = [await _offset(client, topic, timestamp) for timestamp in (-1, -2, -3, -4, -5, 0)]
        await _produce(client, topic, _batch(b"a", b"b", b"c", timestamps=[1000, 3000, 2000], codec=Codec.GZIP))
        await _produce(client, topic, _batch(b"d", timestamps=[1500]))
        found = [await _offset(client, topic, time) for time in (-1, -2, -3, -4, -5, 0, 1001, 3000, 3001)]
    assert [(one.offset, one.timestamp, one.error_code) for one in empty] == [
        (0, -1, 0), (0, -1, 0), (-1, -1, 0), (0, -1, 0), (-1, -1, 0), (-1, -1, 0)
    ]  # fmt: skip
    assert [(one.offset, one.timestamp, one.leader_epoch) for one in found] == [
        (4, -1, 0), (0, -1, 0), (1, 3000, 0), (0, -1, 0), (-1, -1, -1), (0, 1000, 0), (1, 3000, 0), (1, 3000, 0),
        (-1, -1, -1),
    ]  # fmt: skip


@pytest.mark.every_kafka(since="3.9")
@pytest.mark.parametrize(
    ("timestamp", "version", "epoch", "code"),
    [
        (-3, 6, -1, ErrorCode.UNSUPPORTED_VERSION),
        (-9, 9, -1, ErrorCode.UNSUPPORTED_VERSION),
        (-1, 9, 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, 9, 0, ErrorCode.NONE),
    ],
)
async def test_errors_of_list_offsets(
    either: Kafka, topic: str, timestamp: int, version: int, epoch: int, code: ErrorCode
) -> None:
    async with connected(either.bootstrap) as client:
        assert (await _offset(client, topic, timestamp, version, current_leader_epoch=epoch)).error_code == code


async def test_a_partition_named_twice(either: Kafka, topic: str) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    async with connected(either.bootstrap) as client:
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=twice)])
        (found,) = (await client.ask(request, 7)).topics
    assert {one.error_code for one in found.partitions} == {ErrorCode.INVALID_REQUEST}


async def test_ends_of_epochs(either: Kafka, topic: str) -> None:
    async def end_of(epoch: int, current: int = -1) -> EpochEndOffset:
        asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        )
        return (await client.ask(request)).topics[0].partitions[0]

    async with connected(either.bootstrap) as client:
        await _produce(client, topic, _batch(b"a", b"b"))
        ends = [await end_of(0), await end_of(1), await end_of(-1), await end_of(0, 0), await end_of(0, 3)]
    assert [(end.error_code, end.leader_epoch, end.end_offset) for end in ends] == [
        (0, 0, 2),
        (0, -1, -1),
        (0, -1, -1),
        (0, 0, 2),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1),
    ]


# Fetch


async def _fetch(client: WireClient, topic_id: UUID, offset: int, version: int = 16, **options: Any) -> FetchResponse:
    limits = {"partition_max_bytes": 1 << 20}
    partition = FetchPartition(partition=0, fetch_offset=offset, **limits | options.pop("partition", {}))
    defaults = {"max_wait_ms": 500, "min_bytes": 1}
    topics = [FetchTopic(topic_id=topic_id, partitions=[partition])] if topic_id != NO_ID else []
    return await client.ask(FetchRequest(topics=topics, **defaults | options), version)


@pytest.mark.every_kafka(since="3.9")
async def test_what_a_fetch_says(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        topic_id = await _topic_id(client, topic)
        sent = _batch(b"a" * 100, b"b" * 100)
        for _ in range(3):
            await _produce(client, topic, sent)
        (all_of_it,) = (await _fetch(client, topic_id, 1)).responses[0].partitions
        (one_batch,) = (await _fetch(client, topic_id, 0, partition={"partition_max_bytes": 1})).responses[0].partitions
        cut = (await _fetch(client, topic_id, 0, partition={"partition_max_bytes": len(sent) + 50})).responses[0]
        (out,) = (await _fetch(client, topic_id, 7)).responses[0].partitions
        (diverging,) = (await _fetch(client, topic_id, 9, partition={"last_fetched_epoch": 0})).responses[0].partitions
        (unknown,) = (await _fetch(client, UUID(int=1), 0)).responses[0].partitions
    assert (all_of_it.high_watermark, all_of_it.last_stable_offset, all_of_it.log_start_offset) == (6, 6, 0)
    assert all_of_it.aborted_transactions is None
    stored = [view for _, view in split_batches(all_of_it.records or memoryview(b""))]
    assert [bytes(view[16:]) for view in stored] == [sent[16:]] * 3  # verbatim from the magic on
    assert len(one_batch.records or b"") == len(sent)
    assert len(cut.partitions[0].records or b"") == len(sent) + 50
    assert (out.error_code, out.high_watermark, out.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, memoryview(b""))
    assert diverging.diverging_epoch is not None
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 6)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.every_kafka(since="3.9")
async def test_sessions(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        topic_id = await _topic_id(client, topic)
        quick = {"max_wait_ms": 0}
        full = await _fetch(client, topic_id, 0, session_epoch=0, **quick)
        assert full.session_id > 0
        assert len(full.responses) == 1
        session = {"session_id": full.session_id}
        assert (await _fetch(client, NO_ID, 0, **session, session_epoch=1, **quick)).responses == []
        wrong = await _fetch(client, NO_ID, 0, **session, session_epoch=9, **quick)
        assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        await _produce(client, topic, _batch(b"a"))
        news = await _fetch(client, NO_ID, 0, **session, session_epoch=2, **quick)
        assert news.responses[0].partitions[0].high_watermark == 1
        assert (await _fetch(client, topic_id, 1, **session, session_epoch=3, **quick)).responses == []
        closed = await _fetch(client, topic_id, 0, **session, session_epoch=-1, **quick)
        assert (closed.session_id, len(closed.responses)) == (0, 1)
        gone = await _fetch(client, NO_ID, 0, **session, session_epoch=4, **quick)
        assert (gone.error_code, gone.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


# Transactions


async def _add(client: WireClient, txn: str, producer: tuple[int, int], topic: str, *indexes: int) -> list[int]:
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


async def _end(client: WireClient, txn: str, producer: tuple[int, int], committed: bool) -> int:
    request = EndTxnRequest(
        transactional_id=txn, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )
    while (answer := await client.ask(request, 3)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        pass
    return answer.error_code


async def _stable(client: WireClient, topic_id: UUID, until: int) -> Any:
    """Fetch, read_committed, until all below ``until`` is stable and read: markers come a little later."""
    while True:
        answer = await _fetch(client, topic_id, 0, isolation_level=1, max_wait_ms=0)
        (partition,) = answer.responses[0].partitions
        ends = [header.next_offset for header, _ in split_batches(partition.records or memoryview(b""))]
        if partition.last_stable_offset == until and (ends or [0])[-1] == until:
            return partition


async def _coordinator_is_ready(client: WireClient, txn: str) -> None:
    request = FindCoordinatorRequest(key_type=1, key=txn)
    while (await client.ask(request, 3)).error_code:
        pass


@pytest.mark.every_kafka(since="3.9")
async def test_transactions(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        topic_id = await _topic_id(client, topic)
        await _coordinator_is_ready(client, topic)
        code, producer_id, epoch = await _producer(client, topic)
        assert (code, epoch) == (0, 0)
        producer = (producer_id, epoch)
        options: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "transactional": True}

        for version, code in ((10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)):
            batch = _batch(b"a", base_sequence=0, **options)
            assert (await _produce(client, topic, batch, txn=topic, version=version)).error_code == code
        assert await _add(client, topic, producer, topic, 0) == [0]
        assert (await _produce(client, topic, _batch(b"a", base_sequence=0, **options), txn=topic)).base_offset == 0
        open_ = await _stable(client, topic_id, until=0)
        assert (open_.high_watermark, open_.aborted_transactions, bytes(open_.records)) == (1, [], b"")
        assert await _end(client, topic, producer, committed=True) == 0
        assert await _end(client, topic, producer, committed=True) == 0
        assert await _end(client, topic, producer, committed=False) == ErrorCode.INVALID_TXN_STATE

        committed = await _stable(client, topic_id, until=2)
        (_, (marker, view)) = list(split_batches(committed.records))
        assert (marker.is_control, marker.is_transactional, marker.producer_id) == (True, True, producer_id)
        assert control_type(marker, view) == ControlType.COMMIT

        assert await _add(client, topic, producer, topic, 0) == [0]
        assert (await _produce(client, topic, _batch(b"b", base_sequence=1, **options), txn=topic)).base_offset == 2
        assert await _end(client, topic, producer, committed=False) == 0
        aborted = await _stable(client, topic_id, until=4)
        assert len(list(split_batches(aborted.records))) == 4  # the aborted ones too
        assert [(one.producer_id, one.first_offset) for one in aborted.aborted_transactions] == [(producer_id, 2)]


async def test_errors_of_transactions(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        await _coordinator_is_ready(client, topic)
        assert (await _producer(client, ""))[0] == ErrorCode.INVALID_REQUEST
        _, producer_id, epoch = await _producer(client, topic)
        unknown, missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await _add(client, topic, (producer_id, epoch), topic, 0, 9) == [missing, unknown]
        assert await _add(client, topic, (producer_id, 7), topic, 0) == [ErrorCode.PRODUCER_FENCED]
        assert await _add(client, topic, (producer_id + 1000, epoch), topic, 0) == [
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        ]
        assert await _end(client, topic, (producer_id, epoch), committed=True) == ErrorCode.INVALID_TXN_STATE
        _, same_id, bumped = await _producer(client, topic)
        assert (same_id, bumped) == (producer_id, epoch + 1)
        assert await _add(client, topic, (producer_id, epoch), topic, 0) == [ErrorCode.PRODUCER_FENCED]
        fenced = await _producer(client, topic, producer_id, 7)
        assert fenced[0] == ErrorCode.PRODUCER_FENCED


# Administration


async def _created(client: WireClient, name: str, partitions: int, factor: int, **options: Any) -> int:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, **options)
    return (await client.ask(request)).topics[0].error_code


async def test_creating_topics(either: Kafka, topic: str, topic_name: str) -> None:
    new = topic_name + "-new"
    async with connected(either.bootstrap) as client:
        assert await _created(client, topic, 1, 1) == ErrorCode.TOPIC_ALREADY_EXISTS
        assert await _created(client, new, 0, 1) == ErrorCode.INVALID_PARTITIONS
        assert await _created(client, new, 1, 99) == ErrorCode.INVALID_REPLICATION_FACTOR
        assert await _created(client, "not/legal", 1, 1) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await _created(client, new, 1, 1, validate_only=True) == 0
        assert await _created(client, new, 2, 1) == 0


async def test_deleting_topics(either: Kafka, topic: str, topic_name: str) -> None:
    async with connected(either.bootstrap) as client:

        async def deleted(name: str | None, topic_id: UUID = NO_ID) -> int:
            asked = [DeleteTopicState(name=name, topic_id=topic_id)]
            return (await client.ask(DeleteTopicsRequest(topics=asked, timeout_ms=10_000))).responses[0].error_code

        assert await deleted(topic_name + "-none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await deleted(None, UUID(int=1)) == ErrorCode.UNKNOWN_TOPIC_ID
        assert await deleted(None, await _topic_id(client, topic)) == 0
        assert await deleted(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_adding_partitions(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:

        async def grown(name: str, count: int) -> int:
            asked = [CreatePartitionsTopic(name=name, count=count, assignments=None)]
            request = CreatePartitionsRequest(topics=asked, timeout_ms=10_000, validate_only=False)
            return (await client.ask(request)).results[0].error_code

        assert await grown(topic + "-none", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await grown(topic, 2) == ErrorCode.INVALID_PARTITIONS
        assert await grown(topic, 1) == ErrorCode.INVALID_PARTITIONS
        assert await grown(topic, 3) == 0


async def test_deleting_records(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        await _produce(client, topic, _batch(b"a", b"b", b"c"))

        async def trimmed(offset: int, index: int = 0) -> tuple[int, int]:
            asked = DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
            )
            answer = await client.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000))
            (found,) = answer.topics[0].partitions
            return found.error_code, found.low_watermark

        assert await trimmed(9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await trimmed(0, index=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await trimmed(2) == (0, 2)
        assert await trimmed(1) == (0, 2)
        assert (await _offset(client, topic, -2)).offset == 2
        assert await trimmed(-1) == (0, 3)
