"""Transactions from begin to end: what readers see, what a commit refuses, which requests it takes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest

from aiokc import GroupMetadata, ProducerObserver, ProducerRecord
from aiokc.client.producer.producer import Producer
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthorizationFailed,
    BrokerError,
    CommitFailed,
    MessageTooLarge,
    MetadataMissing,
    ProduceError,
    ProducerClosed,
    RecordRefused,
    RequestTimedOut,
    SerializationFailed,
    TransactionAborted,
    UsageError,
)
from aiokc.records.encoding.batch_builder import ClosedBatch, OpenBatch
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.faults import drop, refuse_partition, reject_records

from ..virtually import virtually
from .on_stage import IN0, IN1, Stage, scenario

GROUP = GroupMetadata("g")


@scenario()
async def test_readers_see_what_is_committed_and_nothing_else(stage: Stage) -> None:
    async with stage.producer() as producer:
        async with producer.transaction() as transaction:
            await producer.send("out", b"1", partition=0)
            await producer.send("out", b"2", partition=1)
            await transaction.send_offsets({IN0: 5}, GROUP)
            assert await stage.read() == []
        assert await stage.read() == [b"1", b"2"]
        assert await stage.committed() == {IN0: 5}
        with pytest.raises(KeyError):
            async with producer.transaction() as transaction:
                await (await producer.send("out", b"3", partition=0))
                await transaction.send_offsets({IN0: 9, IN1: 9}, GROUP)
                raise KeyError
        assert await stage.read() == [b"1", b"2"]
        assert await stage.read(isolation_level="read_uncommitted") == [b"1", b"3", b"2"]
        assert await stage.committed() == {IN0: 5}
        async with producer.transaction():
            await producer.send("out", b"4", partition=0)
        assert await stage.read() == [b"1", b"4", b"2"]


@scenario()
async def test_each_kind_of_transaction_has_its_own_requests(stage: Stage) -> None:
    async with stage.producer() as producer:
        assert stage.control() == ["InitProducerId"]
        for _ in range(2):
            before = len(stage.asked.log)
            async with producer.transaction() as transaction:
                await producer.send("out", b"1", partition=0)
                await producer.flush()
                await transaction.send_offsets({IN0: 5}, GROUP)
            adds = ["AddPartitionsToTxn", "AddOffsetsToTxn"] if not stage.is_v2 else []
            assert stage.control(before) == [*adds, "TxnOffsetCommit", "EndTxn"]


@scenario()
async def test_each_coordinator_is_looked_up_by_its_kind(stage: Stage) -> None:
    """Brokers spread groups and transactional ids in ways of their own."""
    async with stage.producer("one name") as producer, producer.transaction() as transaction:
        await producer.send("out", b"", partition=0)
        await transaction.send_offsets({IN0: 1}, GroupMetadata("one name"))
    kinds: list[int] = []
    for _, name, request in stage.asked.log:
        if name == "FindCoordinatorRequest":
            assert (request.coordinator_keys or [request.key]) == ["one name"]
            kinds.append(request.key_type)
    assert kinds == [1, 0]


@scenario()
async def test_transactions_one_after_the_other(stage: Stage) -> None:
    async with stage.producer() as producer:
        for number in range(20):
            try:
                async with producer.transaction():
                    for partition in (0, 1):
                        await producer.send("out", b"%d" % number, partition=partition)
                    if number % 3 == 0:
                        await producer.flush()
                    if number % 4 == 0:
                        raise KeyError
            except KeyError:
                continue
    kept = [b"%d" % number for number in range(20) if number % 4]
    assert await stage.read() == [*kept, *kept]


@scenario()
async def test_an_empty_transaction_takes_no_request(stage: Stage) -> None:
    async with stage.producer() as producer:
        before = len(stage.asked.log)
        async with producer.transaction() as transaction:
            await transaction.send_offsets({}, GROUP)
        await producer.begin_transaction()
        await producer.abort_transaction()
        with pytest.raises(KeyError):
            async with producer.transaction():
                raise KeyError
        assert stage.control(before) == []


@scenario()
async def test_records_that_another_one_takes_with_it_say_which(stage: Stage) -> None:
    """Nobody has called for an abort, and whoever awaits the second record first has no other hint."""
    async with stage.producer(linger_ms=1_000) as producer:
        stage.cluster.intercept(ApiKey.PRODUCE, refuse_partition("out", 0, ErrorCode.INVALID_RECORD))
        await producer.begin_transaction()
        first = await producer.send("out", b"1", partition=0)
        await asyncio.sleep(0.9)
        second = await producer.send("out", b"2", partition=1)
        with pytest.raises(TransactionAborted, match=r"not sent: the transaction has failed.*INVALID_RECORD") as raised:
            await second
        assert isinstance(raised.value.__cause__, RecordRefused)
        with pytest.raises(RecordRefused):
            await first
        await producer.abort_transaction()


@scenario()
async def test_by_hand(stage: Stage) -> None:
    async with stage.producer() as producer:
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        await producer.send_offsets_to_transaction({IN0: 3}, GROUP)
        await producer.commit_transaction()
        assert await stage.read() == [b"1"]
        assert await stage.committed() == {IN0: 3}
        await producer.begin_transaction()
        delivery = await producer.send("out", b"2", partition=0)
        await producer.abort_transaction()
        with pytest.raises(TransactionAborted, match="not sent: the application has aborted the transaction"):
            await delivery
        assert await stage.read() == [b"1"]
        async with producer.transaction():  # ended by hand, inside of the block
            await producer.send("out", b"3", partition=0)
            await producer.commit_transaction()
        assert await stage.read() == [b"1", b"3"]


@scenario(2)
async def test_calls_in_the_wrong_order_change_nothing(stage: Stage) -> None:
    async with stage.producer() as producer:
        with pytest.raises(UsageError, match="no transaction is open"):
            await producer.send("out", b"1")
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(UsageError, match="no transaction is open"):
                await call()
        with pytest.raises(UsageError, match="no transaction is open"):
            await producer.send_offsets_to_transaction({IN0: 3}, GROUP)
        async with producer.transaction():
            with pytest.raises(UsageError, match="a transaction is open"):
                await producer.begin_transaction()
            await producer.send("out", b"1", partition=0)
        assert await stage.read() == [b"1"]


def test_a_producer_without_a_transactional_id_has_no_transactions() -> None:
    async def story(cluster: Cluster) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            with pytest.raises(UsageError, match="transactional_id"):
                producer.transaction()
            with pytest.raises(UsageError, match="transactional_id"):
                await producer.begin_transaction()

    virtually(story)


# What a commit refuses


@scenario()
async def test_a_refused_record_prevents_the_commit_though_nobody_awaited_it(stage: Stage) -> None:
    async with stage.producer() as producer:
        stage.cluster.intercept(ApiKey.PRODUCE, reject_records({0: "no such schema"}), times=1)
        with pytest.raises(RecordRefused, match="no such schema"):
            async with producer.transaction():
                await producer.send("out", b"1", partition=0)
                await producer.send("out", b"2", partition=1)
        assert await stage.read() == []
        async with producer.transaction():
            await producer.send("out", b"3", partition=0)
        assert await stage.read() == [b"3"]


@scenario()
async def test_a_refused_record_prevents_the_commit_though_its_error_was_caught(stage: Stage) -> None:
    async with stage.producer() as producer:
        await producer.begin_transaction()
        stage.cluster.intercept(ApiKey.PRODUCE, reject_records({0: "no"}), times=1)
        with pytest.raises(RecordRefused):
            await producer.send_and_wait("out", b"1", partition=0)
        with pytest.raises(RecordRefused):
            await producer.send("out", b"2", partition=0)
        for _ in range(2):
            with pytest.raises(RecordRefused):
                await producer.commit_transaction()
        with pytest.raises(UsageError, match="abort it first"):
            await producer.begin_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("out", b"3", partition=0)
        assert await stage.read() == [b"3"]


@scenario()
async def test_a_record_that_was_not_even_appended_prevents_the_commit(stage: Stage) -> None:
    async with stage.producer(max_request_size=1_000) as producer:
        with pytest.raises(MessageTooLarge):
            async with producer.transaction():
                await producer.send("out", b"1", partition=0)
                with pytest.raises(MessageTooLarge):
                    await producer.send("out", bytes(2_000), partition=0)
        assert await stage.read() == []


@scenario(auto_create_topics_enable=False)
async def test_a_topic_that_is_not_there_prevents_the_commit(stage: Stage) -> None:
    async with stage.producer(max_block_ms=1_000) as producer:
        for send in (producer.send, lambda topic, value: producer.send_many(topic, [value])):
            with pytest.raises(MetadataMissing):
                async with producer.transaction():
                    await producer.send("out", b"1", partition=0)
                    with pytest.raises(MetadataMissing):
                        await send("not-there", b"2")
    assert await stage.read() == []


@scenario(2)
async def test_a_batch_that_fails_within_a_send_many_is_what_that_raises(stage: Stage) -> None:
    """Without linger the first record is compressed at once; the next one would begin a batch of another partition."""

    def no_memory(_: OpenBatch) -> ClosedBatch:
        raise MemoryError("no room")

    async with stage.producer(linger_ms=0, compression_type="gzip") as producer:
        with pytest.raises(ProduceError, match="could not be compressed"):
            async with producer.transaction():
                await producer.send_and_wait("out", b"1", partition=0)
                records = [ProducerRecord[bytes, bytes]("out", b"2", partition=0, headers=[("not", b"simple")])]
                records.append(ProducerRecord("out", b"3", partition=1))
                with (
                    patch.object(OpenBatch, "close", no_memory),
                    pytest.raises(ProduceError, match="could not be compressed"),
                ):
                    await producer.send_many("out", records)
        async with producer.transaction():
            await producer.send("out", b"4", partition=0)
    assert await stage.read() == [b"4"]


@scenario(2)
async def test_a_serializer_that_has_failed_prevents_the_commit(stage: Stage) -> None:
    producer: Producer[Any, Any] = Producer(
        bootstrap_servers=stage.cluster.bootstrap, transactional_id="id", value_serializer=str.encode
    )
    async with producer:
        with pytest.raises(SerializationFailed):
            async with producer.transaction():
                await producer.send("out", "1", partition=0)
                with pytest.raises(SerializationFailed):
                    producer.send_soon("out", 3, partition=0)
        async with producer.transaction():
            await producer.send("out", "2", partition=0)
        assert await stage.read() == [b"2"]


@scenario(2)
async def test_records_before_one_that_a_serializer_refuses_still_belong_to_the_transaction(stage: Stage) -> None:
    """Of one call, that is: only then has the transaction failed."""
    producer: Producer[Any, Any] = Producer(
        bootstrap_servers=stage.cluster.bootstrap, transactional_id="id", value_serializer=str.encode
    )
    async with producer:
        with pytest.raises(SerializationFailed):
            async with producer.transaction():
                with pytest.raises(SerializationFailed) as refused:
                    await producer.send_many("out", ["1", "2", 3, "4"])
                assert refused.value.__notes__ == ["aiokc: 2 records of this send_many() were appended before this one"]
        async with producer.transaction():
            await producer.send_many("out", ["5", "6"])
        assert await stage.read() == [b"5", b"6"]


@scenario(2)
async def test_a_record_that_a_serializer_sends_may_fail_the_transaction_of_the_one_it_serializes(stage: Stage) -> None:
    def serialize(value: bytes) -> bytes:
        if value == b"with an audit":
            with suppress(MessageTooLarge):
                producer.send_soon("in", bytes(2_000), partition=0)
        return value

    producer: Producer[Any, Any] = Producer(
        bootstrap_servers=stage.cluster.bootstrap,
        transactional_id="id",
        value_serializer=serialize,
        max_request_size=1_000,
    )
    async with producer:
        for topic in ("in", "out"):
            await producer.partitions_for(topic)
        for call in (producer.send, producer.send_soon, producer.send_many):
            await producer.begin_transaction()
            with pytest.raises(MessageTooLarge, match="in"):
                sent: Any = call("out", [b"with an audit"] if call == producer.send_many else b"with an audit")
                await sent
            assert producer.health().buffered_bytes == 0
            await producer.abort_transaction()


@scenario()
async def test_records_that_wait_end_with_the_transaction(stage: Stage) -> None:
    """One record is refused; another one, which lingers, does not wait for its delivery_timeout_ms."""
    async with stage.producer(linger_ms=30_000) as producer:
        await producer.begin_transaction()
        lingering = await producer.send("out", b"1", partition=0)
        stage.cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD, times=1)
        began = stage.loop.time()
        full = await producer.send("out", bytes(20_000), partition=1)
        with pytest.raises(TransactionAborted):
            await lingering
        with pytest.raises(RecordRefused):
            await full
        assert stage.loop.time() - began < 1.0
        await producer.abort_transaction()


@scenario()
async def test_offsets_of_a_member_that_the_group_does_not_know_end_the_transaction(stage: Stage) -> None:
    """What a zombie has read is read by another member by now."""
    async with stage.consumer("in", group_id="g") as member, stage.producer() as producer:
        await member.wait_assigned()
        known = member.group_metadata()
        zombie = GroupMetadata("g", known.generation_id - 1, known.member_id)
        with pytest.raises(CommitFailed, match="gone on without member"):
            async with producer.transaction() as transaction:
                await producer.send("out", b"1", partition=0)
                await transaction.send_offsets({IN0: 5}, zombie)
        assert await stage.read() == []
        async with producer.transaction() as transaction:
            await producer.send("out", b"2", partition=0)
            await transaction.send_offsets({IN0: 6}, known)
    assert await stage.read() == [b"2"]
    assert await stage.committed() == {IN0: 6}


@scenario(2)
async def test_a_producer_without_permission_does_not_start(stage: Stage) -> None:
    stage.cluster.intercept(ApiKey.INIT_PRODUCER_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, times=1)
    with pytest.raises(AuthorizationFailed, match="'id'"):
        await stage.producer().start()


@scenario(2)
async def test_a_timeout_that_the_broker_does_not_allow_is_told_at_the_start(stage: Stage) -> None:
    with pytest.raises(BrokerError, match="INVALID_TRANSACTION_TIMEOUT"):
        await stage.producer(transaction_timeout_ms=10_000_000).start()


@scenario()
async def test_sends_of_other_tasks_belong_to_the_transaction(stage: Stage) -> None:
    async with stage.producer() as producer:
        await producer.begin_transaction()
        await asyncio.gather(*(producer.send("out", b"%d" % number, partition=0) for number in range(10)))
        await producer.commit_transaction()
    assert await stage.read() == [b"%d" % number for number in range(10)]


@scenario()
async def test_every_send_looks_at_the_transaction(stage: Stage) -> None:
    """The later records of a batch are appended in one step of C, which looks at nothing else."""
    async with stage.producer(linger_ms=30_000, max_request_size=1_000) as producer:
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        producer.send_soon("out", b"2", partition=0)
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0)
        with pytest.raises(UsageError, match="being committed"):
            producer.send_soon("out", b"3", partition=0)
        await commit
        with pytest.raises(UsageError, match="no transaction is open"):
            producer.send_soon("out", b"4", partition=0)
        await producer.begin_transaction()
        await producer.send("out", b"5", partition=0)
        producer.send_soon("out", b"6", partition=0)
        for value in (bytes(2_000), b"7"):
            with pytest.raises(MessageTooLarge):
                producer.send_soon("out", value, partition=0)
        await producer.abort_transaction()
    assert await stage.read() == [b"1", b"2"]


@scenario()
async def test_many_records_by_one_call(stage: Stage) -> None:
    values = [b"%d" % number for number in range(3_000)]
    async with stage.producer(linger_ms=30_000) as producer:
        with pytest.raises(UsageError, match="no transaction is open"):
            await producer.send_many("out", values)
        async with producer.transaction():
            await producer.send_many("out", [ProducerRecord("out", value, partition=1) for value in values])
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send_many("out", values)
                raise KeyError
    assert await stage.read() == values


@scenario()
async def test_an_observer_may_begin_the_next_transaction_within_the_end_of_the_one_before(stage: Stage) -> None:
    """An eager task does that (Python 3.12), if nothing has to be waited for."""
    begun: list[bool] = []

    class Observer(ProducerObserver):
        def transaction(self, committed: bool, seconds: float, error: Exception | None) -> None:
            if not begun:
                begun.append(committed)
                with pytest.raises(StopIteration):
                    producer.begin_transaction().send(None)

    async with stage.producer(observer=Observer()) as producer:
        await producer.begin_transaction()
        await producer.abort_transaction(timeout_ms=5_000)
        assert begun == [False]
        await producer.send("out", b"1", partition=0)
        await producer.commit_transaction()
    assert await stage.read() == [b"1"]


@scenario()
async def test_a_block_in_which_the_producer_is_stopped_does_not_look_committed(stage: Stage) -> None:
    """Another task stops it, and may not wait for the abort; nothing inside of the block raises any more."""
    for timeout_ms in (30_000, 0):
        async with stage.producer() as producer:
            with pytest.raises(ProducerClosed, match="aborted, not committed"):
                async with producer.transaction():
                    await producer.send_and_wait("out", b"1", partition=0)
                    await producer.stop(timeout_ms=timeout_ms)
    assert await stage.read() == []


@scenario()
async def test_offsets_say_so_where_the_producer_was_stopped(stage: Stage) -> None:
    stage.cluster.append("in", b"1")

    async def stop_and_commit() -> None:
        async with producer.transaction() as transaction:
            await producer.stop()
            await transaction.send_offsets(batch, member.group_metadata())

    async with stage.consumer("in", group_id="g") as member, stage.producer() as producer:
        batch = await member.getmany()
        with pytest.raises(ProducerClosed):
            await stop_and_commit()
    assert await stage.committed() == {}


@scenario()
async def test_a_batch_is_its_next_offsets(stage: Stage) -> None:
    stage.cluster.append("in", b"1", b"2", b"3")
    async with stage.consumer("in", group_id="g") as member, stage.producer() as producer:
        batch = await member.getmany()
        async with producer.transaction() as transaction:
            await transaction.send_offsets(batch, member.group_metadata())
    assert await stage.committed() == {IN0: 3}


@scenario()
async def test_a_block_ends_its_own_transaction_and_no_other(stage: Stage) -> None:
    async with stage.producer() as producer:
        async with producer.transaction():
            await producer.send("out", b"1", partition=0)
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send("out", b"2", partition=0)
        assert await stage.read() == [b"1"]
        await producer.abort_transaction()


@scenario()
async def test_a_block_whose_commit_takes_too_long_says_that_nobody_knows(stage: Stage) -> None:
    async with stage.producer(max_block_ms=5_000) as producer:
        stage.cluster.intercept(ApiKey.END_TXN, drop())
        with pytest.raises(RequestTimedOut, match="nobody knows yet") as raised:
            async with producer.transaction():
                await producer.send("out", b"1", partition=0)
        assert raised.value.may_be_committed
        stage.cluster.heal()
        await producer.commit_transaction(timeout_ms=60_000)
    assert await stage.read() == [b"1"]


@scenario()
async def test_a_block_whose_commit_is_refused_says_so_though_its_abort_takes_too_long(stage: Stage) -> None:
    async with stage.producer(max_block_ms=5_000) as producer:
        stage.cluster.intercept(ApiKey.PRODUCE, reject_records({0: "no such schema"}), times=1)
        stage.cluster.intercept(ApiKey.END_TXN, drop())
        with pytest.raises(RecordRefused, match="no such schema") as raised:
            async with producer.transaction():
                await producer.send("out", b"1", partition=0)
        assert not raised.value.may_be_committed
        [note] = raised.value.__notes__
        assert "the transaction is not aborted yet" in note
        stage.cluster.heal()
        await producer.abort_transaction(timeout_ms=60_000)
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
    assert await stage.read() == [b"2"]
