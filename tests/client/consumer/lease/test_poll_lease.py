"""getmany() under a lease, between two polls: it takes records without a look, and whatever a poll would see ends that.

Time is virtual, and a time slice lasts for ever unless a test says otherwise: so only the event itself ends the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from aiokc import Consumer, ConsumerInterceptor, Observer, RebalanceListener, TopicPartition
from aiokc.client.aio import time_slice
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.errors import AuthorizationFailed, ConcurrentCall, ConfigError, ConsumerClosed, RecordError, UsageError
from aiokc.testing import Cluster
from aiokc.wire.messages.fetch import FetchRequest

from ..errors.refused_fetches import refuse_the_second
from .reading import ONE, ZERO, alone, polls, reading, under_a_lease

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("endless_slices")]


class Seen:
    """The offsets that came, of each partition."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, list[int]] = {ZERO: [], ONE: []}
        self.last: set[TopicPartition] = set()  # the partitions of the last batch

    def add(self, batch: Mapping[TopicPartition, Sequence[Any]]) -> None:
        self.last = set(batch)
        for tp, records in batch.items():
            self.offsets[tp] += [record.offset for record in records]

    @property
    def count(self) -> int:
        return sum(map(len, self.offsets.values()))

    async def until_an_error(self, consumer: ConsumerType) -> None:
        while True:
            self.add(await consumer.getmany())

    @property
    def all_are_in_order(self) -> bool:
        return all(offsets == list(range(len(offsets))) for offsets in self.offsets.values())


def test_each_record_once_and_in_order_and_partitions_take_turns() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            seen, leases, turns = Seen(), 0, []
            while seen.count < 2000:
                before = consumer._runtime.changes.count
                batch = await consumer.getmany()
                leases += consumer._runtime.changes.count == before
                seen.add(batch)
                turns.append(next(iter(batch)))
                for tp, records in batch.items():
                    assert await consumer.position(tp) == records[-1].offset + 1
                    assert batch.next_offsets[tp].offset == records[-1].offset + 1
            assert seen.all_are_in_order
            assert leases > 380
            assert turns[10:380:2] == [turns[10]] * 185, "each partition has every other call"
            assert await consumer.getmany(timeout_ms=0) == {}

    alone(story)


def test_several_partitions_fill_one_call() -> None:
    """The one in turn has too few records for it, as where partitions are many."""

    async def story(cluster: Cluster) -> None:
        async with reading(cluster, 7, range(5)) as consumer:
            found: dict[TopicPartition, list[int]] = {}
            leases = 0
            while sum(map(len, found.values())) < 35:
                before = consumer._runtime.changes.count
                batch = await consumer.getmany(max_records=8)
                if consumer._runtime.changes.count == before:
                    leases += 1
                    left = 35 - sum(map(len, found.values()))
                    assert len(batch) > 1 or left < 8
                    assert sum(map(len, batch.values())) == min(left, 8)
                for tp, records in batch.items():
                    found.setdefault(tp, []).extend(record.offset for record in records)
                    assert await consumer.position(tp) == records[-1].offset + 1
                    assert batch.next_offsets[tp].offset == records[-1].offset + 1
            assert found == {TopicPartition("t", number): list(range(7)) for number in range(5)}
            assert leases > 0
            assert await consumer.getmany(timeout_ms=0) == {}

    alone(story, partitions=5)


def test_what_earlier_calls_returned_is_processed() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            consumer.pause(ONE)
            await under_a_lease(consumer)
            await under_a_lease(consumer)
            position = consumer._runtime.subscription[ZERO]
            assert position.held
            assert position.processed_position == position.position - 5

    alone(story)


def test_metrics_count_calls_records_and_time() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            await under_a_lease(consumer)
            before = consumer.metrics()
            for _ in range(4):
                await asyncio.sleep(0.25)
                await under_a_lease(consumer)
            after = consumer.metrics()
            assert after.polls - before.polls == 4
            assert after.records - before.records == 20
            assert after.user_ms - before.user_ms == pytest.approx(1000, abs=1)
            assert after.poll_wait_ms == pytest.approx(before.poll_wait_ms, abs=1)
            assert consumer.health().last_poll_age_ms == pytest.approx(0, abs=1)
            await asyncio.sleep(0.25)
            assert consumer.health().last_poll_age_ms == pytest.approx(250, abs=1)

    alone(story)


def test_it_ends_with_the_time_slice_so_that_others_run_and_the_group_hears_of_polls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: Cluster) -> None:
        monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.001)
        async with reading(cluster, group_id="g") as consumer:
            await under_a_lease(consumer)
            loop, clock = asyncio.get_running_loop(), consumer._runtime.membership._polls  # type: ignore[union-attr]
            turns = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(others())
            seen = leases = 0
            for _ in range(100):
                before = consumer._runtime.changes.count
                await consumer.getmany()
                leases += consumer._runtime.changes.count == before
                assert loop.time() - clock.last <= 0.001 + 1e-9
                seen = max(seen, turns)
                loop._now += 0.0003  # type: ignore[attr-defined]  # the application's own time with the batch
            task.cancel()
            assert leases > 50
            assert seen > 20

    alone(story)


# What ends it


def test_a_seek() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            consumer.pause(ONE)
            await under_a_lease(consumer)
            consumer.seek(ZERO, 900)
            (records,) = (await consumer.getmany()).values()
            assert records[0].offset == 900

    alone(story)


def test_pause_and_resume() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            await under_a_lease(consumer)
            consumer.pause(ZERO)
            assert await polls(consumer)
            for _ in range(5):
                assert set(await consumer.getmany()) == {ONE}
            consumer.resume(ZERO)
            assert await polls(consumer)
            assert {tp for _ in range(2) for tp in await consumer.getmany()} == {ZERO, ONE}
            consumer.pause(ZERO, ONE)
            assert await consumer.getmany(timeout_ms=0) == {}

    alone(story)


@pytest.mark.parametrize("kept", [{ONE}, set()])
def test_another_assignment(kept: set[TopicPartition]) -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            await under_a_lease(consumer)
            consumer.assign(kept)
            if kept:
                assert set(await consumer.getmany()) == kept
            else:
                with pytest.raises(UsageError, match="nothing to read"):
                    await consumer.getmany()

    alone(story)


def test_a_rebalance() -> None:
    class Noting(RebalanceListener):
        def __init__(self) -> None:
            self.revoked: list[TopicPartition] = []

        def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            self.revoked += partitions

    async def story(cluster: Cluster) -> None:
        options: Any = {"bootstrap_servers": cluster.bootstrap, "group_id": "g", "auto_offset_reset": "earliest"}
        for partition in (0, 1):
            cluster.append("t", *(b"%d" % number for number in range(5000)), partition=partition)
        listener = Noting()
        async with Consumer("t", listener=listener, max_poll_records=5, **options) as first:
            await under_a_lease(first)
            async with Consumer("t", **options) as second:
                waiting = asyncio.create_task(second.wait_assigned())
                offsets: dict[TopicPartition, int] = {}
                while not waiting.done():
                    offsets |= {tp: end.offset for tp, end in (await first.getmany()).next_offsets.items()}
                    await asyncio.sleep(0.01)
                assert listener.revoked
                assert len(first.assignment()) == len(await waiting) == 1
                for tp, offset in offsets.items():
                    if tp in await waiting:
                        assert await second.position(tp) == offset, "what was returned was committed, and no less"

    alone(story)


def test_an_error_of_the_listener() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            await under_a_lease(consumer)
            consumer._runtime.listener.keep("on_partitions_assigned()", ValueError("no seek"))
            with pytest.raises(ValueError, match="no seek"):
                await consumer.getmany()

    alone(story)


def test_a_callback_of_a_commit() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster, group_id="g") as consumer:
            await under_a_lease(consumer)
            told: list[Any] = []
            consumer.commit_soon(on_done=lambda offsets, error: told.append(error))
            await asyncio.sleep(1.0)
            assert told == [], "the next call of the application runs it"
            await consumer.getmany()
            assert told == [None]

    alone(story)


def test_an_error_that_is_held_back() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(FetchRequest, refuse_the_second)
        async with reading(cluster) as consumer:
            seen = Seen()
            with pytest.raises(AuthorizationFailed):
                await seen.until_an_error(consumer)
            assert seen.all_are_in_order
            assert seen.count < 2000, "the other partition has more, and keeps nothing back"

    alone(story)


def test_an_error_behind_the_records_taken() -> None:
    """It is raised by the call after the one that took the last records before it, though the other has more."""

    async def story(cluster: Cluster) -> None:
        async with reading(cluster, 500) as consumer:
            cluster.append("t", *[b"v"] * 500)
            await under_a_lease(consumer)
            subscription, buffer = consumer._runtime.subscription, consumer._runtime.fetcher._buffer
            await asyncio.sleep(1.0)  # of virtual time: all is fetched
            assert buffer.frontier(ONE, subscription[ONE])[0] == 500
            buffer.fail(ONE, subscription[ONE], RecordError("unreadable"))
            await under_a_lease(consumer)
            seen = Seen()
            with pytest.raises(RecordError, match="unreadable"):
                await seen.until_an_error(consumer)
            assert seen.offsets[ONE][-1] == 499
            assert seen.last == {ONE}

    alone(story)


def test_stop() -> None:
    async def story(cluster: Cluster) -> None:
        consumer = reading(cluster, group_id="g")
        await consumer.start()
        await under_a_lease(consumer)
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0)
        with pytest.raises(ConsumerClosed):
            await consumer.getmany()
        await stopping
        with pytest.raises(ConsumerClosed):
            await consumer.getmany()

    alone(story)


def test_the_end_of_the_background() -> None:
    async def story(cluster: Cluster) -> None:
        consumer = reading(cluster)
        await consumer.start()
        await under_a_lease(consumer)
        background = consumer._runtime.cluster_client.background
        background.error = ValueError("the background is broken")
        background.ended.notify()
        with pytest.raises(ValueError, match="broken"):
            await consumer.getmany()
        await consumer.stop()

    alone(story)


def test_another_task_that_waits_for_records() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            while await consumer.position(ONE) < 1000:
                await consumer.getmany(ONE)
            await under_a_lease(consumer)
            waiting = asyncio.create_task(consumer.getmany(ONE))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentCall):
                await consumer.getmany()
            waiting.cancel()
            await asyncio.wait([waiting])
            assert await consumer.getmany() != {}

    alone(story)


def test_another_task_that_took_the_last_batch() -> None:
    """The block that is left has not processed what another task took: it may be at work with it."""

    async def story(cluster: Cluster) -> None:
        async with reading(cluster, group_id="g") as consumer:
            consumer.pause(ONE)
            await under_a_lease(consumer)
            before = await consumer.position(ZERO)
            assert await asyncio.create_task(polls(consumer))
        async with reading(cluster, 1, group_id="g") as consumer:
            committed = (await consumer.committed(ZERO))[ZERO]
            assert committed is not None
            assert committed.offset == before

    alone(story)


def test_a_task_that_began_in_between_has_a_lease_of_its_own() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            seen = Seen()
            for _ in range(6):
                seen.add(await under_a_lease(consumer))
                consumer.seek(ZERO, 0)
                consumer.seek(ONE, 0)
                seen = Seen()
                for _ in range(10):
                    seen.add(await asyncio.create_task(consumer.getmany()))
                assert seen.all_are_in_order

    alone(story)


async def _one(consumer: ConsumerType) -> list[tuple[int, int]]:
    record = await consumer.getone()
    return [(record.partition, record.offset)]


async def _columns(consumer: ConsumerType) -> list[tuple[int, int]]:
    before = {tp: await consumer.position(tp) for tp in (ZERO, ONE)}
    await consumer.getmany_columns(max_records=3)
    after = {tp: await consumer.position(tp) for tp in (ZERO, ONE)}
    return [(tp.partition, offset) for tp in (ZERO, ONE) for offset in range(before[tp], after[tp])]


async def _of_one(consumer: ConsumerType) -> list[tuple[int, int]]:
    return [(1, record.offset) for record in (await consumer.getmany(ONE, max_records=2))[ONE]]


async def _many(consumer: ConsumerType) -> list[tuple[int, int]]:
    return [(tp.partition, record.offset) for tp, records in (await consumer.getmany()).items() for record in records]


@pytest.mark.parametrize("other", [_one, _columns, _of_one])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_calls_of_another_kind_in_between(
    other: Callable[[ConsumerType], Coroutine[Any, Any, list[tuple[int, int]]]], times: int
) -> None:
    """getone() hands records out while the buffer still has them: a lease from before must not take them again."""

    async def story(cluster: Cluster) -> None:
        async with reading(cluster, 300) as consumer:
            offsets: dict[int, list[int]] = {0: [], 1: []}
            for _ in range(10):
                for read in [_many] * times + [other] * times:
                    for partition, offset in await read(consumer):
                        offsets[partition].append(offset)
            assert all(found == list(range(len(found))) for found in offsets.values())
            assert min(map(len, offsets.values())) >= 10

    alone(story)


def test_an_observer_that_comes_in_between_hears_of_the_next_batch() -> None:
    class Counting(Observer):
        count = 0

        def batch(self, partitions: Any, count: int, seconds: float, error: Exception | None) -> None:
            self.count += count

    async def story(cluster: Cluster) -> None:
        observer = Counting()
        async with reading(cluster) as consumer:
            await under_a_lease(consumer)
            consumer.observe(observer)
            for calls in range(1, 6):
                await consumer.getmany()
                assert observer.count == 5 * calls
            consumer.no_longer_observe(observer)
            await under_a_lease(consumer)
            assert observer.count == 25

    alone(story)


def test_an_observer_hears_of_the_batches_of_a_lease_and_ends_none() -> None:
    class Waits(Observer):
        """Hears of no batch that was in memory."""

        least_seconds = 1.0
        count = 0

        def batch(self, partitions: Any, count: int, seconds: float, error: Exception | None) -> None:
            self.count += count

    class Offsets(Observer):
        def __init__(self) -> None:
            self.told: list[tuple[list[int], int]] = []

        def batch(self, partitions: Any, count: int, seconds: float, error: Exception | None) -> None:
            assert 0 <= seconds < 1.0
            self.told.append(([record.offset for records in partitions.values() for record in records], count))

    async def story(cluster: Cluster) -> None:
        waits, offsets = Waits(), Offsets()
        async with reading(cluster, observer=waits) as consumer:
            await under_a_lease(consumer)
            assert waits.count == 0
            consumer.observe(offsets)
            batch = await under_a_lease(consumer)
            assert offsets.told[-1] == ([record.offset for records in batch.values() for record in records], 5)

    alone(story)


# What allows none


def test_deserializers_see_each_record() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster, value_deserializer=lambda data: data * 2) as consumer:
            for _ in range(20):
                for records in (await consumer.getmany()).values():
                    assert all(record.value == b"%d" % record.offset * 2 for record in records)

    alone(story)


def test_interceptors_see_each_batch() -> None:
    class Even(ConsumerInterceptor):
        def on_consume(self, records: Any) -> Any:
            return {tp: [one for one in these if one.offset % 2 == 0] for tp, these in records.items()}

    async def story(cluster: Cluster) -> None:
        async with reading(cluster, interceptors=[Even()]) as consumer:
            for _ in range(20):
                assert all(one.offset % 2 == 0 for records in (await consumer.getmany()).values() for one in records)

    alone(story)


def test_a_call_that_one_partition_cannot_fill_takes_from_several() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster, 12) as consumer:
            await under_a_lease(consumer)
            await under_a_lease(consumer)
            left = 24 - sum([await consumer.position(tp) for tp in (ZERO, ONE)])
            assert len(await consumer.getmany(max_records=24)) == 2
            assert sum([await consumer.position(tp) for tp in (ZERO, ONE)]) == 24
            assert left > 0

    alone(story)


def test_wrong_arguments_are_refused_all_the_same() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            await under_a_lease(consumer)
            before = [await consumer.position(tp) for tp in (ZERO, ONE)]
            wrongs: list[dict[str, Any]] = [{"timeout_ms": -1}, {"timeout_ms": "1"}, {"max_records": 0}]
            for wrong in wrongs:
                with pytest.raises(ConfigError):
                    await consumer.getmany(**wrong)
            assert [await consumer.position(tp) for tp in (ZERO, ONE)] == before

    alone(story)


def test_a_loop_under_a_lease_can_be_cancelled() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            await under_a_lease(consumer)
            seen = {tp: await consumer.position(tp) for tp in (ZERO, ONE)}

            async def loop() -> None:
                while True:
                    batch = await consumer.getmany()
                    for tp, records in batch.items():
                        assert records[0].offset == seen[tp]
                        seen[tp] = records[-1].offset + 1
                    await asyncio.sleep(0)

            for _ in range(30):
                task = asyncio.create_task(loop())
                for _ in range(3):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
            assert {tp: await consumer.position(tp) for tp in (ZERO, ONE)} == seen

    alone(story)
