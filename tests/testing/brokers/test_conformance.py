"""The same requests to the Cluster and to a real Kafka: the same answers, error codes included."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.records import Codec, ControlType, control_type, split_batches
from aiokc.testing import Cluster
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.brokers.apis.table import REQUESTS, versions_of
from aiokc.testing.brokers.released_versions import RELEASES
from aiokc.testing.kafka.jars import KAFKA_VERSION
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
from aiokc.wire.messages.discovery import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from aiokc.wire.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from ..conftest import Kafka
from ..questions import (
    NO_ID,
    add_to_transaction,
    batch_of,
    end_transaction,
    fetch_from,
    new_producer,
    offset_at,
    produce_to,
    read_stable,
    topic_id_of,
    transactions_are_ready,
)
from ..wire_client import WireClient, connected

pytestmark = pytest.mark.every_kafka


# Metadata


@pytest.mark.every_kafka(since="4.0")
async def test_the_versions_of_the_apis(either: Kafka, pytestconfig: pytest.Config) -> None:
    """But for ApiVersions itself. The Cluster is one release newer than the real Kafka of the tests."""
    kafka = pytestconfig.getoption("--kafka")
    is_newer = isinstance(either, Cluster) and kafka == KAFKA_VERSION
    release = RELEASES[-1] if is_newer else kafka.rpartition(".")[0]
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    async with connected(either.bootstrap) as client:
        answer = await client.ask(request, 4)
        named = [one for one in answer.api_keys if one.api_key in REQUESTS and one.api_key != request.api_key]
        expected = versions_of(release)
        expected[ApiKey.PRODUCE] = (0, expected[ApiKey.PRODUCE][1])  # and 0 to 2 are refused
        del expected[request.api_key]
        assert {one.api_key: (one.min_version, one.max_version) for one in named} == expected
        refused = await client.ask(ApiVersionsRequest(client_software_name="?"), 4)
        assert refused.error_code == ErrorCode.INVALID_REQUEST


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
        first = await produce_to(client, topic, batch_of(b"a", b"b"))
        second = await produce_to(client, topic, batch_of(b"c", codec=Codec.ZSTD), acks=1)
    assert (first.error_code, first.base_offset, first.log_append_time_ms, first.log_start_offset) == (0, 0, -1, 0)
    assert (second.error_code, second.base_offset) == (0, 2)


def _flipped(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (_flipped(batch_of(b"a")), ErrorCode.CORRUPT_MESSAGE),
        (batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD),
        (batch_of(b"." * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(b"a", control=True), ErrorCode.INVALID_RECORD),
    ],
    ids=["crc", "two batches", "too large", "control"],
)
async def test_batches_that_are_refused(either: Kafka, topic: str, records: bytes, code: ErrorCode) -> None:
    async with connected(either.bootstrap) as client:
        answer = await produce_to(client, topic, records)
    assert (answer.error_code, answer.base_offset) == (code, -1)


@pytest.mark.parametrize(
    ("index", "acks", "code"),
    [(7, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, 2, ErrorCode.INVALID_REQUIRED_ACKS)],
)
async def test_errors_of_produce(either: Kafka, topic: str, index: int, acks: int, code: ErrorCode) -> None:
    async with connected(either.bootstrap) as client:
        assert (await produce_to(client, topic, batch_of(b"a"), index=index, acks=acks)).error_code == code


async def test_an_idempotent_producer(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        code, producer_id, epoch = await new_producer(client)
        assert (code, epoch) == (0, 0)

        async def produce(sequence: int, *values: bytes, epoch: int = 0) -> tuple[int, int]:
            batch = batch_of(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            answer = await produce_to(client, topic, batch)
            return answer.error_code, answer.base_offset

        assert await produce(0, b"a", b"b") == (0, 0)
        assert await produce(2, b"c") == (0, 2)
        assert await produce(0, b"a", b"b") == (0, 0)  # a retry
        assert await produce(4, b"e") == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(3, b"d", epoch=1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert await produce(0, b"d", epoch=1) == (0, 3)
        assert await produce(3, b"d", epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


# ListOffsets, OffsetForLeaderEpoch


@pytest.mark.every_kafka(since="3.9")
async def test_offsets_by_timestamp(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        empty = [await offset_at(client, topic, timestamp) for timestamp in (-1, -2, -3, -4, -5, 0)]
        await produce_to(client, topic, batch_of(b"a", b"b", b"c", timestamps=[1000, 3000, 2000], codec=Codec.GZIP))
        await produce_to(client, topic, batch_of(b"d", timestamps=[1500]))
        found = [await offset_at(client, topic, time) for time in (-1, -2, -3, -4, -5, 0, 1001, 3000, 3001)]
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
        assert (await offset_at(client, topic, timestamp, version, current_leader_epoch=epoch)).error_code == code


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
        await produce_to(client, topic, batch_of(b"a", b"b"))
        ends = [await end_of(0), await end_of(1), await end_of(-1), await end_of(0, 0), await end_of(0, 3)]
    assert [(end.error_code, end.leader_epoch, end.end_offset) for end in ends] == [
        (0, 0, 2),
        (0, -1, -1),
        (0, -1, -1),
        (0, 0, 2),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1),
    ]


# Fetch


@pytest.mark.every_kafka(since="3.9")
async def test_what_a_fetch_says(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        topic_id = await topic_id_of(client, topic)
        sent = batch_of(b"a" * 100, b"b" * 100)
        for _ in range(3):
            await produce_to(client, topic, sent)
        (all_of_it,) = (await fetch_from(client, topic_id, 1)).responses[0].partitions
        (one_batch,) = (
            (await fetch_from(client, topic_id, 0, partition={"partition_max_bytes": 1})).responses[0].partitions
        )
        cut = (await fetch_from(client, topic_id, 0, partition={"partition_max_bytes": len(sent) + 50})).responses[0]
        (out,) = (await fetch_from(client, topic_id, 7)).responses[0].partitions
        (diverging,) = (
            (await fetch_from(client, topic_id, 9, partition={"last_fetched_epoch": 0})).responses[0].partitions
        )
        (unknown,) = (await fetch_from(client, UUID(int=1), 0)).responses[0].partitions
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
        topic_id = await topic_id_of(client, topic)
        quick = {"max_wait_ms": 0}
        full = await fetch_from(client, topic_id, 0, session_epoch=0, **quick)
        assert full.session_id > 0
        assert len(full.responses) == 1
        session = {"session_id": full.session_id}
        assert (await fetch_from(client, NO_ID, 0, **session, session_epoch=1, **quick)).responses == []
        wrong = await fetch_from(client, NO_ID, 0, **session, session_epoch=9, **quick)
        assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        await produce_to(client, topic, batch_of(b"a"))
        news = await fetch_from(client, NO_ID, 0, **session, session_epoch=2, **quick)
        assert news.responses[0].partitions[0].high_watermark == 1
        assert (await fetch_from(client, topic_id, 1, **session, session_epoch=3, **quick)).responses == []
        closed = await fetch_from(client, topic_id, 0, **session, session_epoch=-1, **quick)
        assert (closed.session_id, len(closed.responses)) == (0, 1)
        gone = await fetch_from(client, NO_ID, 0, **session, session_epoch=4, **quick)
        assert (gone.error_code, gone.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


# Transactions


@pytest.mark.every_kafka(since="3.9")
async def test_transactions(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        topic_id = await topic_id_of(client, topic)
        await transactions_are_ready(client, topic)
        code, producer_id, epoch = await new_producer(client, topic)
        assert (code, epoch) == (0, 0)
        producer = (producer_id, epoch)
        options: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "transactional": True}

        for version, code in ((10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)):
            batch = batch_of(b"a", base_sequence=0, **options)
            assert (await produce_to(client, topic, batch, txn=topic, version=version)).error_code == code
        assert await add_to_transaction(client, topic, producer, topic, 0) == [0]
        assert (await produce_to(client, topic, batch_of(b"a", base_sequence=0, **options), txn=topic)).base_offset == 0
        open_ = await read_stable(client, topic_id, until=0)
        assert (open_.high_watermark, open_.aborted_transactions, bytes(open_.records)) == (1, [], b"")
        assert await end_transaction(client, topic, producer, committed=True) == 0
        assert await end_transaction(client, topic, producer, committed=True) == 0
        assert await end_transaction(client, topic, producer, committed=False) == ErrorCode.INVALID_TXN_STATE

        committed = await read_stable(client, topic_id, until=2)
        (_, (marker, view)) = list(split_batches(committed.records))
        assert (marker.is_control, marker.is_transactional, marker.producer_id) == (True, True, producer_id)
        assert control_type(marker, view) == ControlType.COMMIT

        assert await add_to_transaction(client, topic, producer, topic, 0) == [0]
        assert (await produce_to(client, topic, batch_of(b"b", base_sequence=1, **options), txn=topic)).base_offset == 2
        assert await end_transaction(client, topic, producer, committed=False) == 0
        aborted = await read_stable(client, topic_id, until=4)
        assert len(list(split_batches(aborted.records))) == 4  # the aborted ones too
        assert [(one.producer_id, one.first_offset) for one in aborted.aborted_transactions] == [(producer_id, 2)]


async def test_errors_of_transactions(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        await transactions_are_ready(client, topic)
        assert (await new_producer(client, ""))[0] == ErrorCode.INVALID_REQUEST
        _, producer_id, epoch = await new_producer(client, topic)
        unknown, missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await add_to_transaction(client, topic, (producer_id, epoch), topic, 0, 9) == [missing, unknown]
        assert await add_to_transaction(client, topic, (producer_id, 7), topic, 0) == [ErrorCode.PRODUCER_FENCED]
        assert await add_to_transaction(client, topic, (producer_id + 1000, epoch), topic, 0) == [
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        ]
        assert await end_transaction(client, topic, (producer_id, epoch), committed=True) == ErrorCode.INVALID_TXN_STATE
        _, same_id, bumped = await new_producer(client, topic)
        assert (same_id, bumped) == (producer_id, epoch + 1)
        assert await add_to_transaction(client, topic, (producer_id, epoch), topic, 0) == [ErrorCode.PRODUCER_FENCED]
        fenced = await new_producer(client, topic, producer_id, 7)
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
        assert await deleted(None, await topic_id_of(client, topic)) == 0
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
        await produce_to(client, topic, batch_of(b"a", b"b", b"c"))

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
        assert (await offset_at(client, topic, -2)).offset == 2
        assert await trimmed(-1) == (0, 3)
