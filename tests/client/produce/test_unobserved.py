"""Who counts as having seen a failure: only what really got it. All others are raised by the next flush()."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokc import Producer
from aiokc.core.produce.batch import ProducerBatch
from aiokc.errors import RecordRefused, UsageError
from aiokc.testing import ApiKey, Cluster, ErrorCode
from tests.client.virtually import virtually

pytestmark = pytest.mark.timeout(30)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(**{"bootstrap_servers": cluster.bootstrap, **options})


def when_told(producer: Producer[Any, Any], then: Callable[[], object]) -> None:
    """Call ``then`` in the step in which a batch gets its outcome, after all that has been told.

    Who waits goes on later, as it does where no answer is taken in (a batch expires, for instance).
    """
    sender = producer._runtime.sender
    tell = sender._tell

    def told(batches: list[ProducerBatch], /, *, at_once: bool) -> None:
        tell(batches, at_once=False)
        then()

    sender._tell = told


async def ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])


def refusing(story: Callable[[Cluster, Producer[Any, Any]], Coroutine[Any, Any, None]]) -> None:
    """Run a story in which the broker refuses the second batch, and the producer has gone through the first."""

    async def happen(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
            await story(cluster, producer)

    virtually(happen)


def test_an_await_that_is_cancelled_in_the_step_of_the_failure_has_not_seen_it() -> None:
    async def story(cluster: Cluster, producer: Producer[Any, Any]) -> None:
        waits = asyncio.create_task(producer.send_and_wait("t", b"1", partition=0))
        when_told(producer, waits.cancel)
        await ended(waits)
        assert waits.cancelled()
        assert producer.metrics().unobserved_failures == 1
        with pytest.raises(RecordRefused):
            await producer.flush()
        await producer.flush()
        assert producer.metrics().unobserved_failures == 1

    refusing(story)


def test_an_await_of_many_records_that_is_cancelled_in_that_step_has_not_seen_it() -> None:
    async def story(cluster: Cluster, producer: Producer[Any, Any]) -> None:
        delivery = await producer.send_many("t", [b"1", b"2"])
        waits = asyncio.ensure_future(delivery)
        when_told(producer, waits.cancel)
        await ended(waits)
        assert waits.cancelled()
        with pytest.raises(RecordRefused):
            await producer.flush()
        with pytest.raises(RecordRefused):
            await delivery
        await producer.flush()

    refusing(story)


def test_failures_that_nobody_sees_are_logged_once_for_each_cause(caplog: pytest.LogCaptureFixture) -> None:
    """In thirty seconds; then with the number of those that were held back."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"", partition=0)
            stamp, policy = ErrorCode.INVALID_TIMESTAMP, ErrorCode.POLICY_VIOLATION
            for code, pause in [(stamp, 0), (stamp, 0), (stamp, 0), (policy, 31)] * 2:
                cluster.intercept(ApiKey.PRODUCE, code, times=1)
                producer.send_soon("t", b"", partition=0)
                with pytest.raises(RecordRefused):
                    await producer.flush()
                await asyncio.sleep(pause)

    virtually(story)
    said = [record.getMessage() for record in caplog.records if record.name == "aiokc.produce"]
    assert [("TIMESTAMP" in line, "POLICY" in line, "2 more" in line) for line in said] == [
        (True, False, False),
        (False, True, False),
        (True, False, True),
        (False, True, False),
    ]
    assert all("1 records were not stored, and nothing awaits 1 of them" in line for line in said)


def test_what_one_gives_up_another_may_still_see() -> None:
    async def story(cluster: Cluster, producer: Producer[Any, Any]) -> None:
        delivery = await producer.send("t", b"1", partition=0)
        first = asyncio.ensure_future(delivery)
        second = asyncio.ensure_future(delivery)
        when_told(producer, first.cancel)
        await ended(first)
        with pytest.raises(RecordRefused):
            await second
        await producer.flush()

    refusing(story)


def test_an_await_whose_coroutine_was_closed_has_not_seen_the_failure() -> None:
    async def story(cluster: Cluster, producer: Producer[Any, Any]) -> None:
        delivery = await producer.send("t", b"1", partition=0)
        waits = delivery.__await__()
        next(waits)
        waits.close()
        with pytest.raises(RecordRefused):
            await producer.flush()

    refusing(story)


def test_a_failure_that_is_on_its_way_to_a_task_is_not_raised_by_flush_as_well() -> None:
    async def story(cluster: Cluster, producer: Producer[Any, Any]) -> None:
        waits = asyncio.create_task(producer.send_and_wait("t", b"1", partition=0))
        found: list[object] = []
        when_told(producer, lambda: found.append(producer._runtime.outcomes.unobserved.take()))
        await ended(waits)
        assert isinstance(waits.exception(), RecordRefused)
        assert found == [None]
        await producer.flush()
        assert producer.metrics().unobserved_failures == 0

    refusing(story)


@pytest.mark.parametrize("then", ["nobody looks", "the first is seen", "the first is raised"])
def test_a_failure_that_is_looked_at_later_has_been_counted(then: str) -> None:
    """The count is a counter of Prometheus, which never falls. A record that is given up later is added."""

    async def story(cluster: Cluster, producer: Producer[Any, Any]) -> None:
        def count() -> int:
            return producer.metrics().unobserved_failures

        first, second = [await producer.send("t", value, partition=0) for value in (b"1", b"2")]
        waits = asyncio.ensure_future(second)
        found: list[int] = []

        def failed() -> None:
            found.append(count())
            if then == "the first is seen":
                with pytest.raises(RecordRefused):
                    first.result()
            elif then == "the first is raised":
                assert isinstance(producer._runtime.outcomes.unobserved.take(), RecordRefused)
            waits.cancel()

        when_told(producer, failed)
        await ended(waits)
        assert waits.cancelled()
        assert (found, count()) == ([1], 2)
        if then == "the first is raised":
            with pytest.raises(RecordRefused):
                await producer.flush()
        for delivery in (first, second):
            with pytest.raises(RecordRefused):
                await delivery
        await producer.flush()
        assert count() == 2

    refusing(story)


def test_the_end_of_a_transaction_leaves_what_was_counted() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, transactional_id="x") as producer:
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
            await producer.begin_transaction()
            for number in range(5):
                await producer.send("t", b"%d" % number, partition=0)
            with pytest.raises(RecordRefused):
                await producer.commit_transaction()
            await producer.abort_transaction()
            assert producer.metrics().unobserved_failures == 5
            await producer.flush()
            assert producer.metrics().unobserved_failures == 5

    virtually(story)


def test_of_a_batch_only_what_nobody_saw_is_raised() -> None:
    """By its index: one record was awaited, one has a callback, and the third has neither."""

    async def story(cluster: Cluster, producer: Producer[Any, Any]) -> None:
        told: list[object] = []
        first = await producer.send("t", b"1", partition=0)
        producer.send_soon("t", b"2", partition=0, on_done=lambda _, error: told.append(error))
        await producer.send("t", b"3", partition=0)
        with pytest.raises(RecordRefused):
            await first
        assert producer.metrics().unobserved_failures == 1
        with pytest.raises(RecordRefused):
            await producer.flush()
        await producer.flush()
        await asyncio.sleep(0.01)  # callbacks come in turns of their own
        assert [type(error) for error in told] == [RecordRefused]

    refusing(story)


async def test_a_delivery_is_awaited_in_the_loop_of_its_producer_alone() -> None:
    """Nothing would wake a task of another loop."""
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, linger_ms=60_000) as producer:
        await producer.partitions_for("t")
        one, many = await producer.send("t", b"1"), await producer.send_many("t", [b"2"])
        found: list[BaseException] = []

        async def elsewhere() -> None:
            for delivery in (one, many):
                with pytest.raises(UsageError, match="another event loop") as raised:
                    await delivery
                found.append(raised.value)

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert len(found) == 2
        await producer.flush()
        assert (await one).offset == 0


async def test_a_hundred_thousand_callbacks_of_a_batch_run_in_short_turns_and_in_order() -> None:
    called: list[int] = []
    count = 100_000
    async with Cluster(topics={"t": 1}) as cluster:
        options = {"batch_size": 16 << 20, "max_request_size": 16 << 20, "linger_ms": 60_000}
        async with producing(cluster, **options) as producer:
            await producer.partitions_for("t")
            turns = producer._runtime.callbacks
            lengths: list[int] = []
            run = turns._run

            def noted(until: float) -> None:
                before = len(called)
                run(until)
                lengths.append(len(called) - before)

            turns._run = noted  # type: ignore[method-assign]
            for number in range(count):
                producer.send_soon("t", b"", on_done=lambda _, error, number=number: called.append(number))  # type: ignore[misc]
            await producer.flush()
            assert called == list(range(count))
            assert max(lengths) < count / 5


def test_what_may_be_stored_is_not_called_lost(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await producer.send_and_wait("t", b"", partition=0)
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.UNKNOWN_SERVER_ERROR, times=1)
            producer.send_soon("t", b"", partition=0)
            with pytest.raises(RecordRefused) as raised:
                await producer.flush()
            assert raised.value.persisted == "maybe"

    virtually(story)
    said = [record.getMessage() for record in caplog.records if record.name == "aiokc.produce"]
    assert ["1 records are not known to be stored, and nothing awaits 1" in line for line in said] == [True]
