"""What is copied of large frames, because the application holds it or does not read it, is copied in steps.

Other tasks run between any two of them.
"""

from __future__ import annotations

import asyncio
import sysconfig
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from aiokc import Client, Consumer, ConsumerRecord, TopicPartition
from aiokc.core.fetch.partition import frame_memory
from aiokc.core.fetch.partition.frame_memory import FrameMemory
from aiokc.records import NATIVE, NewRecord

from ..stage import Stage, play

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(
        not NATIVE or bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="only the spans in C refer to a frame"
    ),
]

PARTITIONS = [TopicPartition("many", partition) for partition in range(40)]
COUNT = 10


def fill(stage: Stage) -> None:
    for tp in PARTITIONS:
        values = [NewRecord(b"%d" % number * 30) for number in range(COUNT)]
        stage.cluster.append("many", *values, partition=tp.partition)


class Steps:
    """How many spans were copied in each iteration of the loop. One step copies one span."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spans: list[Any] = []
        self.copied: Counter[int] = Counter()
        settle = FrameMemory.settle

        def counted(memory: FrameMemory) -> bool:
            before = self.detached
            result = settle(memory)
            self.copied[stage.loop.rounds] += self.detached - before
            return result

        monkeypatch.setattr(frame_memory, "_COPIED_AT_ONCE", 1)
        monkeypatch.setattr(FrameMemory, "settle", counted)

    @property
    def detached(self) -> int:
        return sum(span.is_detached for span in self.spans)

    def hold(self, records: Iterable[Any]) -> None:
        """``records``: sequences of records, of one partition each."""
        self.spans += [span for each in records for span in each.parts]

    def check(self, most: int = 1) -> None:
        assert self.detached == len(self.spans) > 0
        assert max(self.copied.values()) <= most


def check(batch: Mapping[TopicPartition, Sequence[ConsumerRecord[bytes | None, bytes | None]]]) -> None:
    for records in batch.values():
        assert [record.value for record in records] == [b"%d" % number * 30 for number in range(COUNT)]


async def poll(consumer: Consumer) -> None:
    assert await consumer.getmany(timeout_ms=0) == {}


async def poll_columns(consumer: Consumer) -> None:
    assert not await consumer.getmany_columns(timeout_ms=0)


async def wait_assigned(consumer: Consumer) -> None:
    await consumer.wait_assigned(timeout_ms=1000)


async def stop(consumer: Consumer) -> None:
    await consumer.stop()


@pytest.mark.parametrize("event", [poll, poll_columns, wait_assigned, stop], ids=lambda event: event.__name__)
def test_a_large_batch_is_held(event: Callable[[Consumer], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        fill(stage)
        steps = Steps(stage, monkeypatch)
        async with stage.consumer() as consumer:
            consumer.assign(PARTITIONS)
            await consumer._runtime.fetcher.arrived.wait()
            batch = await consumer.getmany()
            steps.hold(batch.values())
            assert len(steps.spans) == len(PARTITIONS)
            await event(consumer)
            steps.check()
        check(batch)

    play(story, topics={"many": len(PARTITIONS)})


def test_there_is_no_room_to_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application works on a batch for long, and the buffer is full of it: it is copied until there is room again.

    Step by step: the fetcher plans anew after each.
    """

    async def story(stage: Stage) -> None:
        fill(stage)
        steps = Steps(stage, monkeypatch)
        async with stage.consumer(fetch_buffer_bytes=20_000, max_partition_fetch_bytes=500) as consumer:
            consumer.assign(PARTITIONS)
            fetcher = consumer._runtime.fetcher

            def reads_ahead() -> bool:
                return fetcher._planner._reading_ahead

            await consumer.wait_assigned()
            async with asyncio.timeout(10):
                while reads_ahead():
                    await fetcher.arrived.wait()
            batch = await consumer.getmany()
            steps.hold(batch.values())
            assert steps.detached < 5
            await asyncio.sleep(1)
            assert reads_ahead()
            assert max(steps.copied.values()) <= 2, "of the call that hands out, and of the fetcher"
            assert steps.detached > 10
        check(batch)

    play(story, topics={"many": len(PARTITIONS)})


def test_a_large_batch_of_a_range_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        fill(stage)
        steps = Steps(stage, monkeypatch)
        held = []
        async with Client(bootstrap_servers=stage.cluster.bootstrap) as client:
            async for part in client.read(dict.fromkeys(PARTITIONS, (0, COUNT))):
                held.append(part)
                steps.hold([part.records])
        steps.check()
        check({part.partition: part.records for part in held})

    play(story, topics={"many": len(PARTITIONS)})


def test_much_is_left_of_an_old_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that are paused do not keep the frame in which their records came with those of all others."""

    async def story(stage: Stage) -> None:
        rounds: list[int] = []
        replace = FrameMemory.replace

        def counted(memory: FrameMemory) -> None:
            if memory.is_replacing:
                rounds.append(stage.loop.rounds)
            replace(memory)

        monkeypatch.setattr(frame_memory, "_COPIED_AT_ONCE", 1)
        monkeypatch.setattr(FrameMemory, "replace", counted)
        fill(stage)
        paused = PARTITIONS[:5]
        async with stage.consumer() as consumer:
            consumer.assign(PARTITIONS)
            await consumer._runtime.fetcher.arrived.wait()
            consumer.pause(*paused)
            assert len(await consumer.getmany()) == len(PARTITIONS) - len(paused)
            for number in range(3):
                stage.cluster.append("many", b"%d" % number, partition=PARTITIONS[-1].partition)
                assert list(await consumer.getmany()) == [PARTITIONS[-1]]
            assert len(rounds) == len(set(rounds)) == len(paused)
            sizes = [frame.size for frame in consumer._runtime.fetcher._buffer._memory._frames.values()]
            assert len(sizes) == len(paused) + 1, "the copies, and the last frame that came"
            consumer.resume(*paused)
            check(await consumer.getmany())

    play(story, topics={"many": len(PARTITIONS)})
