"""Batches that the application holds: over polls, seeks, revocations and the end of the consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokc import Consumer, RawRecords, TopicPartition
from aiokc.core.fetch.partition.frame_memory import Frame
from aiokc.records import Codec, NewRecord
from aiokc.wire import FrameBuffers

from ..stage import T0, T1, Stage, play

COUNT = 400


def fill(stage: Stage, codec: int) -> None:
    for tp in (T0, T1):
        for start in range(0, COUNT, 10):
            values = [NewRecord(b"%d" % number * 200, b"%d" % number) for number in range(start, start + 10)]
            stage.cluster.append("t", *values, partition=tp.partition, codec=codec)


def reader(stage: Stage, **options: Any) -> Consumer:
    return Consumer(
        bootstrap_servers=stage.cluster.bootstrap, auto_offset_reset="earliest", max_poll_records=37, **options
    )


def check(batch: RawRecords, expected: dict[TopicPartition, list[int]]) -> None:
    assert {tp: [record.offset for record in records] for tp, records in batch.items()} == expected
    for records in batch.values():
        assert all(record.value == b"%d" % record.offset * 200 for record in records)
        assert all(record.key == b"%d" % record.offset for record in records)


async def poll_again(consumer: Consumer) -> None:
    for _ in range(5):
        await consumer.getmany()


async def poll_columns(consumer: Consumer) -> None:
    await consumer.getmany_columns()


async def poll_one(consumer: Consumer) -> None:
    for _ in range(50):
        await consumer.getone()


async def poll_in_vain(consumer: Consumer) -> None:
    consumer.pause(T0, T1)
    assert await consumer.getmany(timeout_ms=50) == {}


async def seek(consumer: Consumer) -> None:
    consumer.seek(T0, 3)
    consumer.seek(T1, 3)
    batch = await consumer.getmany()
    assert {records[0].offset for records in batch.values()} == {3}


async def assign_another(consumer: Consumer) -> None:
    consumer.assign([T1])
    await consumer.getmany()


async def unsubscribe(consumer: Consumer) -> None:
    consumer.unsubscribe()
    await asyncio.sleep(1)


async def stop(consumer: Consumer) -> None:
    await consumer.stop()


async def nothing(consumer: Consumer) -> None:
    await asyncio.sleep(1)


EVENTS = [poll_again, poll_columns, poll_one, poll_in_vain, seek, assign_another, unsubscribe, stop, nothing]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4], ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_a_batch_that_is_held(event: Callable[[Consumer], Awaitable[None]], codec: Codec) -> None:
    """Given a batch that the application holds, an iteration of it that is half done, and single records, then all of
    them are the same after other polls, a seek, a revocation or stop(), and when the bytes that came are overwritten.
    """

    async def story(stage: Stage) -> None:
        fill(stage, codec)
        frames = Frames()
        async with reader(stage) as consumer:
            consumer.assign([T0, T1])
            frames.watch(consumer)
            held: list[tuple[RawRecords, dict[TopicPartition, list[int]]]] = []
            halves: list[tuple[list[Any], list[Any], Any]] = []
            for _ in range(4):
                batch = await consumer.getmany()
                held.append((batch, {tp: [record.offset for record in records] for tp, records in batch.items()}))
                for records in batch.values():
                    iterator = iter(records)
                    first = [next(iterator) for _ in range(5)]
                    halves.append((list(records), first, iterator))
            await event(consumer)
        assert frames.seen
        frames.overwrite()
        for batch, expected in held:
            check(batch, expected)
        for whole, first, iterator in halves:
            assert first + list(iterator) == whole

    play(story)


class Frames:
    """All buffers of frames that a consumer has received."""

    def __init__(self) -> None:
        self.seen: dict[int, bytearray] = {}

    def watch(self, consumer: Consumer) -> None:
        memory = consumer._runtime.fetcher._buffer._memory
        begin = memory._begin

        def begins(view: memoryview, buffers: FrameBuffers | None) -> Frame:
            if isinstance(view.obj, bytearray):
                self.seen[id(view.obj)] = view.obj
            return begin(view, buffers)

        memory._begin = begins  # type: ignore[method-assign]

    def overwrite(self) -> None:
        for frame in self.seen.values():
            frame[:] = bytes(len(frame))
