"""Cancelled calls of transactions: no request is withdrawn, and no outcome is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiokc import ErrorCode, GroupMetadata, Producer
from aiokc.client.aio.signal import Signal
from aiokc.errors import ProduceError, ProducerClosed, ProducerFenced, RequestTimedOut, TransactionAbortable, UsageError
from aiokc.testing import ApiKey
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Fault, delay, drop, lose_answer

from .on_stage import IN0, Stage, scenario

GROUP = GroupMetadata("g")


class Gate:
    """A fault that holds requests until ``open``. ``arrived`` is notified of each."""

    def __init__(self) -> None:
        self.arrived = Signal()
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    @property
    def fault(self) -> Fault:
        async def hold(exchange: Exchange) -> None:
            self.arrived.notify()
            await self._opened.wait()

        return hold


@scenario()
async def test_an_exception_and_a_cancellation_inside_abort_and_go_on(stage: Stage) -> None:
    async with stage.producer() as producer:
        waits = asyncio.Event()

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait("out", b"1", partition=0)
                waits.set()
                await asyncio.sleep(1_000)

        task = asyncio.create_task(work())
        await waits.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
    assert await stage.read() == [b"2"]
    assert await stage.read(isolation_level="read_uncommitted") == [b"1", b"2"]


@scenario()
async def test_a_scope_that_has_ended_does_not_end_the_abort(stage: Stage) -> None:
    """A cancelled scope of anyio cancels every await in it; the abort is not in it."""
    async with stage.producer() as producer:
        with anyio.move_on_after(1.0) as scope:
            async with producer.transaction():
                await producer.send_and_wait("out", b"1", partition=0)
                stage.cluster.intercept(ApiKey.END_TXN, delay(2.0), times=1)
                await asyncio.sleep(1_000)
        assert scope.cancelled_caught
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
    assert await stage.read() == [b"2"]


@scenario()
async def test_a_cancelled_commit_goes_on_and_is_told_by_the_next_one(stage: Stage) -> None:
    async with stage.producer() as producer:
        gate = Gate()
        stage.cluster.intercept(ApiKey.END_TXN, gate.fault, times=1)
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        commit = asyncio.create_task(producer.commit_transaction())
        await gate.arrived.wait()
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        for call in (producer.begin_transaction, producer.abort_transaction):
            with pytest.raises(UsageError, match="call it again"):
                await call()
        gate.open()
        await producer.commit_transaction()
        with pytest.raises(UsageError, match="no transaction is open"):
            await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
    assert await stage.read() == [b"1", b"2"]


@scenario()
async def test_the_outcome_of_a_cancelled_commit_is_kept_until_it_is_told(stage: Stage) -> None:
    async with stage.producer() as producer:
        gate = Gate()
        stage.cluster.intercept(ApiKey.END_TXN, gate.fault, times=1)
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        commit = asyncio.create_task(producer.commit_transaction())
        await gate.arrived.wait()
        commit.cancel()
        gate.open()
        await asyncio.sleep(10.0)  # the commit is over long since
        with pytest.raises(UsageError, match="call it again"):
            await producer.begin_transaction()
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.abort_transaction()


@scenario()
async def test_a_commit_that_takes_too_long_says_that_nobody_knows_and_may_be_repeated(stage: Stage) -> None:
    async with stage.producer() as producer:
        stage.cluster.intercept(ApiKey.END_TXN, drop())
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        with pytest.raises(RequestTimedOut, match="nobody knows yet whether it was carried out"):
            await producer.commit_transaction(timeout_ms=5_000)
        with pytest.raises(UsageError):
            await producer.abort_transaction()
        stage.cluster.heal()
        await producer.commit_transaction()
    assert await stage.read() == [b"1"]


@scenario()
async def test_a_commit_that_ends_with_the_producer_says_that_it_may_be_committed(stage: Stage) -> None:
    """The coordinator has carried it out, its answer is lost, and another task stops the producer meanwhile."""
    for number, in_block in enumerate((True, False), start=1):
        producer = stage.producer()
        await producer.start()

        async def work(producer: Producer[bytes, bytes], number: int, in_block: bool) -> None:
            if in_block:
                async with producer.transaction():
                    await producer.send("out", b"%d" % number, partition=0)
            else:
                await producer.begin_transaction()
                await producer.send("out", b"%d" % number, partition=0)
                await producer.commit_transaction()

        lost = stage.cluster.intercept(ApiKey.END_TXN, lose_answer(), times=1)
        stage.cluster.intercept(ApiKey.END_TXN, drop())
        working = asyncio.create_task(work(producer, number, in_block))
        await lost.caught()
        await producer.stop(timeout_ms=1_000)
        with pytest.raises(ProducerClosed) as raised:
            await working
        assert raised.value.may_be_committed
        stage.cluster.heal()
    assert await stage.read() == [b"1", b"2"]


@scenario()
async def test_a_commit_that_was_cancelled_says_after_a_stop_that_it_may_be_committed(stage: Stage) -> None:
    """No call tells its outcome any more."""
    for is_answered in (True, False):
        producer = stage.producer()
        await producer.start()
        gate = Gate()
        stage.cluster.intercept(ApiKey.END_TXN, gate.fault)
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        commit = asyncio.create_task(producer.commit_transaction())
        await gate.arrived.wait()
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        if is_answered:
            gate.open()
        await producer.stop(timeout_ms=1_000)
        with pytest.raises(ProducerClosed) as raised:
            await producer.commit_transaction()
        assert raised.value.may_be_committed
        gate.open()
        stage.cluster.heal()


@scenario()
async def test_a_commit_whose_records_a_stop_has_failed_is_none(stage: Stage) -> None:
    producer = stage.producer()
    await producer.start()
    await producer.begin_transaction()
    asked = stage.cluster.intercept(ApiKey.PRODUCE, drop())
    await producer.send("out", b"1", partition=0)
    commit = asyncio.create_task(producer.commit_transaction())
    await asked.caught()
    await producer.stop(timeout_ms=1_000)
    with pytest.raises(ProduceError, match="stopped") as raised:
        await commit
    assert not raised.value.may_be_committed
    assert "EndTxn" not in stage.control()


@scenario()
async def test_what_comes_after_a_commit_with_an_unknown_outcome_is_not_committed(stage: Stage) -> None:
    """The error that has ended the producer is raised again and again, and says that of the one commit only."""
    async with stage.producer() as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"1", partition=0)
        stage.cluster.intercept(ApiKey.END_TXN, lose_answer(), times=1)
        stage.cluster.intercept(ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED)
        with pytest.raises(ProducerFenced) as raised:
            await producer.commit_transaction()
        assert raised.value.may_be_committed
        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            producer.begin_transaction,
            lambda: producer.send("out", b"2"),
            lambda: producer.send_offsets_to_transaction({IN0: 1}, GROUP),
        )
        for call in calls:
            with pytest.raises(ProducerFenced) as raised:
                await call()
            assert not raised.value.may_be_committed
        with pytest.raises(ProducerFenced) as raised:
            await producer.commit_transaction()
        assert raised.value.may_be_committed


@scenario()
async def test_a_cancelled_abort_goes_on_and_the_next_transaction_waits_for_it(stage: Stage) -> None:
    async with stage.producer() as producer:
        gate = Gate()
        stage.cluster.intercept(ApiKey.END_TXN, gate.fault, times=1)
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"1", partition=0)
        abort = asyncio.create_task(producer.abort_transaction())
        await gate.arrived.wait()
        abort.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abort
        with pytest.raises(RequestTimedOut, match="the abort before"):
            await producer.begin_transaction(timeout_ms=1_000)
        begin = asyncio.create_task(producer.begin_transaction())
        await asyncio.sleep(1.0)
        assert not begin.done()
        gate.open()
        await begin
        await producer.send("out", b"2", partition=0)
        await producer.commit_transaction()
    assert await stage.read() == [b"2"]


@scenario()
async def test_offsets_whose_call_was_cancelled_end_the_transaction(stage: Stage) -> None:
    async with stage.producer() as producer:
        gate = Gate()
        stage.cluster.intercept(ApiKey.TXN_OFFSET_COMMIT, gate.fault, times=1)
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        call = asyncio.create_task(producer.send_offsets_to_transaction({IN0: 5}, GROUP))
        await gate.arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(TransactionAbortable, match="nobody knows whether they are part"):
            await producer.commit_transaction()
        gate.open()
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await transaction.send_offsets({IN0: 6}, GROUP)
    assert await stage.read() == []
    assert await stage.committed() == {IN0: 6}


@scenario()
async def test_offsets_that_take_too_long_end_the_transaction(stage: Stage) -> None:
    async with stage.producer() as producer:
        stage.cluster.intercept(ApiKey.TXN_OFFSET_COMMIT, drop(), times=1)
        await producer.begin_transaction()
        for call in (
            producer.send_offsets_to_transaction({IN0: 5}, GROUP, timeout_ms=1_000),
            producer.commit_transaction(),
            producer.send_offsets_to_transaction({IN0: 5}, GROUP),
        ):
            with pytest.raises(TransactionAbortable, match="group 'g', so nobody knows") as failed:
                await call
            assert isinstance(failed.value.__cause__, RequestTimedOut)
            assert not failed.value.retriable, "a loop that calls again what is retriable would never end"
        await producer.abort_transaction()
    assert await stage.committed() == {}


# stop() with an open transaction


@scenario()
async def test_stop_aborts_the_open_transaction(stage: Stage) -> None:
    """Else the partitions' last stable offsets would stay where they are until the transaction times out."""
    producer = stage.producer()
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("out", b"1", partition=0)
    await producer.stop()
    async with stage.producer("other") as other, other.transaction():
        await other.send("out", b"2", partition=0)
    assert await stage.read() == [b"2"]
    with pytest.raises(ProducerClosed):
        await producer.commit_transaction()


@scenario()
async def test_stop_waits_for_a_commit_that_was_cancelled(stage: Stage) -> None:
    producer = stage.producer()
    await producer.start()
    gate = Gate()
    stage.cluster.intercept(ApiKey.END_TXN, gate.fault, times=1)
    await producer.begin_transaction()
    await producer.send("out", b"1", partition=0)
    commit = asyncio.create_task(producer.commit_transaction())
    await gate.arrived.wait()
    commit.cancel()
    stop = asyncio.create_task(producer.stop())
    await asyncio.sleep(1.0)
    assert not stop.done()
    gate.open()
    await stop
    assert await stage.read() == [b"1"]


@scenario()
async def test_stop_is_bounded_where_the_coordinator_is_silent(stage: Stage) -> None:
    producer = stage.producer()
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("out", b"1", partition=0)
    stage.cluster.intercept(ApiKey.END_TXN, drop())
    began = stage.loop.time()
    await producer.stop(timeout_ms=3_000)
    assert 3.0 <= stage.loop.time() - began < 5.0


@scenario()
async def test_a_commit_that_waits_ends_with_stop(stage: Stage) -> None:
    producer = stage.producer()
    await producer.start()
    stage.cluster.intercept(ApiKey.END_TXN, drop())
    await producer.begin_transaction()
    await producer.send_and_wait("out", b"1", partition=0)
    commit = asyncio.create_task(producer.commit_transaction())
    await asyncio.sleep(1.0)
    await producer.stop(timeout_ms=1_000)
    with pytest.raises(ProducerClosed):
        await commit
