"""Sequences, epochs and refused records: the Cluster and a real Kafka agree on each answer to Produce."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.records import NewRecord, encode_batch
from aiokc.wire.messages.produce import PartitionProduceResponse

from ...conftest import Kafka
from ...questions import (
    add_to_transaction,
    batch_of,
    end_transaction,
    new_producer,
    produce_to,
    read_stable,
    topic_id_of,
    transactions_are_ready,
)
from ...wire_client import WireClient, connected
from .test_produce import create

pytestmark = pytest.mark.every_kafka

OUT_OF_ORDER: Final = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH: Final = ErrorCode.INVALID_PRODUCER_EPOCH
LAST: Final = (1 << 31) - 1
APPEND_TIME: Final = {"message_timestamp_type": "LogAppendTime"}


class Producer:
    """An idempotent producer at partition 0 of a topic."""

    def __init__(self, client: WireClient, topic: str, identity: tuple[int, int], txn: str | None = None) -> None:
        self.client, self.topic, self.txn = client, topic, txn
        self.id, self.epoch = identity

    async def send(self, sequence: int, count: int = 1, *, later: int = 0, version: int = 11) -> tuple[int, int]:
        """Send a batch of ``count`` records; return the error code and the base offset."""
        answer = await self.answer(sequence, count, later=later, version=version)
        return ErrorCode(answer.error_code), answer.base_offset

    async def answer(
        self, sequence: int, count: int = 1, *, later: int = 0, version: int = 11
    ) -> PartitionProduceResponse:
        batch = batch_of(
            *[b"x"] * count,
            producer_id=self.id,
            producer_epoch=self.epoch + later,
            base_sequence=sequence,
            transactional=self.txn is not None,
        )
        return await produce_to(self.client, self.topic, batch, txn=self.txn, version=version)


async def producer_of(client: WireClient, topic: str) -> Producer:
    _, *identity = await new_producer(client)
    return Producer(client, topic, (identity[0], identity[1]))


async def transactional(client: WireClient, topic: str) -> Producer:
    await transactions_are_ready(client, topic)
    code, *identity = await new_producer(client, topic)
    assert code == 0
    return Producer(client, topic, (identity[0], identity[1]), topic)


# Sequences


async def test_sequences_of_several_records(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        producer = await producer_of(client, topic)
        assert await producer.send(0, 3) == (0, 0)
        assert await producer.send(3, 2) == (0, 3)
        assert await producer.send(0, 3) == (0, 0)  # a retry
        assert await producer.send(0, 2) == (OUT_OF_ORDER, -1)  # other bounds
        assert await producer.send(4) == (OUT_OF_ORDER, -1)  # an end that is known
        assert await producer.send(6) == (OUT_OF_ORDER, -1)  # a gap
        assert await producer.send(5) == (0, 5)


async def test_sequences_begin_again_after_the_last(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        producer = await producer_of(client, topic)
        assert await producer.send(LAST - 1) == (0, 0)
        assert await producer.send(LAST, 3) == (0, 1)  # LAST, 0, 1
        assert await producer.send(LAST, 3) == (0, 1)
        assert await producer.send(1) == (OUT_OF_ORDER, -1)
        assert await producer.send(2) == (0, 4)


async def test_a_new_epoch_begins_at_zero_and_ends_the_old_one(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        producer = await producer_of(client, topic)
        assert await producer.send(0, 5) == (0, 0)
        assert await producer.send(5, later=1) == (OUT_OF_ORDER, -1)
        assert await producer.send(0, later=1) == (0, 5)
        assert await producer.send(5) == (OLD_EPOCH, -1)
        assert await producer.send(0, 5) == (OLD_EPOCH, -1)  # a retry, even
        assert await producer.send(1, later=1) == (0, 6)


async def test_a_partition_that_knows_nothing_of_a_producer_takes_any_sequence(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        producer = await producer_of(client, topic)
        assert await producer.send(7, version=11) == (0, 0)
        assert await producer.send(8) == (0, 1)


@pytest.mark.every_kafka(since="4.3")  # 4.0 takes any sequence
async def test_the_first_batch_of_a_transaction_without_adding_begins_at_zero(either: Kafka, topic: str) -> None:
    """KIP-890. The partition is part of the transaction all the same."""
    async with connected(either.bootstrap) as client:
        producer = await transactional(client, topic)
        assert (await producer.send(3, version=12))[0] == OUT_OF_ORDER
        assert await producer.send(0, 2, version=12) == (0, 0)
        assert await producer.send(2, version=12) == (0, 2)
        assert await producer.send(2, version=12) == (0, 2)


@pytest.mark.every_kafka(since="4.0")
async def test_after_a_marker_alone_a_producer_begins_at_zero(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        producer = await transactional(client, topic)
        own = producer.id, producer.epoch
        assert await add_to_transaction(client, topic, own, topic, 0) == [0]
        assert await end_transaction(client, topic, own, committed=True) == 0
        await read_stable(client, await topic_id_of(client, topic), until=1)
        assert await add_to_transaction(client, topic, own, topic, 0) == [0]
        assert await producer.send(4) == (OUT_OF_ORDER, -1)
        assert await producer.send(0) == (0, 1)


# Times that the broker sets


async def test_the_time_of_a_retry_is_that_of_its_first_arrival(either: Kafka, topic_name: str) -> None:
    async with connected(either.bootstrap) as client:
        await create(client, topic_name, **APPEND_TIME)
        before = int(time.time() * 1000)
        producer = await producer_of(client, topic_name)
        first = await producer.answer(0)
        assert before - 1000 <= first.log_append_time_ms <= time.time() * 1000 + 1000
        while time.time() * 1000 <= first.log_append_time_ms + 2:
            pass
        again = await producer.answer(0)
        assert (again.base_offset, again.log_append_time_ms) == (0, first.log_append_time_ms)


# Refused records (KIP-467)


def records(*keys: bytes | None, timestamps: list[int] | None = None) -> bytes:
    now = int(time.time() * 1000)
    times = timestamps or [now] * len(keys)
    return encode_batch([NewRecord(b"v", key, timestamp=at) for key, at in zip(keys, times, strict=True)])


async def refused(
    either: Kafka, topic: str, batch: bytes, config: Mapping[str, str], version: int = 11
) -> tuple[ErrorCode, list[int], bool]:
    """Return the code, the records that are to blame, and whether there are words for the whole and for each."""
    async with connected(either.bootstrap) as client:
        await create(client, topic, **config)
        answer = await produce_to(client, topic, batch, version=version)
    worded = [answer.error_message, *(one.batch_index_error_message for one in answer.record_errors)]
    return ErrorCode(answer.error_code), [one.batch_index for one in answer.record_errors], all(worded)


async def test_records_without_a_key_in_a_compacted_topic(either: Kafka, topic_name: str) -> None:
    batch = records(b"k", None, b"", None)
    found = await refused(either, topic_name, batch, {"cleanup_policy": "compact"})
    assert found == (ErrorCode.INVALID_RECORD, [1, 3], True)


async def test_version_7_names_no_records(either: Kafka, topic_name: str) -> None:
    found = await refused(either, topic_name, records(None), {"cleanup_policy": "compact"}, version=7)
    assert found == (ErrorCode.INVALID_RECORD, [], False)


@pytest.mark.every_kafka(since="3.6")
async def test_records_that_are_too_old_or_too_young(either: Kafka, topic_name: str) -> None:
    now = int(time.time() * 1000)
    batch = records(b"a", b"b", b"c", timestamps=[now - 3_600_000, now, now + 3_600_000])
    limits = {"message_timestamp_before_max_ms": "60000", "message_timestamp_after_max_ms": "60000"}
    assert await refused(either, topic_name, batch, limits) == (ErrorCode.INVALID_TIMESTAMP, [0, 2], True)


@pytest.mark.every_kafka(since="3.6")
async def test_times_do_not_matter_where_the_broker_sets_them(either: Kafka, topic_name: str) -> None:
    batch = records(b"a", timestamps=[0])
    found = await refused(either, topic_name, batch, {"message_timestamp_before_max_ms": "60000", **APPEND_TIME})
    assert found == (ErrorCode.NONE, [], False)


async def test_a_batch_at_the_limit_and_one_byte_above(either: Kafka, topic_name: str) -> None:
    batch = batch_of(b"x" * 100)
    async with connected(either.bootstrap) as client:
        await create(client, topic_name, max_message_bytes=str(len(batch)))
        assert (await produce_to(client, topic_name, batch)).error_code == 0
        larger = await produce_to(client, topic_name, batch_of(b"x" * 101))
        assert (larger.error_code, larger.record_errors) == (ErrorCode.MESSAGE_TOO_LARGE, [])
