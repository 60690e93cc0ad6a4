"""getone() and the iterator between two polls: they hand out each record of a run once, keep positions exact, and end
the run whenever anything else happens.
"""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.aio import time_slice
from aiokc.client.consumer.record_stream import LEAST_AHEAD
from aiokc.errors import ConcurrentCall
from aiokc.testing import Cluster

from ..virtually import virtually

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
        before = consumer._poll.steps.items
        record = await consumer.getone()
        if consumer._poll.steps.items is before:
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
        assert consumer._runtime.fetcher._buffer.of(ZERO) is consumer._runtime.fetcher._buffer.of(ONE) is None


async def test_what_follows_counts_as_processed_what_came_before() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster, group_id="g") as consumer:
        tp = await in_a_run(consumer)
        position = consumer._runtime.subscription[tp]
        assert position.held
        assert (position.processed_position, position.position) == (position.position - 1, position.position)
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


@pytest.mark.usefixtures("endless_slices")
async def test_a_pause_ends_the_run_and_nothing_is_lost() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster) as consumer:
        tp = await in_a_run(consumer)
        position = consumer._runtime.subscription[tp].position
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


@pytest.mark.usefixtures("endless_slices")
async def test_a_run_is_for_the_task_of_its_poll() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster) as consumer:
        tp = await in_a_run(consumer)
        run = consumer._poll.steps.items
        other = await asyncio.create_task(consumer.getone())
        assert consumer._poll.steps.items is not run, "the other task has polled"
        assert next(run, None) is None
        assert TopicPartition(other.topic, other.partition) in (ZERO, ONE)
        got = {tp: [] for tp in (ZERO, ONE)}  # type: dict[TopicPartition, list[int]]
        while sum(map(len, got.values())) < 20:
            record = await consumer.getone()
            got[TopicPartition(record.topic, record.partition)].append(record.offset)
        assert all(offsets == list(range(offsets[0], offsets[0] + len(offsets))) for offsets in got.values() if offsets)
        assert tp in got


@pytest.mark.parametrize("way", ["getone", "iterator"])
async def test_other_tasks_run_within_milliseconds(way: str) -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster, 300) as consumer:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        iterator = aiter(consumer)
        time = asyncio.get_running_loop().time
        seen = in_a_row = longest = 0
        for _ in range(400):
            began = time()
            await (consumer.getone() if way == "getone" else anext(iterator))
            in_a_row = in_a_row + 1 if turns == seen else 0
            seen, longest = turns, max(longest, in_a_row)
            while time() < began + 1e-4:
                pass  # so that no more than ten of them are 1 ms
        task.cancel()
        assert 0 < longest <= 11, "there were no runs, or nobody else has had a turn"


def test_no_more_is_decoded_ahead_than_a_slow_user_takes() -> None:
    """A slow application uses up the time slice with the first record, and the next record is another partition's.

    What has been decoded ahead stays decoded. The clock is virtual: only the application takes time, not the machine.
    """

    async def story(cluster: Cluster) -> None:
        for partition in (0, 1):
            cluster.append("t", *[b"v"] * 5000, partition=partition)
        async with await reading(cluster, 0) as consumer:

            async def ahead_after(records: int, *, seconds: float) -> int:
                for _ in range(records):
                    await consumer.getone()
                    await asyncio.sleep(seconds)
                buffers = [consumer._runtime.fetcher._buffer.of(tp) for tp in (ZERO, ONE)]
                return max(len(buffer.ready) for buffer in buffers if buffer is not None)

            assert max([await ahead_after(1, seconds=0.0) for _ in range(1_000)]) > 100
            slow = 2 * time_slice.SLICE_SECONDS
            await ahead_after(4_000, seconds=slow)  # what was decoded ahead by then is handed out in time
            assert await ahead_after(1, seconds=slow) <= LEAST_AHEAD

    virtually(story, topics={"t": 2}, brokers=1)


async def test_stop_ends_the_iteration_at_once() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        consumer = await reading(cluster)
        await consumer.start()
        await in_a_run(consumer)
        await consumer.stop()
        assert [record async for record in consumer] == []


async def test_the_loop_goes_on_with_the_same_iterator_and_with_others() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster) as consumer:
        consumer.pause(ONE)
        iterator, offsets = aiter(consumer), []
        async for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 10:
                break
        offsets += [(await anext(iterator)).offset, (await anext(consumer)).offset, (await consumer.getone()).offset]
        async for record in iterator:
            offsets.append(record.offset)
            if len(offsets) == 100:
                break
        waiting = asyncio.ensure_future(anext(iterator))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentCall):
            await anext(iterator)
        with pytest.raises(ConcurrentCall):
            async for _ in consumer:
                pass
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        cluster.append("t", b"one more", b"and another")
        offsets += [(await anext(iterator)).offset, (await anext(consumer)).offset]
        assert offsets == list(range(102))


@pytest.mark.usefixtures("endless_slices")
async def test_a_step_that_is_cancelled_before_it_begins_takes_nothing() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster) as consumer:
        consumer.pause(ONE)
        tp = await in_a_run(consumer)
        position = await consumer.position(tp)
        for step in (anext(consumer), anext(aiter(consumer)), consumer.getone()):
            task = asyncio.ensure_future(step)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        assert await consumer.position(tp) == position
        record = await anext(consumer)
        assert record.offset == position


async def test_metrics_between_two_records_count_all_that_were_handed_out() -> None:
    async with Cluster(topics={"t": 2}) as cluster, await reading(cluster) as consumer:
        count = 0
        async for _ in consumer:
            count += 1
            metrics = consumer.metrics()
            assert (metrics.records, metrics.polls) == (count, count)
            assert sum(lag or 0 for lag in metrics.lag.values()) == 200 - count
            if count == 150:
                break


@pytest.mark.usefixtures("endless_slices")
@pytest.mark.parametrize("who", ["the task that polled", "another one"])
async def test_a_block_that_ends_commits_the_record_of_its_own_task_only(who: str) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", *[b"%d" % number for number in range(100)])
        async with Consumer(
            "t", bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            await in_a_run(consumer)
            taken = await (asyncio.create_task(consumer.__anext__()) if who == "another one" else anext(consumer))
        assert cluster.committed("g") == {ZERO: taken.offset + (0 if who == "another one" else 1)}
