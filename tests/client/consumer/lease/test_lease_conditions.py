"""What a poll looks at before it leaves a lease, and a call before it uses one: each condition by itself.

Each test fails where its condition alone is left out, whatever else would end the lease a little later.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import TopicPartition
from aiokc.client.aio import time_slice
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.errors import RecordError
from aiokc.testing import Cluster

from .reading import ONE, ZERO, alone, polls, reading, under_a_lease

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("endless_slices")]

TWO, THREE, IDLE = TopicPartition("t", 2), TopicPartition("t", 3), TopicPartition("t", 4)


def order(consumer: ConsumerType) -> list[TopicPartition]:
    """The partitions with something buffered, in the order of service."""
    return list(consumer._runtime.fetcher._buffer._partitions)


async def with_an_error_first(cluster: Cluster) -> ConsumerType:
    """Return a consumer that has everything buffered: first ONE, of which only an error is left, then three others."""
    consumer = reading(cluster, partitions=(0, 1, 2, 3))
    consumer.assign([ZERO, ONE, TWO, THREE, IDLE])
    await consumer.start()
    while await consumer.position(ONE) < 1000:
        await consumer.getmany(ONE)
    await asyncio.sleep(1.0)  # of virtual time: all is fetched
    subscription, buffer = consumer._runtime.subscription, consumer._runtime.fetcher._buffer
    buffer.fail(ONE, subscription[ONE], RecordError("unreadable"))
    for tp in (TWO, THREE, ZERO):
        await consumer.getmany(tp)
    assert order(consumer) == [ONE, TWO, THREE, ZERO]
    return consumer


async def offsets(consumer: ConsumerType, **options: Any) -> list[int]:
    """The offsets that the next call returns, all of ZERO."""
    (records,) = (await consumer.getmany(**options)).values()
    return [record.offset for record in records]


# What a poll looks at before it leaves a lease


def test_an_error_that_the_poll_itself_has_held_back() -> None:
    """The poll begins to look, and meets the error on its way to records: the count it began with is over by then."""

    async def story(cluster: Cluster) -> None:
        consumer = await with_an_error_first(cluster)
        assert list(await consumer.getmany()) == [TWO]
        assert order(consumer)[0] == THREE, "which a lease would serve, and go on for ever"
        with pytest.raises(RecordError, match="unreadable"):
            await consumer.getmany()
        await consumer.stop()

    alone(story, partitions=5)


def test_an_error_from_before_a_call_without_records() -> None:
    """A poll looks at errors that were held back only where the call before it had records, or it might raise for ever.

    One that has not looked leaves no lease.
    """

    async def story(cluster: Cluster) -> None:
        consumer = await with_an_error_first(cluster)
        assert list(await consumer.getmany()) == [TWO]  # the error of ONE is held back
        assert await consumer.getmany(IDLE, timeout_ms=0) == {}
        assert list(await consumer.getmany()) == [THREE]
        assert order(consumer)[0] == ZERO, "which a lease would serve"
        with pytest.raises(RecordError, match="unreadable"):
            await consumer.getmany()
        await consumer.stop()

    alone(story, partitions=5)


def test_an_error_of_another_partition_than_those_asked_for() -> None:
    async def story(cluster: Cluster) -> None:
        consumer = await with_an_error_first(cluster)
        assert list(await consumer.getmany()) == [TWO]
        assert list(await consumer.getmany(ZERO)) == [ZERO], "ONE's error is of no interest here"
        assert order(consumer)[0] == THREE, "which a lease would serve"
        with pytest.raises(RecordError, match="unreadable"):
            await consumer.getmany()
        await consumer.stop()

    alone(story, partitions=5)


# What a call looks at before it uses one


def test_a_partition_in_turn_that_is_paused() -> None:
    """It stays the first in the order of service, as long as it is paused."""

    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            await under_a_lease(consumer)
            consumer.pause(ZERO)
            before = await consumer.position(ZERO)
            for _ in range(10):
                assert list(await consumer.getmany()) == [ONE]
                assert order(consumer)[0] == ZERO
            consumer.resume(ZERO)
            assert (await offsets(consumer))[0] == before

    alone(story)


def test_a_partition_in_turn_with_too_few_records() -> None:
    """The call is filled from the others, as by a poll."""

    async def story(cluster: Cluster) -> None:
        async with reading(cluster, 12) as consumer:
            await consumer.getmany(ONE, max_records=2)
            await consumer.getmany(ZERO, max_records=10)
            await consumer.getmany(ONE, max_records=4)
            batch = await consumer.getmany(max_records=1)
            assert [(tp, len(records)) for tp, records in batch.items()] == [(ZERO, 1)]
            batch = await consumer.getmany(max_records=1)  # of ONE: five are left there, and one of ZERO
            assert [(tp, len(records)) for tp, records in batch.items()] == [(ONE, 1)]
            assert order(consumer)[0] == ZERO
            batch = await consumer.getmany(max_records=5)
            assert {tp: [record.offset for record in records] for tp, records in batch.items()} == {
                ZERO: [11],
                ONE: [7, 8, 9, 10],
            }

    alone(story)


def test_a_batch_that_is_read_in_parts() -> None:
    """max_records is reached inside a batch again and again: each call goes on where the one before it ended."""

    async def story(cluster: Cluster) -> None:
        async with reading(cluster, partitions=(0,)) as consumer:
            found = [(await consumer.getone(ZERO)).offset]  # which decodes more, for the calls that follow
            leases = 0
            for most in (3, 1, 7, 2, 5) * 20:
                before = consumer._runtime.changes.count
                some = await offsets(consumer, max_records=most)
                leases += consumer._runtime.changes.count == before
                assert len(some) == most
                found += some
            assert found == list(range(len(found)))
            assert leases > 90

    alone(story)


def test_nothing_to_take_lets_the_call_wait_as_long_as_it_may() -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster, 20) as consumer:
            seen = 0
            while seen < 40:
                seen += sum(map(len, (await consumer.getmany()).values()))
            began = asyncio.get_running_loop().time()
            assert await consumer.getmany(timeout_ms=250) == {}
            assert asyncio.get_running_loop().time() - began == pytest.approx(0.25, abs=0.001)

    alone(story)


# Time


def decode_for(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have each step of decoding take so long."""

    def slow(step: Any) -> Any:
        def timed(self: PartitionBuffer, count: int) -> Any:
            asyncio.get_running_loop()._now += seconds  # type: ignore[attr-defined]
            return step(self, count)

        return timed

    for name in ("decode", "take_of_runs"):
        monkeypatch.setattr(PartitionBuffer, name, slow(getattr(PartitionBuffer, name)))


def test_the_time_of_a_call_is_time_that_the_application_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        async with reading(cluster) as consumer:
            await under_a_lease(consumer)
            before = consumer.metrics()
            decode_for(monkeypatch, 0.5)
            await under_a_lease(consumer)
            after = consumer.metrics()
            assert after.polls - before.polls == 1
            assert after.poll_wait_ms - before.poll_wait_ms == pytest.approx(500)
            assert after.user_ms == pytest.approx(before.user_ms)

    alone(story)


class Others:
    """Another task of the loop, and how often it ran."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)

    def end(self) -> None:
        self._task.cancel()


def test_a_slice_that_was_over_before_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.001)
        async with reading(cluster) as consumer:
            consumer.pause(ONE)
            await consumer.getone(ZERO)  # which decodes more, so that nothing is left to do but to take it
            await under_a_lease(consumer)
            others = Others()
            asyncio.get_running_loop()._now += 0.002  # type: ignore[attr-defined]  # the application's own time
            assert await polls(consumer)
            assert others.turns > 0
            others.end()

    alone(story)


def test_a_slice_that_ends_while_the_call_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call lets the other tasks run before it hands anything out."""

    async def story(cluster: Cluster) -> None:
        monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.001)
        async with reading(cluster, partitions=(0,)) as consumer:
            found = await offsets(consumer)
            found += [record.offset for records in (await under_a_lease(consumer)).values() for record in records]
            others = Others()
            decode_for(monkeypatch, 0.002)
            found += await offsets(consumer)
            assert not others.turns
            found += await offsets(consumer)
            assert others.turns > 0
            assert found == list(range(found[0], found[0] + 40))
            others.end()


def test_a_slice_that_ends_while_the_call_decodes_the_last_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decoded by then stays for the poll, which lets the other tasks run before it hands anything out."""

    async def story(cluster: Cluster) -> None:
        monkeypatch.setattr(time_slice, "SLICE_SECONDS", 0.001)
        monkeypatch.setattr(PartitionBuffer, "take_of_runs", lambda *_: None)
        async with reading(cluster, partitions=(0,)) as consumer:
            found = await offsets(consumer)
            found += [record.offset for records in (await under_a_lease(consumer)).values() for record in records]
            others = Others()
            decode_for(monkeypatch, 0.002)
            found += await offsets(consumer)
            assert others.turns > 0
            assert found[-10:] == list(range(found[-10], found[-10] + 10))
            others.end()

    alone(story)
