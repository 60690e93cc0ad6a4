"""The loop after failures that take more than one attempt to get over, and after a group that went on without it."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import product
from typing import Any

import pytest

from aiokc import ConsumerInterceptor, Producer
from aiokc.client.transactional_loop.transactional_loop import Process, TransactionalLoop
from aiokc.errors import (
    ConsumerClosed,
    MessageTooLarge,
    ProducerClosed,
    ProducerFenced,
    RecordRefused,
    TransactionAborted,
)
from aiokc.testing import ApiKey, Cluster, ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Interception, drop, reject_records

from ..transactions.on_stage import IN0, TOPICS, Stage, scenario
from ..virtually import virtually
from .test_transactional_loop import Batch, copying, give, looping


@scenario()
async def test_a_batch_whose_partitions_the_group_has_given_again_meanwhile_is_not_committed(stage: Stage) -> None:
    """The function polls by itself. The member's new generation may commit, but others may have read the batch."""
    give(stage, 1, 2)
    async with looping(stage) as (loop, producer):
        copy, consumer = copying(producer, loop, 2), loop._consumer
        generations: list[int] = []

        async def process(batch: Batch) -> None:
            await copy(batch)  # type: ignore[misc]
            generations.append(consumer.group_metadata().generation_id)
            if len(generations) == 2:
                stage.cluster.expire_member("g")
                while consumer.group_metadata().generation_id in (-1, *generations):
                    await consumer.getmany(timeout_ms=500)

        await loop.run(process, max_records=1)
        assert (loop.committed, loop.aborted) == (1, 1)
        await loop.run(process)
        assert loop.committed == 2
    assert await stage.read() == [b"1", b"2"]


@scenario()
async def test_an_abort_without_an_answer_is_done_again_before_the_next_batch(stage: Stage) -> None:
    give(stage, 1)
    async with looping(stage, max_block_ms=2_000, request_timeout_ms=5_000) as (loop, producer):

        async def fails(batch: Batch) -> None:
            await producer.send_and_wait("out", b"half", partition=0)
            stage.cluster.intercept(ApiKey.END_TXN, drop(), times=1)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as raised:
            await loop.run(fails)
        assert "the transaction was not aborted" in "".join(raised.value.__notes__)
        await loop.run(copying(producer, loop, 1))
    assert await stage.read() == [b"1"]


def test_a_batch_that_fails_again_and_again_is_warned_of_twice_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        stage = Stage(cluster, 2)
        give(stage, 1)
        async with looping(stage) as (loop, producer):
            cluster.intercept(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.TRANSACTION_ABORTABLE)
            stage.loop.call_later(300, loop.stop)
            await loop.run(copying(producer, loop, 2))
            assert loop.aborted > 200

    virtually(story, topics=TOPICS)
    told = [text for text in caplog.messages if "is processed again" in text]
    assert 8 <= len(told) <= 12
    assert "more since the last such message" in told[-1]


def test_another_code_of_the_same_error_is_warned_of_at_once(caplog: pytest.LogCaptureFixture) -> None:
    codes = [ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]

    async def story(cluster: Cluster) -> None:
        stage = Stage(cluster, 2)
        give(stage, 1)
        async with looping(stage) as (loop, producer):

            async def process(batch: Batch) -> None:
                if codes:
                    cluster.intercept(ApiKey.TXN_OFFSET_COMMIT, codes.pop(0), times=1)
                await copying(producer, loop, 99 if codes else 1)(batch)  # type: ignore[misc]

            async with asyncio.timeout(30):
                await loop.run(process)

    virtually(story, topics=TOPICS)
    told = [text for text in caplog.messages if "is processed again" in text]
    assert [code for text in told for code in ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID") if code in text] == [
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
    ]


@scenario()
async def test_a_record_that_is_refused_for_good_ends_the_loop_though_its_abort_takes_too_long(stage: Stage) -> None:
    give(stage, 1)
    async with looping(stage, max_block_ms=5_000) as (loop, producer):
        stage.cluster.intercept(ApiKey.PRODUCE, reject_records({0: "no such schema"}), times=1)
        dropped = stage.cluster.intercept(ApiKey.END_TXN, drop())

        async def process(batch: Batch) -> None:
            await producer.send("out", b"wrong", partition=0)

        with pytest.raises(RecordRefused, match="no such schema"):
            await loop.run(process)
        assert loop.aborted == 1
        dropped.cancel()
        await loop.run(copying(producer, loop, 1))
    assert await stage.read() == [b"1"]


@scenario(2)
async def test_a_loop_over_a_consumer_that_was_not_started_says_so(stage: Stage) -> None:
    async with stage.producer() as producer:
        loop: TransactionalLoop[Any, Any] = TransactionalLoop(stage.consumer("in", group_id="g"), producer)
        with pytest.raises(ConsumerClosed):
            await loop.run(copying(producer, loop, 1))


@scenario(2)
async def test_the_pauses_begin_anew_after_a_batch_was_committed(stage: Stage) -> None:
    give(stage, *range(1, 3))
    async with looping(stage) as (loop, producer):
        began: list[float] = []

        async def process(batch: Batch) -> None:
            began.append(stage.loop.time())
            if len(began) < 8 or len(began) == 9:
                stage.cluster.intercept(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, times=1)
            await copying(producer, loop, 2 if len(began) > 9 else 99)(batch)  # type: ignore[misc]

        await loop.run(process, max_records=1)
        assert loop.committed == 2
    assert began[7] - began[6] > 0.5
    assert began[9] - began[8] < 0.2


@scenario()
async def test_a_commit_that_was_carried_out_counts_also_if_its_offsets_can_not_be_fetched_at_once(
    stage: Stage,
) -> None:
    give(stage, 1, 2, 3)
    async with (
        stage.consumer("in", group_id="g", default_api_timeout_ms=2_000) as consumer,
        stage.producer(max_block_ms=2_000, request_timeout_ms=5_000) as producer,
    ):
        loop = TransactionalLoop(consumer, producer)

        async def process(batch: Batch) -> None:
            if batch[IN0][0].value == b"1":
                stage.cluster.intercept(ApiKey.END_TXN, _carried_out_in_silence, times=1)
                stage.cluster.intercept(ApiKey.OFFSET_FETCH, drop(), times=1)
                stage.loop.call_later(60.0, give, stage, 4)
            await copying(producer, loop, 4)(batch)  # type: ignore[misc]

        await loop.run(process)
    assert await stage.read() == [b"1", b"2", b"3", b"4"]


async def _carried_out_in_silence(exchange: Any) -> None:
    await exchange.handle()
    await asyncio.Event().wait()


# The end of the loop, or of a client, while brokers are waited for


def _no_coordinator_of_groups(exchange: Exchange) -> ErrorCode | None:
    return None if exchange.request.key_type else ErrorCode.COORDINATOR_NOT_AVAILABLE


async def _waits_for_the_coordinator(stage: Stage, loop: TransactionalLoop[Any, Any]) -> asyncio.Task[None]:
    stage.cluster.intercept(ApiKey.FIND_COORDINATOR, _no_coordinator_of_groups)
    await loop._consumer.start()
    return asyncio.create_task(loop.run(copying(loop._producer, loop, 99)))


async def _waits_for_committed_offsets(stage: Stage, loop: TransactionalLoop[Any, Any]) -> asyncio.Task[None]:
    """What an attempt that fails leaves behind: the offsets of the group are to be found out."""
    await loop._consumer.start()

    async def process(batch: Batch) -> None:
        stage.cluster.intercept(ApiKey.OFFSET_FETCH, drop())
        raise TransactionAborted("the attempt has failed")

    with pytest.raises(TransactionAborted):
        await loop.run(process)
    return asyncio.create_task(loop.run(process))


async def _waits_for_a_topic(stage: Stage, loop: TransactionalLoop[Any, Any]) -> asyncio.Task[None]:
    await loop._consumer.start()

    def process(batch: Batch) -> None:
        loop._producer.send_soon("nowhere", b"")

    return asyncio.create_task(loop.run(process))


async def _waits_for_records(stage: Stage, loop: TransactionalLoop[Any, Any]) -> asyncio.Task[None]:
    await loop._consumer.start()
    await loop._consumer.wait_assigned()
    await loop._consumer.seek_to_end()
    return asyncio.create_task(loop.run(copying(loop._producer, loop, 99)))


@scenario(2, auto_create_topics_enable=False)
async def test_who_stops_the_loop_or_one_of_its_clients_waits_for_no_broker(stage: Stage) -> None:
    waits = _waits_for_the_coordinator, _waits_for_committed_offsets, _waits_for_a_topic, _waits_for_records
    give(stage, 1)
    for wait, ended in product(waits, ("loop", "consumer", "producer")):
        consumer, producer = stage.consumer("in", group_id=f"{wait.__name__} {ended}"), stage.producer()
        await producer.start()
        loop = TransactionalLoop(consumer, producer)
        running = await wait(stage, loop)
        await asyncio.sleep(5.0)
        assert not running.done()
        began = stage.loop.time()
        if ended == "loop":
            loop.stop()
        else:
            await (consumer if ended == "consumer" else producer).stop()
        await asyncio.wait([running])
        assert stage.loop.time() - began < 2.5, (wait, ended)  # the consumer's stop() waits 2 s for a LeaveGroup
        if ended == "producer":
            with pytest.raises(ProducerClosed):
                await running
        else:
            await running
        stage.cluster.heal()
        await consumer.stop()
        await producer.stop()


# What the next run() finds out about a commit whose call was cancelled


async def cancelled_while_committing(loop: TransactionalLoop[Any, Any], process: Any, held: Interception) -> None:
    """Run the loop, and cancel it once the request that ``held`` catches, one of the commit's, has been sent."""
    task = asyncio.create_task(loop.run(process))
    await held.caught()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@scenario()
async def test_a_commit_that_could_not_be_carried_out_is_aborted_before_the_next_batch(stage: Stage) -> None:
    """A record of it is refused after the call was cancelled: nobody has aborted its transaction yet."""
    give(stage, 1, 2)
    async with looping(stage, linger_ms=10_000) as (loop, producer):
        opened = asyncio.Event()

        async def refused_later(exchange: Exchange) -> ErrorCode:
            await opened.wait()
            return ErrorCode.INVALID_RECORD

        held = stage.cluster.intercept(ApiKey.PRODUCE, refused_later, times=1)
        await cancelled_while_committing(loop, copying(producer, loop, 99), held)
        opened.set()
        await loop.run(copying(producer, loop, 2))
        assert (loop.committed, loop.aborted) == (1, 1)
    assert await stage.read() == [b"1", b"2"]
    assert await stage.committed() == {IN0: 2}


@scenario()
async def test_a_commit_of_which_nobody_knows_for_long_is_asked_for_until_it_is_told(stage: Stage) -> None:
    """Each attempt ends by itself, and is no reason for run() to end, nor to take the next batch."""
    give(stage, 1, 2)
    async with looping(stage, max_block_ms=2_000, request_timeout_ms=5_000) as (loop, producer):
        silent = stage.cluster.intercept(ApiKey.END_TXN, drop())
        await cancelled_while_committing(loop, copying(producer, loop, 99), silent)
        give(stage, 3)
        seen: list[bytes | None] = []

        async def process(batch: Batch) -> None:
            seen.extend(record.value for record in batch[IN0])
            await copying(producer, loop, 3)(batch)  # type: ignore[misc]

        task = asyncio.create_task(loop.run(process))
        await asyncio.sleep(30.0)
        assert not task.done()
        assert seen == []
        silent.cancel()
        await task
        assert seen == [b"3"], "the batch before it was committed"
    assert await stage.read() == [b"1", b"2", b"3"]


@scenario()
async def test_a_producer_that_died_in_a_cancelled_commit_ends_the_next_run_at_once(stage: Stage) -> None:
    """Also where no record comes that it could not send."""
    give(stage, 1)
    async with looping(stage) as (loop, producer):
        opened = asyncio.Event()

        async def fenced_later(exchange: Exchange) -> ErrorCode:
            await exchange.handle()
            await opened.wait()
            return ErrorCode.PRODUCER_FENCED

        held = stage.cluster.intercept(ApiKey.END_TXN, fenced_later, times=1)
        await cancelled_while_committing(loop, copying(producer, loop, 99), held)
        opened.set()
        began = stage.loop.time()
        async with asyncio.timeout(60.0):
            with pytest.raises(ProducerFenced):
                await loop.run(copying(producer, loop, 1))
        assert stage.loop.time() - began < 5.0
    assert await stage.read() == [b"1"]


@scenario(2)
async def test_a_transaction_that_is_no_more_is_tried_again_where_a_record_tells_it(stage: Stage) -> None:
    """The first code says that the id was idle for transactional.id.expiration.ms. Produce comes before the offsets."""
    codes = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    async with looping(stage) as (loop, producer):
        process = storing(producer, loop)
        for number, code in enumerate(codes, start=1):
            give(stage, number)
            stage.cluster.intercept(ApiKey.PRODUCE, code, times=1)
            await loop.run(process)
            assert (loop.committed, loop.aborted) == (number, number), code
    assert await stage.read() == [b"1", b"2", b"3"]


@scenario(2)
async def test_an_exception_group_is_tried_again_where_each_of_its_errors_would_be(stage: Stage) -> None:
    """``process`` sends within an asyncio.TaskGroup, or within several of them."""
    give(stage, 1)
    async with looping(stage) as (loop, producer):
        own: list[Exception] = []

        async def send(value: bytes) -> None:
            try:
                await producer.send_and_wait("out", value, partition=0)
            except RecordRefused:
                if own:
                    raise own.pop() from None
                raise

        async def nested(value: bytes) -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(send(value))

        async def process(batch: Batch) -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(send(b"1"))
                tasks.create_task(nested(b"2"))
            loop.stop()

        for error in (ZeroDivisionError(), None):
            own += [error] if error is not None else []
            refused = stage.cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TXN_STATE, times=1)
            if error is None:
                await loop.run(process)
            else:
                with pytest.raises(ExceptionGroup) as raised:
                    await loop.run(process)
                assert raised.group_contains(ZeroDivisionError)
            assert refused.hits == 1
        assert (loop.committed, loop.aborted) == (1, 2)
    assert set(await stage.read()) == {b"1", b"2"}


@scenario()
async def test_a_broker_that_lost_the_producer_s_sequences_gets_the_batch_again_in_another_epoch(stage: Stage) -> None:
    async with looping(stage) as (loop, producer):
        for number, code in enumerate((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID), start=1):
            give(stage, number)
            stage.cluster.intercept(ApiKey.PRODUCE, partial(_has_records, code), times=1)
            await loop.run(storing(producer, loop))
            assert (loop.committed, loop.aborted) == (number, number), code
    assert await stage.read() == [b"1", b"2"]


def storing(producer: Producer[Any, Any], loop: TransactionalLoop[Any, Any]) -> Process[Any, Any]:
    """Copy each record to the topic "out", and stop the loop once all of a batch are stored there."""

    async def process(batch: Batch) -> None:
        for records in batch.values():
            for record in records:
                await producer.send_and_wait("out", record.value, partition=0)
        loop.stop()

    return process


def _has_records(code: ErrorCode, exchange: Exchange) -> Any:
    """Refuse the batch, and say that the log has a first record: so its producer can't be unknown for want of any."""
    response: Any = exchange.refusal(code)
    response.responses[0].partition_responses[0].log_start_offset = 0
    return response


@scenario(2)
async def test_a_topic_that_is_recreated_under_a_batch_gets_the_results_of_the_next_attempt(stage: Stage) -> None:
    give(stage, 1)
    async with looping(stage) as (loop, producer):

        async def process(batch: Batch) -> None:
            await producer.send("out", batch[IN0][0].value, partition=0)
            if loop.aborted:
                loop.stop()
            else:
                stage.cluster.recreate_topic("out")

        await loop.run(process)
        assert (loop.committed, loop.aborted) == (1, 1)
    assert await stage.read() == [b"1"]


async def learned(loop: TransactionalLoop[Any, Any]) -> None:
    """Return once the consumer has asked for the metadata anew, and what it was told has come to each part of it."""
    metadata = loop._consumer._runtime.cluster_client.metadata
    metadata.request_update()
    await metadata.changed.wait()
    await asyncio.sleep(1)


@scenario()
async def test_an_input_topic_that_is_recreated_under_a_batch_is_read_from_its_beginning(stage: Stage) -> None:
    """Neither the offsets of the batch nor the place where it began mean anything in the new log."""
    give(stage, 1, 2)
    async with looping(stage) as (loop, producer):
        await loop.run(copying(producer, loop, 2))
        give(stage, 3, 4)

        async def process(batch: Batch) -> None:
            await copying(producer, loop, 15)(batch)  # type: ignore[misc]
            if not loop.aborted:
                stage.cluster.recreate_topic("in")
                give(stage, *range(10, 16))
                await learned(loop)

        await loop.run(process)
        assert (loop.committed, loop.aborted) == (2, 1)
        assert await stage.committed() == {IN0: 6}
    assert await stage.read() == [b"1", b"2", *(b"%d" % number for number in range(10, 16))]


class Elsewhere(ConsumerInterceptor):
    def on_consume(self, records: Any) -> Any:
        return {IN0._replace(partition=7): found for found in records.values()}


@scenario(2)
async def test_records_that_an_interceptor_has_put_elsewhere_move_no_position(stage: Stage) -> None:
    """The error of the function is raised, and not one of a seek to where nothing was read."""
    give(stage, 1, 2)
    consumer = stage.consumer("in", group_id="g", interceptors=[Elsewhere()])
    async with consumer, stage.producer() as producer:

        async def process(batch: Batch) -> None:
            assert [tp.partition for tp in batch] == [7]
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await TransactionalLoop(consumer, producer).run(process)


@scenario(2)
async def test_a_record_that_is_not_sent_because_another_one_is_too_large_ends_the_loop_with_it(stage: Stage) -> None:
    """Each attempt would meet the same refusal. The function awaits a record that lingers, not the refused one."""
    give(stage, 1)
    stage.cluster.create_topic("small", 1, config={"max.message.bytes": "1000"})
    async with looping(stage, linger_ms=60_000, batch_size=2_000) as (loop, producer):

        async def process(batch: Batch) -> None:
            await producer.send("small", bytes(5_000))  # a full batch by itself: it is sent at once
            await (await producer.send("out", b"1"))

        async with asyncio.timeout(30.0):
            with pytest.raises(TransactionAborted, match="small-0: the broker takes no record of this size") as raised:
                await loop.run(process)
        assert isinstance(raised.value.__cause__, MessageTooLarge)
        assert (loop.committed, loop.aborted) == (0, 1)
