"""Producers and their transactions: the Cluster and a real Kafka answer right, late and wrong requests alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing.messages.topic_admin import DeleteTopicsRequest
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.group_admin import DescribeGroupsRequest
from aiokc.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from aiokc.wire.messages.produce import InitProducerIdRequest
from aiokc.wire.messages.txn import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from ...conftest import Kafka
from ...questions import (
    NO_ID,
    NOT_YET,
    NOW,
    add_to_transaction,
    batch_of,
    end_transaction,
    produce_to,
    read_stable,
    topic_id_of,
    transactions_are_ready,
)
from ...wire_client import WireClient, connected

pytestmark = pytest.mark.every_kafka

NONE: Final = ErrorCode.NONE
NO_MAPPING: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING
OLD_EPOCH: Final = ErrorCode.INVALID_PRODUCER_EPOCH
FENCED: Final = ErrorCode.PRODUCER_FENCED
INVALID_STATE: Final = ErrorCode.INVALID_TXN_STATE
INVALID_REQUEST: Final = ErrorCode.INVALID_REQUEST


class Producer:
    """A transactional producer, which can be told to use the identity of another one."""

    def __init__(self, client: WireClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.name = topic
        self.id = -1
        self.epoch = -1

    async def open(self) -> None:
        await transactions_are_ready(self.client, self.name)
        code, self.id, self.epoch = await self.init()
        assert code == 0

    async def _ready(self, request: Any, version: int) -> Any:
        while (answer := await self.client.ask(request, version)).error_code in NOT_YET:
            pass
        return answer

    async def init(self, name: str | None = "", version: int = 4, **options: Any) -> tuple[int, int, int]:
        """Return code, producer id and epoch; ``name`` "" is its own."""
        defaults: dict[str, Any] = {"transaction_timeout_ms": 60_000}
        request = InitProducerIdRequest(transactional_id=self.name if name == "" else name, **defaults | options)
        answer = await self._ready(request, version)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    def _identity(self, options: dict[str, Any]) -> dict[str, Any]:
        later = options.pop("later", 0)
        mine = {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch + later}
        return mine | options

    async def add(self, version: int = 3, index: int = 0, **options: Any) -> int:
        mine = self._identity(options)
        topics = [AddPartitionsToTxnTopic(name=mine.pop("topic", self.topic), partitions=[index])]
        if version >= 4:
            request = AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(topics=topics, **mine)])
        else:
            old = {f"v3_and_below_{name}": value for name, value in mine.items()}
            request = AddPartitionsToTxnRequest(v3_and_below_topics=topics, **old)
        while True:
            answer = await self.client.ask(request, version)
            results = (
                answer.results_by_transaction[0].topic_results if version >= 4 else answer.results_by_topic_v3_and_below
            )
            code = results[0].results_by_partition[0].partition_error_code
            if code not in NOT_YET:
                return ErrorCode(code)

    async def add_offsets(self, version: int = 3, **options: Any) -> int:
        request = AddOffsetsToTxnRequest(**{"group_id": self.topic} | self._identity(options))
        return ErrorCode((await self._ready(request, version)).error_code)

    async def commit_offset(self, version: int = 3, **options: Any) -> int:
        mine = {"group_id": self.topic} | self._identity(options)
        one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
        topics = [TxnOffsetCommitRequestTopic(name=mine.pop("topic", self.topic), partitions=[one])]
        while True:
            answer = await self.client.ask(TxnOffsetCommitRequest(topics=topics, **mine), version)
            code = answer.topics[0].partitions[0].error_code
            if code not in NOT_YET:
                return ErrorCode(code)

    async def end(self, version: int = 3, committed: bool = True, **options: Any) -> tuple[int, int, int]:
        """Return code, producer id and epoch; with version 5 these are the next transaction's."""
        answer = await self._ready(EndTxnRequest(committed=committed, **self._identity(options)), version)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    async def produce(self, sequence: int, version: int = 12, later: int = 0) -> int:
        """Write one record in a transaction, which begins by it from version 12 on."""
        batch = batch_of(
            b"a", producer_id=self.id, producer_epoch=self.epoch + later, base_sequence=sequence, transactional=True
        )
        while True:
            answer = await produce_to(self.client, self.topic, batch, txn=self.name, version=version)
            if answer.error_code not in NOT_YET:
                return ErrorCode(answer.error_code)


@pytest.fixture
async def producer(either: Kafka, topic: str) -> AsyncIterator[Producer]:
    """A producer of epoch 0 that has begun nothing. The coordinator of the group named like its topic is ready."""
    async with connected(either.bootstrap) as client:
        opened = Producer(client, topic)
        await opened.open()
        find = FindCoordinatorRequest(key_type=0, key=topic)
        while (await client.ask(find, 3)).error_code:
            pass
        while (await client.ask(DescribeGroupsRequest(groups=[topic]))).groups[0].error_code in NOT_YET:
            pass
        yield opened


# InitProducerId


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"name": None, "transaction_timeout_ms": 0}, NONE),
        ({"name": None, "producer_id": 5, "producer_epoch": 0}, NONE),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": -5}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, INVALID_REQUEST),
        ({"producer_epoch": 5}, INVALID_REQUEST),
        ({"version": 0}, NONE),
        ({"version": 5}, NONE),
    ],
)
async def test_init_producer_id(producer: Producer, options: dict[str, Any], code: ErrorCode) -> None:
    assert (await producer.init(**options))[0] == code


async def test_a_producer_that_gets_its_next_epoch(producer: Producer) -> None:
    own: dict[str, Any] = {"producer_id": producer.id, "producer_epoch": 0}
    assert await producer.init(**own) == (NONE, producer.id, 1)
    assert await producer.init(**own) == (NONE, producer.id, 1)  # a retry
    assert await producer.init(**own | {"producer_epoch": 1}) == (NONE, producer.id, 2)
    assert await producer.init(**own) == (FENCED, -1, -1)
    assert await producer.init(**own, version=3) == (OLD_EPOCH, -1, -1)
    assert await producer.init(**own | {"producer_id": producer.id + 1000}) == (FENCED, -1, -1)


# What belongs to a transaction

several_transactions = pytest.mark.every_kafka(since="3.5")  # in one AddPartitionsToTxn (KIP-890)
#: Old group coordinators do not check the identity of a producer.
known_producers = pytest.mark.every_kafka(since="3.9")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, NONE),
        ({"version": 0}, NONE),
        pytest.param({"version": 4}, NONE, marks=several_transactions),
        pytest.param({"version": 5}, NONE, marks=several_transactions),
        ({"transactional_id": ""}, INVALID_REQUEST),
        ({"producer_id": 1 << 40}, NO_MAPPING),
        ({"later": 1}, FENCED),
        ({"later": 1, "version": 1}, OLD_EPOCH),
        ({"later": -1}, FENCED),
        ({"topic": "no-such-topic"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_add_partitions(producer: Producer, options: dict[str, Any], code: ErrorCode) -> None:
    assert await producer.add(**options) == code


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, NONE),
        ({"version": 0}, NONE),
        ({"version": 4}, NONE),
        ({"transactional_id": ""}, INVALID_REQUEST),
        ({"producer_id": 1 << 40}, NO_MAPPING),
        ({"later": 1}, FENCED),
        ({"later": 1, "version": 1}, OLD_EPOCH),
    ],
)
async def test_add_offsets(producer: Producer, options: dict[str, Any], code: ErrorCode) -> None:
    assert await producer.add_offsets(**options) == code


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, NONE),
        ({"version": 0}, NONE),
        ({"version": 4}, NONE),
        ({"version": 5}, NONE),
        pytest.param({"later": 1}, OLD_EPOCH, marks=pytest.mark.every_kafka(since="4.0")),
        pytest.param({"later": -1}, OLD_EPOCH, marks=pytest.mark.every_kafka(since="4.0")),
        pytest.param({"producer_id": 1 << 40}, NO_MAPPING, marks=known_producers),
        ({"transactional_id": ""}, NONE),  # the group knows the producer already
        ({"topic": "no-such-topic"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
async def test_offsets_of_a_transaction(producer: Producer, options: dict[str, Any], code: ErrorCode) -> None:
    assert await producer.add_offsets() == 0
    assert await producer.commit_offset() == 0
    assert await producer.commit_offset(**options) == code


@pytest.mark.every_kafka(since="4.0")
@pytest.mark.parametrize(("version", "code"), [(3, INVALID_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE), (5, NONE)])
async def test_offsets_of_a_transaction_that_does_not_know_of_them(
    producer: Producer, version: int, code: ErrorCode
) -> None:
    assert await producer.commit_offset(version) == code


@known_producers
@pytest.mark.parametrize("version", [3, 5])
async def test_offsets_of_an_unknown_transactional_id(producer: Producer, version: int) -> None:
    assert await producer.commit_offset(version, transactional_id="nobody") == NO_MAPPING


# The end


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, NONE),
        ({"version": 4}, NONE),
        ({"version": 0, "committed": False}, NONE),
        ({"transactional_id": ""}, INVALID_REQUEST),
        ({"producer_id": 1 << 40}, NO_MAPPING),
        ({"later": 1}, FENCED),
        ({"later": 1, "version": 1}, OLD_EPOCH),
    ],
)
async def test_ending_a_transaction(producer: Producer, options: dict[str, Any], code: ErrorCode) -> None:
    assert await producer.add() == 0
    assert await producer.end(**options) == (code, -1, -1)


@pytest.mark.every_kafka(since="4.0")
async def test_transactions_with_an_epoch_each(producer: Producer) -> None:
    """KIP-890: Produce 12 begins a transaction by itself, and EndTxn 5 gives the next epoch."""
    own, topic_id = producer.id, await topic_id_of(producer.client, producer.topic)
    assert await producer.produce(0) == NONE
    assert await producer.produce(0, later=1) == OLD_EPOCH
    assert await producer.end(5) == (NONE, own, 1)
    assert await producer.end(5) == (NONE, own, 1)  # a retry
    assert await producer.end(5, committed=False) == (INVALID_STATE, -1, -1)  # not of the committed one
    await read_stable(producer.client, topic_id, until=2)  # the marker comes a little later, and fences by then
    producer.epoch = 1
    assert await producer.end(5) == (INVALID_STATE, -1, -1)  # nothing was begun
    assert await producer.end(5, committed=False) == (NONE, own, 2)  # but that may be aborted
    producer.epoch = 2
    assert await producer.produce(0, later=-1) == OLD_EPOCH
    assert await producer.produce(0) == NONE
    assert await producer.commit_offset(5) == NONE
    assert await producer.end(5, committed=False) == (NONE, own, 3)
    partition = await read_stable(producer.client, topic_id, until=4)
    assert [(one.producer_id, one.first_offset) for one in partition.aborted_transactions] == [(own, 2)]
    assert await producer.produce(1) == OLD_EPOCH
    producer.epoch = 3
    assert await producer.end(4) == (INVALID_STATE, -1, -1)


@pytest.mark.every_kafka(since="4.0")
async def test_a_transaction_of_the_old_kind_is_not_ended_in_the_new_way(producer: Producer) -> None:
    assert await producer.add() == NONE
    assert await producer.end(3) == (NONE, -1, -1)
    assert await producer.end(5) == (INVALID_STATE, -1, -1)


# A producer that comes back, and another one with its transactional id


@pytest.mark.every_kafka(since="4.0")
@pytest.mark.parametrize("version", [12, 11])
async def test_a_producer_whose_own_init_aborts_its_transaction_lives_on(producer: Producer, version: int) -> None:
    """Its first answers are CONCURRENT_TRANSACTIONS."""
    own: dict[str, Any] = {"producer_id": producer.id, "producer_epoch": 0}
    if version == 11:
        assert await producer.add() == NONE
    assert await producer.produce(0, version) == NONE
    assert await producer.init(**own) == (NONE, producer.id, 1)
    assert await producer.init(**own) == (NONE, producer.id, 1)  # a retry
    topic_id = await topic_id_of(producer.client, producer.topic)
    partition = await read_stable(producer.client, topic_id, until=2)
    assert [one.first_offset for one in partition.aborted_transactions] == [0]
    assert await producer.end(5) == (FENCED, -1, -1)


@pytest.mark.every_kafka(since="4.0")
async def test_an_init_with_the_epoch_before_the_end_is_a_retry(producer: Producer) -> None:
    """The answer to EndTxn was lost: its InitProducerId tells the producer the epoch."""
    assert await producer.produce(0) == NONE
    assert await producer.end(5) == (NONE, producer.id, 1)
    own: dict[str, Any] = {"producer_id": producer.id, "producer_epoch": 0}
    assert await producer.init(**own) == (NONE, producer.id, 1)


@pytest.mark.every_kafka(since="4.0")
@pytest.mark.parametrize("committed", [True, False])
async def test_a_late_end_of_the_transaction_before_is_fenced(producer: Producer, committed: bool) -> None:
    assert await producer.produce(0) == NONE
    assert await producer.end(5) == (NONE, producer.id, 1)
    producer.epoch = 1
    assert await producer.produce(0) == NONE
    assert await producer.end(5, committed, later=-1) == (FENCED, -1, -1)
    assert await producer.end(5) == (NONE, producer.id, 2)


@pytest.mark.every_kafka(since="4.0")
@pytest.mark.parametrize("committed", [True, False])
async def test_a_late_end_after_another_producer_came_is_fenced(producer: Producer, committed: bool) -> None:
    assert await producer.produce(0) == NONE
    assert await producer.end(5) == (NONE, producer.id, 1)
    assert await producer.init() == (NONE, producer.id, 2)
    assert await producer.end(5, committed) == (FENCED, -1, -1)


async def test_the_elder_of_two_producers_is_fenced(producer: Producer) -> None:
    """Were it taken for a retry, both would live under the younger one's epoch."""
    assert await producer.init() == (NONE, producer.id, 1)
    assert await producer.init(producer_id=producer.id, producer_epoch=0) == (FENCED, -1, -1)
    assert await producer.init(producer_id=producer.id, producer_epoch=1) == (NONE, producer.id, 2)
    assert await producer.init(producer_id=producer.id, producer_epoch=0) == (FENCED, -1, -1)


@pytest.mark.every_kafka(since="4.0")
async def test_another_producer_aborts_what_the_elder_left(producer: Producer) -> None:
    assert await producer.produce(0) == NONE
    assert await producer.init() == (NONE, producer.id, 2)
    assert await producer.init(producer_id=producer.id, producer_epoch=0) == (FENCED, -1, -1)
    assert await producer.end(5) == (FENCED, -1, -1)
    assert await producer.produce(1) == OLD_EPOCH


@pytest.mark.every_kafka(since="4.0")
async def test_an_elder_that_comes_back_aborts_the_transaction_of_the_younger(producer: Producer) -> None:
    """Before it is fenced: the coordinator looks at the epoch only where no transaction is open."""
    assert await producer.init() == (NONE, producer.id, 1)
    assert await producer.produce(0, later=1) == NONE
    assert await producer.init(producer_id=producer.id, producer_epoch=0) == (FENCED, -1, -1)
    assert await producer.end(5, later=1) == (INVALID_STATE, -1, -1)
    assert await producer.end(5, committed=False, later=1) == (NONE, producer.id, 2)


# What is seen of a transaction from outside


async def test_a_transaction_ends_though_its_topic_has_fewer_partitions_now(either: Kafka, producer: Producer) -> None:
    client, topic = producer.client, producer.topic
    own = producer.id, producer.epoch
    assert await add_to_transaction(client, topic, own, topic, 0, 1) == [0, 0]
    deleted = await client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    assert [one.error_code for one in deleted.responses] == [0]
    while await topic_id_of(client, topic) != NO_ID:
        pass
    either.create_topic(topic, 1)
    assert await end_transaction(client, topic, own, committed=True) == NONE
    assert (await producer.init())[0] == NONE


async def _offset(client: WireClient, topic: str, timestamp: int, isolation_level: int) -> tuple[int, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
    (found,) = (await client.ask(request, 9)).topics[0].partitions
    assert found.error_code == 0
    return found.offset, found.timestamp


@pytest.mark.every_kafka(since="3.5")  # the offset that is local (KIP-405)
async def test_offsets_by_timestamp_amid_a_transaction(producer: Producer) -> None:
    client, topic, own = producer.client, producer.topic, (producer.id, producer.epoch)
    await produce_to(client, topic, batch_of(b"z", timestamps=[NOW - 5000]))
    assert await add_to_transaction(client, topic, own, topic, 0) == [0]
    options: dict[str, Any] = {"producer_id": producer.id, "producer_epoch": producer.epoch, "transactional": True}
    await produce_to(
        client, topic, batch_of(b"a", b"b", timestamps=[NOW - 3000] * 2, base_sequence=0, **options), txn=topic
    )

    async def found(*timestamps: int) -> list[list[tuple[int, int]]]:
        """Return what read_uncommitted and read_committed find, by timestamp."""
        return [[await _offset(client, topic, timestamp, level) for level in (0, 1)] for timestamp in timestamps]

    nothing, latest = (-1, -1), (1, NOW - 3000)
    assert await found(-1, -2, -3, -4, NOW - 4000, NOW - 1000) == [
        [(3, -1), (1, -1)],
        [(0, -1), (0, -1)],
        [latest, nothing],
        [(0, -1), (0, -1)],
        [latest, nothing],
        [nothing, nothing],
    ]
    assert await end_transaction(client, topic, own, committed=False) == 0
    await read_stable(client, await topic_id_of(client, topic), until=4)
    assert await found(-1, NOW - 4000) == [[(4, -1), (4, -1)], [latest, latest]]
