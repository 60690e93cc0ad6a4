"""The loop step by step: what it demands, what it goes on after, what it raises, how it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from aiokc import Consumer, ConsumerRecords, OffsetAndMetadata, Producer, TopicPartition
from aiokc.client.transactional_loop.transactional_loop import Process, TransactionalLoop
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    BufferFull,
    ConfigError,
    MetadataMissing,
    ProducerFenced,
    RecordRefused,
    RequestTimedOut,
    UnsupportedVersion,
    UsageError,
)
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import drop, reject_records
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse

from ..transactions.on_stage import IN0, TOPICS, Stage, scenario
from ..virtually import virtually

Batch = ConsumerRecords[Any, Any]


@asynccontextmanager
async def looping(
    stage: Stage, **options: Any
) -> AsyncIterator[tuple[TransactionalLoop[Any, Any], Producer[Any, Any]]]:
    """A loop over the topic "in", whose consumer and producer are stopped at the end."""
    async with stage.consumer("in", group_id="g") as consumer, stage.producer(**options) as producer:
        yield TransactionalLoop(consumer, producer), producer


def copying(producer: Producer[Any, Any], loop: TransactionalLoop[Any, Any], until: int) -> Process[Any, Any]:
    """Copy each record to the topic "out", and stop the loop with the record of this number."""

    async def process(batch: Batch) -> None:
        for tp, records in batch.items():
            for record in records:
                await producer.send("out", record.value, partition=tp.partition)
                if record.value == b"%d" % until:
                    loop.stop()

    return process


def give(stage: Stage, *numbers: int) -> None:
    stage.cluster.append("in", *(b"%d" % number for number in numbers))


@scenario()
async def test_results_and_offsets_are_committed_together(stage: Stage) -> None:
    give(stage, 1, 2, 3)
    async with looping(stage) as (loop, producer):
        await loop.run(copying(producer, loop, 3))
        assert (loop.committed, loop.aborted) == (1, 0)
        assert await stage.read() == [b"1", b"2", b"3"]
        assert await stage.committed() == {IN0: 3}
        give(stage, 4, 5)
        await loop.run(copying(producer, loop, 5), max_records=1)
        assert (loop.committed, loop.aborted) == (3, 0)
    assert await stage.read() == [b"1", b"2", b"3", b"4", b"5"]


def take_apart(batch: Batch) -> None:
    while batch:
        batch.popitem()


def put_another_one_in(batch: Batch) -> None:
    batch[TopicPartition("elsewhere", 0)] = batch.pop(IN0)


@scenario()
async def test_a_batch_is_committed_as_a_whole_whatever_process_does_to_its_dict(stage: Stage) -> None:
    """Functions take partitions out as they process them. What is aborted comes again, and what is not, doesn't."""
    expected: list[bytes | None] = []
    async with looping(stage) as (loop, producer):
        spoils: tuple[Callable[[Batch], None], ...] = (take_apart, Batch.clear, put_another_one_in)
        for spoil in spoils:

            async def process(batch: Batch, spoil: Callable[[Batch], None] = spoil) -> None:
                records = batch[IN0]
                spoil(batch)
                for record in records:
                    await producer.send_and_wait("out", record.value, partition=0)
                loop.stop()

            for fails in (False, True):
                if fails:
                    stage.cluster.intercept(ApiKey.PRODUCE, ErrorCode.TRANSACTION_ABORTABLE, times=1)
                expected += [b"%d" % (len(expected) + number) for number in (1, 2)]
                stage.cluster.append("in", *expected[-2:])
                aborted = loop.aborted
                await loop.run(process)
                assert loop.aborted == aborted + fails, spoil
                assert await stage.committed() == {IN0: len(expected)}, spoil
    assert await stage.read() == expected


@scenario()
async def test_a_stop_between_two_runs_ends_the_next_one(stage: Stage) -> None:
    """SIGTERM may come before the task of run() has begun, or while the application handles what run() has raised."""
    give(stage, 1)
    async with looping(stage) as (loop, producer):
        running = asyncio.create_task(loop.run(copying(producer, loop, 99)))
        loop.stop()
        await running

        def fails(batch: Batch) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await loop.run(fails)
        loop.stop()
        await loop.run(copying(producer, loop, 99))
        assert loop.committed == 0
        await loop.run(copying(producer, loop, 1))
        assert loop.committed == 1, "one stop() ends one run()"


@scenario(2)
async def test_a_plain_function_will_do(stage: Stage) -> None:
    give(stage, 1, 2)
    async with looping(stage) as (loop, producer):
        await producer.partitions_for("out")

        def process(batch: Batch) -> None:
            producer.send_soon("out", b"%d records" % len(batch[IN0]), partition=0)
            loop.stop()

        await loop.run(process)
    assert await stage.read() == [b"2 records"]


@scenario()
async def test_what_the_application_raises_is_raised_and_the_batch_comes_again(stage: Stage) -> None:
    give(stage, 1, 2, 3)
    async with looping(stage) as (loop, producer):

        async def fails(batch: Batch) -> None:
            await producer.send_and_wait("out", b"half", partition=0)
            raise ZeroDivisionError

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await loop.run(fails)
        give(stage, 4)
        await loop.run(copying(producer, loop, 4))
        assert loop.aborted == 2
    assert await stage.read() == [b"1", b"2", b"3", b"4"]
    assert b"half" in await stage.read(isolation_level="read_uncommitted")


@scenario()
async def test_a_batch_whose_run_was_cancelled_comes_again(stage: Stage) -> None:
    give(stage, 1, 2, 3)
    async with looping(stage) as (loop, producer):
        began = asyncio.Event()

        async def waits(batch: Batch) -> None:
            await producer.send("out", b"half", partition=0)
            began.set()
            await asyncio.sleep(1_000)

        task = asyncio.create_task(loop.run(waits))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await loop.run(copying(producer, loop, 3))
    assert await stage.read() == [b"1", b"2", b"3"]


@scenario()
async def test_a_commit_that_was_cancelled_counts_if_it_was_carried_out(stage: Stage) -> None:
    """The next run() does not process its batch again, whatever the loop thought of it."""
    give(stage, 1, 2, 3)
    async with looping(stage) as (loop, producer):
        held = asyncio.Event()

        async def hold(exchange: object) -> None:
            await held.wait()

        caught = stage.cluster.intercept(ApiKey.END_TXN, hold, times=1)
        task = asyncio.create_task(loop.run(copying(producer, loop, 99)))
        await caught.caught()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        held.set()
        give(stage, 4)
        assert (loop.committed, loop.aborted) == (0, 0), "nobody knows yet"
        await loop.run(copying(producer, loop, 4))
        assert (loop.committed, loop.aborted) == (2, 0)
    assert await stage.read() == [b"1", b"2", b"3", b"4"]


@scenario()
async def test_a_commit_without_an_answer_is_no_reason_to_process_a_batch_again(stage: Stage) -> None:
    give(stage, 1, 2, 3)
    async with looping(stage, max_block_ms=2_000, request_timeout_ms=5_000) as (loop, producer):
        stage.cluster.intercept(ApiKey.END_TXN, drop(), times=1)
        asyncio.get_running_loop().call_later(30.0, give, stage, 4)
        await loop.run(copying(producer, loop, 4))
        assert (loop.committed, loop.aborted) == (2, 0)
    assert await stage.read() == [b"1", b"2", b"3", b"4"]


@scenario()
async def test_what_a_partition_was_committed_to_before_it_came_back_does_not_count(stage: Stage) -> None:
    """Another member may have had it in between, and have gone further."""
    give(stage, 1, 2, 3)
    async with stage.consumer("in", group_id="g") as consumer, stage.producer() as producer:
        await consumer.wait_assigned()
        assert await consumer.position(IN0) == 0
        await consumer.commit({IN0: 1})
        former, ask = consumer._runtime.subscription[IN0], consumer.committed

        async def ask_and_hear_late(*partitions: TopicPartition) -> Any:
            answer = await ask(*partitions)
            assert answer[IN0] == OffsetAndMetadata(1, topic_id=former.topic_id)
            stage.cluster.expire_member("g")
            async with stage.consumer(group_id="g") as other:
                await other.commit({IN0: 2})
            while IN0 not in consumer.assignment() or consumer._runtime.subscription[IN0] is former:
                await consumer._runtime.changed.wait()
            assert await consumer.position(IN0) == 2
            return answer

        with patch.object(consumer, "committed", ask_and_hear_late):
            loop = TransactionalLoop(consumer, producer)
            await loop.run(copying(producer, loop, 3))
    assert await stage.read() == [b"3"]


@scenario()
async def test_a_record_that_is_refused_is_raised(stage: Stage) -> None:
    """To process the batch again would not help; the application may skip the record by seek()."""
    give(stage, 1, 2)
    async with looping(stage) as (loop, producer):
        stage.cluster.intercept(ApiKey.PRODUCE, reject_records({0: "no such schema"}), times=1)
        with pytest.raises(RecordRefused, match="no such schema"):
            await loop.run(copying(producer, loop, 2))
        await loop.run(copying(producer, loop, 2))
    assert await stage.read() == [b"1", b"2"]


@scenario()
async def test_the_loop_goes_on_after_the_group_has_gone_on_without_it(stage: Stage) -> None:
    give(stage, 1, 2)
    async with looping(stage) as (loop, producer):
        expired: list[str] = []
        copy = copying(producer, loop, 2)

        async def process(batch: Batch) -> None:
            if not expired:
                expired.append(stage.cluster.expire_member("g"))
            await copy(batch)  # type: ignore[misc]

        await loop.run(process)
        while loop.committed == 0:
            await loop.run(process)
    assert await stage.read() == [b"1", b"2"]
    assert await stage.committed() == {IN0: 2}


@scenario(2)
async def test_the_loop_goes_on_after_a_transaction_that_took_too_long(stage: Stage) -> None:
    give(stage, 1, 2)
    async with looping(stage, transaction_timeout_ms=10_000) as (loop, producer):
        rounds: list[Batch] = []

        async def process(batch: Batch) -> None:
            rounds.append(batch)
            await producer.send_and_wait("out", b"%d" % len(rounds), partition=0)
            if len(rounds) == 1:
                await asyncio.sleep(30.0)
                await producer.send_and_wait("out", b"late", partition=0)
            loop.stop()

        await loop.run(process)
        assert (loop.committed, loop.aborted) == (1, 1)
    assert await stage.read() == [b"2"]


@scenario()
async def test_a_fenced_producer_ends_the_loop_and_a_new_one_goes_on(stage: Stage) -> None:
    give(stage, 1, 2, 3)
    async with stage.consumer("in", group_id="g") as consumer:
        async with stage.producer() as elder:
            loop = TransactionalLoop(consumer, elder)
            twin = stage.producer()

            async def process(batch: Batch) -> None:
                await elder.send_and_wait("out", b"half", partition=0)
                await twin.start()

            with pytest.raises(ProducerFenced):
                await loop.run(process)
        async with twin:
            again = TransactionalLoop(consumer, twin)
            await again.run(copying(twin, again, 3))
    assert await stage.read() == [b"1", b"2", b"3"]


@scenario(2)
async def test_a_fenced_producer_whose_commit_was_carried_out(stage: Stage) -> None:
    """Nobody has told its loop; the next one begins at what the group has committed."""
    give(stage, 1, 2, 3)
    async with stage.consumer("in", group_id="g") as consumer:
        async with stage.producer(max_block_ms=1_000) as elder:
            loop = TransactionalLoop(consumer, elder)
            lost = stage.cluster.intercept(ApiKey.END_TXN, _handled_silently, times=1)
            task = asyncio.create_task(loop.run(copying(elder, loop, 99)))
            await lost.caught()
            stage.cluster.intercept(ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED)
            with pytest.raises(ProducerFenced) as raised:
                await task
            assert "nobody knows" in "".join(getattr(raised.value, "__notes__", []))
        stage.cluster.heal()
        give(stage, 4)
        async with stage.producer() as producer:
            again = TransactionalLoop(consumer, producer)
            await again.run(copying(producer, again, 4))
    assert await stage.read() == [b"1", b"2", b"3", b"4"]


async def _handled_silently(exchange: Any) -> None:
    await exchange.handle()
    exchange.abort()


@scenario(2, auto_create_topics_enable=False)
async def test_a_topic_that_no_broker_knows_ends_the_loop_and_the_batch_comes_again(stage: Stage) -> None:
    """It will be there tomorrow, or never: nothing that the loop does brings it nearer."""
    give(stage, 1)
    async with looping(stage, max_block_ms=2000) as (loop, producer):

        async def process(batch: Batch) -> None:
            await producer.send("nowhere", b"")

        with pytest.raises(MetadataMissing, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await loop.run(process)

        async def elsewhere(batch: Batch) -> None:
            await producer.send("out", b"", partition=7)

        with pytest.raises(MetadataMissing, match="2 partitions"):
            await loop.run(elsewhere)
        await loop.run(copying(producer, loop, 1))
        assert (loop.committed, loop.aborted) == (1, 2)
    assert await stage.read() == [b"1"]


@scenario(2, auto_create_topics_enable=False)
async def test_send_soon_to_what_no_broker_knows_ends_the_loop_too(stage: Stage) -> None:
    """send_soon() can't wait for the metadata: the loop does, once, and the next attempt finds them or none is made."""
    give(stage, 1)
    async with looping(stage, max_block_ms=2000) as (loop, producer):
        calls: list[tuple[str, int | None]] = []

        def sends(topic: str, partition: int | None) -> Process[Any, Any]:
            def process(batch: Batch) -> None:
                calls.append((topic, partition))
                producer.send_soon(topic, b"1", partition=partition)
                loop.stop()

            return process

        with pytest.raises(MetadataMissing, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await loop.run(sends("nowhere", None))
        with pytest.raises(MetadataMissing, match="2 partitions"):
            await loop.run(sends("out", 7))
        await loop.run(sends("out", 0))
        assert calls == [("nowhere", None), ("out", 7), ("out", 0)]
        stage.cluster.create_topic("new", partitions=1)
        give(stage, 2)
        await loop.run(sends("new", None))
        assert calls[3:] == [("new", None), ("new", None)], "its metadata were waited for"
        assert loop.committed == 2
    assert await stage.read() == [b"1"]


@scenario(2)
async def test_more_by_send_soon_than_buffer_memory_holds_ends_the_loop(stage: Stage) -> None:
    """The next attempt would fill the same memory with the same records."""
    give(stage, 1)
    async with looping(stage, buffer_memory=100_000, batch_size=16_384) as (loop, producer):
        await producer.partitions_for("out")

        def process(batch: Batch) -> None:
            for _ in range(30):
                producer.send_soon("out", bytes(10_000), partition=0)

        with pytest.raises(BufferFull):
            await loop.run(process)
        await loop.run(copying(producer, loop, 1))
    assert await stage.read() == [b"1"]


@scenario(2)
async def test_errors_of_the_application_s_other_calls_end_the_loop_whatever_their_class(stage: Stage) -> None:
    give(stage, 1)
    async with looping(stage) as (loop, producer):
        await producer.partitions_for("out")
        for error in (RequestTimedOut("elsewhere"), MetadataMissing("elsewhere", topic="out", partition=0)):

            def process(batch: Batch, error: Exception = error) -> None:
                raise error

            with pytest.raises(type(error), match="elsewhere"):
                await loop.run(process)
        await loop.run(copying(producer, loop, 1))
    assert await stage.read() == [b"1"]


@scenario(2)
async def test_brokers_that_are_away_for_longer_than_a_send_waits_do_not_end_the_loop(stage: Stage) -> None:
    give(stage, 1)
    async with looping(stage, max_block_ms=2000) as (loop, producer):
        is_down = False

        async def process(batch: Batch) -> None:
            nonlocal is_down
            if not is_down:
                is_down = True
                for node_id in (1, 2, 3):
                    stage.cluster.take_down(node_id)
                stage.loop.call_later(10.0, lambda: [stage.cluster.bring_up(node_id) for node_id in (1, 2, 3)])
            await copying(producer, loop, 1)(batch)  # type: ignore[misc]

        await loop.run(process)
        assert loop.committed == 1
        assert loop.aborted > 0
    assert await stage.read() == [b"1"]


def test_brokers_that_can_t_tell_a_zombie_are_refused_before_the_first_batch() -> None:
    """KIP-447 came with Kafka 2.5."""

    async def story(cluster: Cluster) -> None:
        stage = Stage(cluster, 0)
        give(stage, 1)
        batches: list[object] = []
        async with looping(stage) as (loop, _):
            with pytest.raises(UnsupportedVersion, match=r"2\.5"):
                await loop.run(batches.append)
        assert batches == []

    virtually(story, topics=TOPICS, as_version="2.4")


@scenario(2)
async def test_stop_ends_the_wait_for_records(stage: Stage) -> None:
    async with looping(stage) as (loop, producer):
        task = asyncio.create_task(loop.run(copying(producer, loop, 1)))
        await asyncio.sleep(5.0)
        with pytest.raises(UsageError, match="runs once at a time"):
            await loop.run(copying(producer, loop, 1))
        loop.stop()
        await asyncio.sleep(0.1)
        assert task.done()
        await task
        task = asyncio.create_task(loop.run(copying(producer, loop, 1)))
        await asyncio.sleep(5.0)
        await loop._consumer.stop()
        await task


@scenario(2)
async def test_what_the_loop_demands(stage: Stage) -> None:
    def made(consumer: dict[str, Any], producer: dict[str, Any]) -> None:
        options = {"group_id": "g", "isolation_level": "read_committed", "enable_auto_commit": False}
        reader: Consumer[Any, Any] = Consumer("in", **{**options, **consumer})
        writer: Producer[Any, Any] = Producer(**{"transactional_id": "id", **producer})
        TransactionalLoop(reader, writer)

    made({}, {})
    for consumer, producer, why in (
        ({"group_id": None}, {}, "a group_id"),
        ({"isolation_level": "read_uncommitted"}, {}, "read_committed"),
        ({"enable_auto_commit": True}, {}, "enable_auto_commit=False"),
        ({}, {"transactional_id": None}, "a transactional_id"),
    ):
        with pytest.raises(ConfigError, match=why):
            made(consumer, producer)


async def test_what_the_loop_is_made_of() -> None:
    consumer: Consumer[Any, Any] = Consumer(
        "in", group_id="g", isolation_level="read_committed", enable_auto_commit=False
    )
    producer: Producer[Any, Any] = Producer(transactional_id="id")
    with pytest.raises(ConfigError, match=r"TransactionalLoop\(Producer, Consumer\): give it a Consumer"):
        TransactionalLoop(producer, consumer)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="process must be a function"):
        await TransactionalLoop(consumer, producer).run(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("assigned", [False, True])
def test_a_consumer_and_a_producer_of_two_clusters_are_refused_before_the_first_batch(assigned: bool) -> None:
    """The offsets would be committed where nothing was read, and a subscription's never be."""

    async def story(read: Cluster) -> None:
        async with Cluster(topics=TOPICS, random=Random(5)) as written:
            give(Stage(read, 0), 1)
            consumer = Stage(read, 0).consumer(*([] if assigned else ["in"]), group_id="g")
            if assigned:
                consumer.assign([IN0])
            batches: list[object] = []
            async with consumer, Stage(written, 0).producer() as producer:
                with pytest.raises(ConfigError, match=r"reads from cluster .* writes to cluster") as raised:
                    await TransactionalLoop(consumer, producer).run(batches.append)
                for client in (consumer, producer):
                    assert repr(client.health().cluster_id) in str(raised.value)
                assert batches == []
                # Who repairs the producer goes on with the same consumer, and misses nothing.
                async with Stage(read, 0).producer() as right:
                    loop = TransactionalLoop(consumer, right)
                    asyncio.get_running_loop().call_later(60, loop.stop)
                    await loop.run(copying(right, loop, 1))
            assert await Stage(read, 0).read() == [b"1"]

    virtually(story, topics=TOPICS)


@scenario()
async def test_a_cluster_that_tells_no_id_is_taken_for_the_other_one(stage: Stage) -> None:
    async def without_id(exchange: Exchange) -> Any:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        response.cluster_id = None
        return response

    give(stage, 1)
    stage.cluster.intercept(MetadataRequest, without_id, where=lambda exchange: exchange.client_id == "anonymous")
    async with looping(stage, client_id="anonymous") as (loop, producer):
        await loop.run(copying(producer, loop, 1))
        assert producer.health().cluster_id is None
    assert await stage.read() == [b"1"]


def test_a_transaction_that_may_outlive_its_session_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    consumer: Consumer[Any, Any] = Consumer(
        "in", group_id="g", isolation_level="read_committed", enable_auto_commit=False, session_timeout_ms=30_000
    )
    with caplog.at_level(logging.WARNING):
        TransactionalLoop(consumer, Producer(transactional_id="id", transaction_timeout_ms=29_999))
        assert not caplog.messages
        TransactionalLoop(consumer, Producer(transactional_id="id", transaction_timeout_ms=30_000))
        assert "is not below session_timeout_ms=30000" in caplog.messages[0]
        caplog.clear()
        consumer = Consumer(
            "in", group_id="g", isolation_level="read_committed", enable_auto_commit=False, group_protocol="consumer"
        )
        TransactionalLoop(consumer, Producer(transactional_id="id", transaction_timeout_ms=60_000))
        assert not caplog.messages, "only the brokers know how long a session is"


@scenario()
async def test_a_rebalance_waits_for_the_end_of_the_transaction(stage: Stage) -> None:
    """The partition that goes to a second member goes with all of its batch committed."""
    give(stage, *range(1, 11))
    stage.cluster.append("in", *(b"%d" % number for number in range(11, 21)), partition=1)
    async with looping(stage) as (loop, producer), stage.consumer("in", group_id="g") as second:
        copy = copying(producer, loop, 99)
        joining: list[asyncio.Task[Any]] = []
        begun = asyncio.Event()

        async def process(batch: Batch) -> None:
            await copy(batch)  # type: ignore[misc]
            if not joining:
                joining.append(asyncio.create_task(second.wait_assigned()))
                begun.set()
            await asyncio.sleep(5.0)

        task = asyncio.create_task(loop.run(process))
        await begun.wait()
        (assigned,) = await joining[0]
        assert loop.aborted == 0
        assert await second.position(assigned) == 10
        loop.stop()
        await task
    assert sorted(await stage.read(), key=lambda value: int(value or b"0")) == [b"%d" % one for one in range(1, 21)]
    assert await stage.committed() == {IN0: 10, TopicPartition("in", 1): 10}


@scenario()
async def test_a_process_that_yields_commits_nothing(stage: Stage) -> None:
    """Its body would not run, and the offsets be committed as if it had."""

    def makes(batch: Batch) -> Any:
        yield batch

    async def makes_later(batch: Batch) -> Any:
        yield batch

    give(stage, 1)
    for process in (makes, makes_later):
        async with looping(stage) as (loop, _):
            with pytest.raises(ConfigError, match="must not yield"):
                await loop.run(process)
    assert await stage.committed() == {}
