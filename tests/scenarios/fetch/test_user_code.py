"""The application's code inside a consumer: deserializers that fail, and interceptors that filter, fail and listen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from aiokc import ConsumerInterceptor, ConsumerRecord, ConsumerRecords, OffsetAndMetadata, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import DeserializationFailed, KafkaError
from aiokc.records import NewRecord
from aiokc.testing import ApiKey

from ..stage import T0, Stage, scenario

TEN = tuple(b"%d" % number for number in range(10))


class Young(ConsumerInterceptor):
    """An interceptor that removes records older than a time to live, in ms."""

    def __init__(self, now: int, ttl: int) -> None:
        self.earliest = now - ttl

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        return {tp: [one for one in some if one.timestamp >= self.earliest] for tp, some in records.items()}


class Broken(ConsumerInterceptor):
    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        raise RuntimeError("no span for this record")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("no span for these offsets")


class Ledger(ConsumerInterceptor):
    """An interceptor that keeps all records that are read, and all offsets that are committed."""

    def __init__(self) -> None:
        self.read: list[Any] = []
        self.committed: list[dict[TopicPartition, int]] = []

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        self.read += [one.value for some in records.values() for one in some]
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append({tp: offset.offset for tp, offset in offsets.items()})


@scenario(topics={"t": 1})
async def test_a_poison_record_stops_its_partition_and_is_skipped_by_seek(stage: Stage) -> None:
    """Given records 0 to 4 of which 2 is no JSON, then the first poll returns 0 and 1, each further one raises an error
    with offset 2, no record is skipped silently, a seek to 3 continues after it, and the next owner begins there.
    """
    stage.cluster.append("t", b"0", b"1", b"{", b"3", b"4")
    async with stage.consumer("t", group_id="g", value_deserializer=json.loads) as consumer:
        assert [record.value for record in (await consumer.getmany())[T0]] == [0, 1]
        for _ in range(3):
            with pytest.raises(DeserializationFailed) as caught:
                await consumer.getmany()
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 2)
            await consumer.commit()
            assert stage.cluster.committed("g") == {T0: 2}
        consumer.seek(T0, 3)
        await consumer.commit()
    async with stage.consumer("t", group_id="g", value_deserializer=json.loads) as consumer:
        assert [record.value for record in (await consumer.getmany())[T0]] == [3, 4]


@scenario(topics={"t": 1})
async def test_a_tombstone_is_none_whatever_the_deserializer(stage: Stage) -> None:
    """Given a key that is deleted, when its tombstone is read with json.loads, then its value is None."""
    stage.cluster.append("t", NewRecord(b"{}", key=b"k"), NewRecord(None, key=b"k"))
    async with stage.consumer("t", key_deserializer=bytes.decode, value_deserializer=json.loads) as consumer:
        records = (await consumer.getmany())[T0]
        assert [(record.key, record.value) for record in records] == [("k", {}), ("k", None)]


@scenario(topics={"t": 1})
async def test_a_filter_changes_neither_position_nor_commit(stage: Stage) -> None:
    """Given records older than a time to live, when an interceptor removes them, then only the younger ones are
    returned, and the position and the commit are after all of them.
    """
    stage.cluster.append("t", *(NewRecord(value, timestamp=at * 1_000) for at, value in enumerate(TEN)))
    ttl = Young(now=9_000, ttl=4_000)
    async with stage.consumer("t", group_id="g", interceptors=[ttl], max_poll_records=3) as consumer:
        batch = await consumer.getmany()
        assert [record.value for record in batch[T0]] == [b"5"]
        assert await consumer.position(T0) == 6
        await consumer.commit(batch)
        assert stage.cluster.committed("g") == {T0: 6}
        assert [record.value for record in (await consumer.getmany())[T0]] == [b"6", b"7", b"8"]
        await consumer.commit()
        assert stage.cluster.committed("g") == {T0: 9}


@scenario(topics={"t": 1})
async def test_an_interceptor_that_raises_affects_no_other_one(stage: Stage) -> None:
    """Given a chain of three interceptors of which the second always raises, then the third gets what the first
    returned, the application gets its records, and its commits succeed.
    """
    stage.cluster.append("t", *(NewRecord(value, timestamp=at * 1_000) for at, value in enumerate(TEN)))
    ledger = Ledger()
    chain = [Young(now=9_000, ttl=2_000), Broken(), ledger]
    async with stage.consumer("t", group_id="g", interceptors=chain) as consumer:
        assert [record.value for record in (await consumer.getmany())[T0]] == list(TEN[7:])
        await consumer.commit()
    assert ledger.read == list(TEN[7:])
    assert ledger.committed == [{T0: 10}]
    assert stage.cluster.committed("g") == {T0: 10}


@scenario(topics={"t": 1})
async def test_every_kind_of_commit_is_told_where_it_succeeds(stage: Stage) -> None:
    """Given a sync, an async and an automatic commit, then on_commit gets the offsets of each; it is not called for a
    commit that the coordinator refuses.
    """
    stage.cluster.append("t", *TEN)
    ledger = Ledger()
    options = {"group_id": "g", "interceptors": [ledger], "max_poll_records": 2, "auto_commit_interval_ms": 600_000}
    async with stage.consumer("t", enable_auto_commit=True, **options) as consumer:
        await consumer.getmany()
        await consumer.commit()
        first = await consumer.getmany()
        refusal = stage.cluster.intercept(ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError):
            await consumer.commit()
        refusal.cancel()
        consumer.commit_soon(first)
        await consumer.getmany()
    assert ledger.committed == [{T0: 2}, {T0: 4}, {T0: 6}]
