"""Calls that still wait when their transaction ends, or come after it, do nothing to the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from aiokc import ErrorCode, GroupMetadata, TransactionalLoop
from aiokc.client.aio.signal import Signal
from aiokc.errors import MetadataMissing, TransactionAborted, UsageError
from aiokc.serialization.serializer import AsyncSerializer
from aiokc.testing import ApiKey
from aiokc.types import ConsumerRecords

from .on_stage import IN0, IN1, Stage, scenario

GROUP = GroupMetadata("g")


class Registry:
    """Serializers ask it for a schema. It answers for ``held`` once that is let go of, and for all others at once."""

    def __init__(self) -> None:
        self.held: bytes | None = None
        self.asked = Signal()
        self._opened = asyncio.Event()

    def let_go(self) -> None:
        self._opened.set()

    async def serialize(self, value: bytes) -> bytes:
        if value == self.held:
            self.held = None  # the next call for it is quick
            self.asked.notify()
            await self._opened.wait()
        return value


@scenario()
async def test_a_send_that_waits_for_its_serializer_does_not_join_the_next_transaction(stage: Stage) -> None:
    registry = Registry()
    async with stage.producer(value_serializer=AsyncSerializer(registry.serialize)) as producer:
        registry.held = b"a"
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send_and_wait("out", b"before", partition=0)
                stray = asyncio.create_task(producer.send("out", b"a", partition=0))
                await registry.asked.wait()
                raise KeyError
        async with producer.transaction():
            await producer.send_and_wait("out", b"b", partition=0)
            registry.let_go()
            with pytest.raises(TransactionAborted, match="out: the transaction in which the record was sent has ended"):
                await stray
            await producer.send("out", b"a", partition=0)
    assert await stage.read() == [b"b", b"a"]


@scenario()
async def test_a_batch_that_is_processed_again_leaves_nothing_of_its_first_attempt(stage: Stage) -> None:
    """gather() cancels nothing: one send() fails, and another one still waits when the batch comes again."""
    stage.cluster.append("in", b"a", b"b", partition=0)
    registry, attempts = Registry(), 0
    registry.held = b"a"
    strays: list[asyncio.Task[None]] = []
    consumer = stage.consumer("in", group_id="g")
    async with consumer, stage.producer(value_serializer=AsyncSerializer(registry.serialize)) as producer:
        loop = TransactionalLoop(consumer, producer)

        async def one(value: bytes | None) -> None:
            assert value is not None
            await (await producer.send("out", value, partition=0))

        async def process(batch: ConsumerRecords[Any, Any]) -> None:
            nonlocal attempts
            attempts += 1
            tasks = [asyncio.create_task(one(record.value)) for records in batch.values() for record in records]
            if attempts == 1:
                stage.cluster.intercept(ApiKey.PRODUCE, ErrorCode.TRANSACTION_ABORTABLE, times=1)
                strays.append(tasks[0])
            await asyncio.gather(*tasks[1:], *tasks[:1])
            registry.let_go()
            await asyncio.wait(strays)
            loop.stop()

        await loop.run(process)
        assert attempts == 2
    assert isinstance(strays[0].exception(), TransactionAborted)
    assert sorted(value for value in await stage.read() if value) == [b"a", b"b"]
    assert await stage.committed() == {IN0: 2}


@scenario(auto_create_topics_enable=False)
async def test_a_send_that_fails_after_its_block_was_aborted_does_not_fail_the_next_one(stage: Stage) -> None:
    async with stage.producer(max_block_ms=3_000) as producer:
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send_and_wait("out", b"1", partition=0)
                stray = asyncio.create_task(producer.send("not-there", b"x"))
                await asyncio.sleep(1.0)
                raise KeyError
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
            with pytest.raises(MetadataMissing):
                await stray
    assert await stage.read() == [b"2"]


@scenario(auto_create_topics_enable=False)
async def test_a_send_that_waits_for_metadata_does_not_join_the_next_transaction(stage: Stage) -> None:
    async with stage.producer() as producer:
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send_and_wait("out", b"1", partition=0)
                calls = producer.send("out", b"x", partition=2), producer.send_many("new", [b"x"])
                strays = asyncio.gather(*calls, return_exceptions=True)
                await asyncio.sleep(1.0)
                raise KeyError
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
            stage.cluster.add_partitions("out", 3)
            stage.cluster.create_topic("new", 1)
            assert [type(error) for error in await strays] == [TransactionAborted] * 2
    assert await stage.read() == [b"2"]
    assert stage.cluster.end_offset("new", 0) == 0


@scenario()
async def test_the_rest_of_a_send_many_does_not_join_the_next_transaction(stage: Stage) -> None:
    """It gives way between two chunks of records; there an abort and the next begin fit in."""
    async with stage.producer(linger_ms=60_000) as producer:
        ended = asyncio.Event()

        async def end(stray: asyncio.Task[Any]) -> None:
            await producer.abort_transaction()
            await producer.begin_transaction()
            ended.set()

        def records() -> Iterator[bytes]:
            yield b"first"
            ending.append(asyncio.create_task(end(stray)))
            while not ended.is_set():  # another chunk each time that others may run
                yield b"x"
            yield b"last"

        ending: list[asyncio.Task[None]] = []
        await producer.begin_transaction()
        stray = asyncio.create_task(producer.send_many("out", records()))
        with pytest.raises((TransactionAborted, UsageError)):
            await stray
        await ending[0]
        await producer.send("out", b"2", partition=0)
        await producer.commit_transaction()
    assert await stage.read() == [b"2"]


@scenario()
async def test_a_send_that_lets_others_run_does_not_join_the_next_transaction(stage: Stage) -> None:
    """A task that calls again and again, and never has to wait, gives way before one of its sends."""
    async with stage.producer(linger_ms=60_000) as producer:

        async def send() -> None:
            for _ in range(1_000):
                await producer.send("out", b"x", partition=0)

        async def end() -> None:
            await producer.abort_transaction()
            await producer.begin_transaction()

        await producer.partitions_for("out")
        await producer.begin_transaction()
        sending, ending = asyncio.create_task(send()), asyncio.create_task(end())
        with pytest.raises((TransactionAborted, UsageError)):
            await sending
        await ending
        await producer.send("out", b"2", partition=0)
        await producer.commit_transaction()
    assert await stage.read() == [b"2"]


@scenario()
async def test_offsets_of_a_block_that_has_ended_are_not_committed_by_the_next_one(stage: Stage) -> None:
    """One of several tasks that process a batch comes to its offsets when the results were aborted."""
    async with stage.producer() as producer:
        with pytest.raises(KeyError):
            async with producer.transaction() as first:
                await producer.send_and_wait("out", b"1", partition=0)
                raise KeyError
        with pytest.raises(UsageError):
            await first.send_offsets({IN0: 5}, GROUP)
        later = producer.transaction()
        async with producer.transaction() as second:
            for other in (first, later):
                with pytest.raises(UsageError, match="the block of this transaction is not open"):
                    await other.send_offsets({IN0: 5}, GROUP)
            await second.send_offsets({IN1: 1}, GROUP)
            await producer.send("out", b"2", partition=0)
    assert await stage.read() == [b"2"]
    assert await stage.committed() == {IN1: 1}
