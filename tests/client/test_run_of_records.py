"""getone() and the iterator between two polls: each record once, positions exact, and whatever happens ends the run."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.testing import Cluster

pytestmark = pytest.mark.timeout(60)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


async def reading(cluster: Cluster, count: int = 100, **options: object) -> Consumer:
    for partition in (0, 1):
        for number in range(count):
            cluster.append("t", b"%d" % number, partition=partition)
    consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)  # type: ignore[arg-type]
    consumer.assign([ZERO, ONE])
    return consumer


async def in_a_run(consumer: Consumer) -> TopicPartition:
    """Hand out records until one came without a poll, and return its partition."""
    while True:
        before = consumer._poll.run.records
        record = await consumer.getone()
        if consumer._poll.run.records is before:
            return TopicPartition(record.topic, record.partition)


async def test_each_record_once_in_order_and_positions_are_exact() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster, 1500) as consumer:
        offsets: dict[int, list[int]] = {0: [], 1: []}
        while sum(map(len, offsets.values())) < 3000:
            record = await consumer.getone()
            offsets[record.partition].append(record.offset)
            assert await consumer.position(TopicPartition("t", record.partition)) == record.offset + 1
        assert offsets == {0: list(range(1500)), 1: list(range(1500))}
        metrics = consumer.metrics()
        assert metrics.records == 3000
        assert await consumer.getmany(timeout_ms=0) == {}
        assert consumer._reading.fetcher._buffer.holds(ZERO) is consumer._reading.fetcher._buffer.holds(ONE) is False


async def test_what_follows_counts_as_processed_what_came_before() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster, group_id="g") as consumer:
        tp = await in_a_run(consumer)
        position = consumer._reading.subscription[tp]
        assert position.held
        assert (position.released, position.position) == (position.position - 1, position.position)
        await consumer.commit()
        committed = (await consumer.committed(tp))[tp]
        assert committed is not None
        assert committed.offset == position.position


async def test_a_seek_ends_the_run() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster) as consumer:
        tp = await in_a_run(consumer)
        other = ONE if tp == ZERO else ZERO
        consumer.pause(other)
        consumer.seek(tp, 50)
        assert [(await consumer.getone()).offset for _ in range(3)] == [50, 51, 52]


async def test_a_seek_ends_a_run_that_has_only_begun() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster) as consumer:
        consumer.pause(ONE)
        assert (await consumer.getone()).offset == 0
        consumer.seek(ZERO, 50)
        assert (await consumer.getone()).offset == 50


async def test_a_pause_ends_the_run_and_nothing_is_lost() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster) as consumer:
        tp = await in_a_run(consumer)
        position = consumer._reading.subscription[tp].position
        consumer.pause(tp)
        for _ in range(5):
            assert (await consumer.getone()).partition != tp.partition
        consumer.resume(tp)
        (records,) = (await consumer.getmany(tp)).values()
        assert [record.offset for record in records] == list(range(position, 100))


async def test_getmany_goes_on_behind_the_run() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster) as consumer:
        seen = {ZERO: 0, ONE: 0}
        for _ in range(7):
            record = await consumer.getone()
            seen[TopicPartition(record.topic, record.partition)] += 1
        for tp in (ZERO, ONE):
            (records,) = (await consumer.getmany(tp)).values()
            assert [record.offset for record in records] == list(range(seen[tp], 100))


async def test_a_run_is_for_the_task_of_its_poll() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster) as consumer:
        tp = await in_a_run(consumer)
        run = consumer._poll.run.records
        other = await asyncio.create_task(consumer.getone())
        assert consumer._poll.run.records is not run, "the other task has polled"
        assert next(run, None) is None
        assert TopicPartition(other.topic, other.partition) in (ZERO, ONE)
        got = {tp: [] for tp in (ZERO, ONE)}  # type: dict[TopicPartition, list[int]]
        while sum(map(len, got.values())) < 20:
            record = await consumer.getone()
            got[TopicPartition(record.topic, record.partition)].append(record.offset)
        assert all(offsets == list(range(offsets[0], offsets[0] + len(offsets))) for offsets in got.values() if offsets)
        assert tp in got


async def test_others_have_their_turn_within_milliseconds() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster, 2000) as consumer:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        await consumer.getone()
        task = asyncio.create_task(others())
        began = time.thread_time()  # what else runs on the machine has no part in it
        seen = had_turns = 0
        while time.thread_time() - began < 0.05:
            await consumer.getone()
            had_turns += turns != seen
            seen = turns
        task.cancel()
        assert had_turns >= 3, "nobody else has had a turn"


async def test_stop_ends_the_iteration_at_once() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        consumer = await reading(cluster)
        await consumer.start()
        await in_a_run(consumer)
        await consumer.stop()
        assert [record async for record in consumer] == []
