"""Fetching ahead from a cluster that misbehaves: no storm of requests, and a waiting call is woken for every record."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from aiokc import Client, Consumer, TopicPartition
from aiokc.client.aio import time_slice
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.client.fetch.batch_opening import BatchOpening
from aiokc.core.cluster.snapshot import Cluster as Snapshot
from aiokc.core.fetch.partition.batch_queue import Opened
from aiokc.core.fetch.partition.frame_memory import Unread
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.core.fetch.planner import Looked
from aiokc.core.fetch.session import FetchPlan, FetchTarget, SessionRequest
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, UsageError
from aiokc.records import NATIVE, NewRecord
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.types import ConsumerRecords
from aiokc.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def reading(cluster: Cluster, *partitions: TopicPartition, **options: Any) -> ConsumerType:
    consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", **options)
    consumer.assign(partitions)
    return consumer


async def until(consumer: Consumer, condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await consumer._runtime.fetcher.arrived.wait()


async def test_an_offset_out_of_range_behind_unread_records_is_no_storm() -> None:
    """The error counts once those records are read. Until then the fetcher must not ask for that offset again and
    again.
    """
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1")
        refused = cluster.intercept(
            FetchRequest,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            where=lambda e: e.request.topics[0].partitions[0].fetch_offset == 2,
        )
        async with reading(cluster, ZERO, retry_backoff_ms=100) as consumer:
            assert len((await consumer.getmany(max_records=1))[ZERO]) == 1
            before = refused.hits
            await asyncio.sleep(0.5)
            assert 1 <= refused.hits - before <= 6


def test_what_a_broker_says_of_all_partitions_of_a_topic_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """For example, that it does not know the topic any more: of a thousand partitions that would fill the log."""

    async def story(cluster: Cluster) -> None:
        cluster.intercept(FetchRequest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        async with reading(cluster, *(TopicPartition("t", number) for number in range(50))):
            await asyncio.sleep(20)

    virtually(story, brokers=1, topics={"t": 50})
    (told,) = [record.getMessage() for record in caplog.records if record.name == "aiokc.fetch"]
    assert told.endswith("trying again")


def test_a_retry_that_becomes_due_while_the_fetcher_gives_way_is_still_made() -> None:
    """Given a machine so busy that some passes over the partitions take longer than a time slice."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        cluster.append("t", b"0")
        refused = cluster.intercept(FetchRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=50)
        consumer = reading(cluster, ZERO, retry_backoff_ms=1, retry_backoff_max_ms=1)
        planner, chance = consumer._runtime.fetcher._planner, Random(1)
        look = planner.look

        def slow(cluster: Snapshot, now: float, most: int) -> Looked:
            looked = look(cluster, now, most)
            loop._now += chance.choice([0.0, 0.0011])
            return looked

        planner.look = slow  # type: ignore[method-assign]
        async with consumer:
            began = loop.time()
            assert (await consumer.getmany(timeout_ms=60_000)).keys() == {ZERO}
            assert refused.hits == 50
            assert loop.time() - began < 2

    virtually(story, brokers=1, topics={"t": 1})


async def test_a_full_buffer_is_no_storm_while_the_application_is_busy() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", bytes(1000))
        cluster.append("t", bytes(1000))
        async with reading(cluster, ZERO, ONE, fetch_buffer_bytes=500) as consumer:
            assert len((await consumer.getmany(max_records=1))[ZERO]) == 1
            fetches = cluster.intercept(FetchRequest, lambda exchange: None)
            await asyncio.sleep(1.2)
            assert fetches.hits <= 5, "each 500 ms, and not each 20 ms"


async def test_records_that_come_while_others_are_decoded_wake_the_waiting_call() -> None:
    """First only records that are not handed out (aborted ones) are decoded, in a thread; meanwhile others arrive."""
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", NewRecord(bytes(400_000)))
        async with reading(cluster, ZERO, ONE, fetch_max_wait_ms=20_000, request_timeout_ms=30_000) as consumer:
            fetcher = consumer._runtime.fetcher
            await until(consumer, fetcher.collector.has_undecoded)
            opened, go_on = threading.Event(), threading.Event()
            (buffer,) = (buffer for buffer, _ in fetcher._buffer.servable(consumer._runtime.subscription))
            held = type(buffer).open

            def slowly(self: Any, unread: Any) -> Any:
                opened.set()
                go_on.wait(20)
                return None

            type(buffer).open = slowly  # type: ignore[method-assign]
            try:
                waiting = asyncio.create_task(consumer.getmany())
                await asyncio.to_thread(opened.wait, 20)
                type(buffer).open = held  # type: ignore[method-assign]
                cluster.append("t", b"real", partition=1)
                await fetcher.arrived.wait()
                go_on.set()
                async with asyncio.timeout(20):
                    assert [record.value for record in (await waiting)[ONE]] == [b"real"]
            finally:
                type(buffer).open = held  # type: ignore[method-assign]


@pytest.mark.parametrize("call", ["getmany", "columns"])
async def test_a_batch_that_is_larger_than_it_looks_is_opened_in_a_thread(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 MB of zeros compress to 4 kB or less. Neither that size nor the header says how long decompression takes."""
    threads = []
    opens = PartitionBuffer.open

    def open_somewhere(buffer: PartitionBuffer, unread: Any) -> Any:
        threads.append(threading.current_thread())
        return opens(buffer, unread)

    monkeypatch.setattr(PartitionBuffer, "open", open_somewhere)
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"before")
        cluster.append("t", bytes(4 << 20), codec=1)
        cluster.append("t", b"behind")
        async with reading(cluster, ZERO) as consumer, asyncio.timeout(20):
            sizes: list[int] = []
            while len(sizes) < 3:
                if call == "columns":
                    table = pa.record_batch(await consumer.getmany_columns())
                    sizes += map(len, table.column("value").to_pylist())
                else:
                    sizes += [len(record.value or b"") for record in (await consumer.getmany())[ZERO]]
    assert sizes == [6, 4 << 20, 6]
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_cancelled_call_leaves_its_thread_to_the_next_one() -> None:
    """Two threads at one batch would race for what its response says of aborted transactions."""
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", NewRecord(bytes(400_000)))
        async with reading(cluster, ZERO) as consumer:
            fetcher = consumer._runtime.fetcher
            await until(consumer, fetcher.collector.has_undecoded)
            (buffer,) = (buffer for buffer, _ in fetcher._buffer.servable(consumer._runtime.subscription))
            kind, calls, go_on = type(buffer), [0], threading.Event()
            right = kind.open

            def slowly(self: Any, unread: Any) -> Any:
                calls[0] += 1
                go_on.wait(20)
                return right(self, unread)

            kind.open = slowly  # type: ignore[method-assign]
            try:
                for _ in range(3):
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.02):
                            await consumer.getmany()
                go_on.set()
                assert len((await consumer.getmany())[ZERO]) == 1
                assert calls == [1]
            finally:
                kind.open = right  # type: ignore[method-assign]


@pytest.mark.parametrize(("call", "before"), [("records", 0), ("columns", 0), ("columns", 1)])
async def test_what_a_thread_opens_between_two_calls_is_not_opened_again(
    call: str, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise calls with short timeouts would never get it.

    A call for columns puts back the rows ``before`` it when it is cancelled, so that it is not the next batch then.
    """
    opened: list[int] = []
    right, begin = PartitionBuffer.open, BatchOpening.begin

    def opens(self: PartitionBuffer, unread: Unread) -> Opened | None:
        opened.append(unread.header.base_offset)
        return right(self, unread)

    def begins(self: BatchOpening, buffer: PartitionBuffer) -> None:
        begin(self, buffer)
        cancelled.cancel()  # the call ends when it gives way, which it does behind the record of the other partition

    monkeypatch.setattr(PartitionBuffer, "open", opens)
    monkeypatch.setattr(BatchOpening, "begin", begins)
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", -1.0)
    async with Cluster(topics={"t": 2}) as cluster:
        for _ in range(before):
            cluster.append("t", b"before")
        cluster.append("t", NewRecord(bytes(400_000)))
        cluster.append("t", b"other", partition=1)
        async with reading(cluster, ZERO, ONE) as consumer, asyncio.timeout(20):
            collector = consumer._runtime.fetcher.collector
            await until(consumer, lambda: collector.buffer.holds(ZERO) and collector.buffer.holds(ONE))
            poll = consumer.getmany if call == "records" else consumer.getmany_columns
            cancelled = asyncio.create_task(poll())
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await until(consumer, lambda: not collector.opening._is_under_way)
            batch = await poll()
            rows = sum(map(len, batch.values())) if isinstance(batch, ConsumerRecords) else len(pa.record_batch(batch))
            assert rows == before + 2
            assert opened == [before]


@pytest.mark.skipif(not NATIVE, reason="without the extension there are no runs")
async def test_records_before_a_large_batch_do_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    may_open, right = threading.Event(), PartitionBuffer.open

    def slowly(self: PartitionBuffer, unread: Unread) -> Opened | None:
        may_open.wait(20)
        return right(self, unread)

    monkeypatch.setattr(PartitionBuffer, "open", slowly)
    async with Cluster(topics={"t": 1}) as cluster, asyncio.timeout(20):
        cluster.append("t", b"before")
        cluster.append("t", NewRecord(bytes(400_000)))
        async with reading(cluster, ZERO) as consumer:
            assert [record.value for record in (await consumer.getmany())[ZERO]] == [b"before"]
            may_open.set()
            assert [len(record.value or b"") for record in (await consumer.getmany())[ZERO]] == [400_000]


async def test_a_large_batch_is_read_by_the_next_call_once_there_is_a_thread_to_spare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error tells what the executor has said: it need not have been shut down."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with Cluster(topics={"t": 1}) as cluster, reading(cluster, ZERO) as consumer:
        cluster.append("t", NewRecord(bytes(400_000)))
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            with pytest.raises(UsageError, match=r"offset 0: .*\(can't start new thread\)"):
                await consumer.getmany(timeout_ms=20_000)
        assert len((await consumer.getmany(timeout_ms=20_000))[ZERO]) == 1


async def test_one_error_for_many_partitions_is_raised_once() -> None:
    async with Cluster(topics={"t": 50}) as cluster:
        cluster.append("t", b"x", partition=49)
        consumer = reading(cluster, *(TopicPartition("t", number) for number in range(50)))
        async with consumer:
            fetcher = consumer._runtime.fetcher
            error = AuthorizationFailed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            for tp, position in consumer._runtime.subscription.assigned.items():
                await consumer.position(tp)
                fetcher._buffer.fail(tp, position, error)
            seen = 0
            while True:
                try:
                    batch = await consumer.getmany(timeout_ms=5000)
                    break
                except AuthorizationFailed:
                    seen += 1
            assert list(batch) == [TopicPartition("t", 49)]
            assert seen <= 1


def with_a_plan(*partitions: TopicPartition) -> tuple[Consumer, list[FetchTarget], FetchPlan]:
    """A consumer at the beginning of these, which reaches no broker, and a Fetch for them to broker 1."""
    consumer = Consumer(bootstrap_servers="127.0.0.1:1")
    consumer.assign(partitions)
    subscription = consumer._runtime.subscription
    for tp in partitions:
        subscription.seek(tp, 0)
    targets = [FetchTarget(tp, subscription[tp].token, 0, -1) for tp in partitions]
    return consumer, targets, FetchPlan(1, SessionRequest(0, 0, targets, [], [], by_id=False, more=False), 1 << 20, 500)


async def test_a_seek_while_an_answer_is_stored_waits_for_no_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is fetched again after a pause: the position from before, and not the one sought meanwhile."""
    consumer, targets, plan = with_a_plan(ZERO, ONE)
    fetcher, subscription = consumer._runtime.fetcher, consumer._runtime.subscription
    refused = [
        PartitionData(
            partition_index=tp.partition,
            error_code=ErrorCode.OFFSET_NOT_AVAILABLE,
            high_watermark=-1,
            aborted_transactions=None,
            records=None,
        )
        for tp in (ZERO, ONE)
    ]
    pauses: Iterator[Callable[[], None]] = iter([lambda: None, lambda: subscription.seek(ZERO, 7)])

    async def others_run() -> None:
        next(pauses)()

    monkeypatch.setattr(time_slice, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(time_slice, "let_others_run", others_run)
    answers = list(zip(targets, refused, strict=True))
    await fetcher._response_handler.take_in(answers, FetchResponse(responses=[]), plan)
    assert list(pauses) == []
    assert (subscription[ZERO].position, subscription[ZERO].retry_at) == (7, 0.0)
    assert subscription[ONE].retry_at > asyncio.get_running_loop().time()


@pytest.mark.parametrize("outcome", ["fails", "is left alone"])
async def test_other_tasks_run_while_all_that_a_broker_was_to_bring_is_looked_at(
    outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand partitions in one step would hold the loop for tens of milliseconds. What is sought wins."""
    partitions = [TopicPartition("t", number) for number in range(3)]
    consumer, targets, plan = with_a_plan(*partitions)
    fetcher, subscription = consumer._runtime.fetcher, consumer._runtime.subscription
    pauses = 0

    async def others_run() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 2:
            subscription.seek(ONE, 7)

    monkeypatch.setattr(fetcher._planner, "wanted", lambda _: targets)
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(time_slice, "let_others_run", others_run)
    if outcome == "fails":
        await fetcher._fail(plan, AuthorizationFailed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        assert [fetcher._buffer.holds(tp) for tp in partitions] == [True, False, True]
    else:
        await fetcher._back_off(plan)
    assert pauses == len(partitions)


async def test_an_error_that_a_call_raises_before_all_partitions_have_it_is_raised_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer, targets, plan = with_a_plan(ZERO, ONE)
    fetcher, subscription = consumer._runtime.fetcher, consumer._runtime.subscription

    async def a_call_comes() -> None:
        if fetcher._buffer.holds(ZERO):
            with pytest.raises(AuthorizationFailed):
                fetcher.collector.take(1)

    monkeypatch.setattr(fetcher._planner, "wanted", lambda _: targets)
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", -1.0)
    monkeypatch.setattr(time_slice, "let_others_run", a_call_comes)
    await fetcher._fail(plan, AuthorizationFailed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert not any(map(fetcher._buffer.holds, (ZERO, ONE)))
    assert all(subscription[tp].retry_at > asyncio.get_running_loop().time() for tp in (ZERO, ONE))


@pytest.mark.parametrize("sought", [False, True])
async def test_an_error_that_partitions_share_delays_no_position_that_was_sought_since(sought: bool) -> None:
    """Its buffer lies there until the next plan, which may be made after the call that raises."""
    consumer = Consumer(bootstrap_servers="127.0.0.1:1")
    consumer.assign([ZERO, ONE])
    fetcher, subscription = consumer._runtime.fetcher, consumer._runtime.subscription
    error = AuthorizationFailed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    for tp in (ZERO, ONE):
        subscription.seek(tp, 0)
        fetcher._buffer.fail(tp, subscription[tp], error)
    if sought:
        subscription.seek(ZERO, 7)
    with pytest.raises(AuthorizationFailed):
        fetcher.collector.take(1)
    assert not fetcher._buffer.holds(ZERO)
    now = asyncio.get_running_loop().time()
    assert [subscription[tp].retry_at > now for tp in (ZERO, ONE)] == [not sought, True]


@pytest.mark.parametrize("size", [16, 20_000])
def test_many_records_are_handed_out_after_the_next_fetch_and_few_before(size: int) -> None:
    """The broker works on that Fetch while the application works on many records. Each broker has at most one."""

    async def story(cluster: Cluster) -> None:
        fetches = cluster.intercept(FetchRequest, lambda exchange: None)
        async with reading(cluster, ZERO, ONE) as consumer:
            pool = consumer._runtime.cluster_client.pool

            def in_flight() -> list[int]:
                return [connection.in_flight for connection in pool._connections if connection.in_flight]

            async def take() -> tuple[list[bytes | None], list[int]]:
                batch = await consumer.getmany()
                return [record.value for records in batch.values() for record in records], in_flight()

            for number in range(20):
                value = b"%d" % number + bytes(size)
                taking = asyncio.create_task(take())
                await asyncio.sleep(0.1)  # of virtual time: the broker parks a Fetch, and the call waits
                assert in_flight() == [1]
                cluster.append("t", value, partition=number % 2)
                assert await taking == ([value], [] if size < 16_384 else [1])
            assert fetches.hits <= 20 + 3

    virtually(story, topics={"t": 2}, brokers=1)


@pytest.mark.parametrize("call", ["getmany", "getmany_columns", "iterator", "read", "read_columns"])
async def test_a_loop_that_always_finds_records_gives_way(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives way every millisecond, and before it takes records: a call that is cancelled there has taken none.

    Time passes only where records are decoded, 0.7 ms for each step: so the bound is exact.
    """
    async with Cluster(topics={"t": 1}) as cluster:
        for _ in range(100):
            cluster.append("t", *[b"x"] * 1000)
        clock = Clock(asyncio.get_running_loop(), monkeypatch)
        async with reading(cluster, ZERO, max_poll_records=50) as consumer:
            await until(consumer, lambda: consumer._runtime.fetcher._buffer.bytes > 50_000)
            beside = asyncio.create_task(clock.watched())
            with clock.of_decoding():
                if call.startswith("read"):
                    async with Client(bootstrap_servers=cluster.bootstrap) as client:
                        parts: Any = client.read({ZERO: (0, 50_000)})
                        if call == "read_columns":
                            parts = client.read_columns({ZERO: (0, 50_000)}, batch_bytes=65_536)
                        async for _ in parts:
                            pass
                elif call == "iterator":
                    async for record in consumer:
                        if record.offset == 20_000:
                            break
                elif call == "getmany":
                    for _ in range(400):
                        assert await consumer.getmany()
                else:
                    for _ in range(400):
                        assert await consumer.getmany_columns(max_records=50)
                await asyncio.sleep(0)  # that task must see what the last call has left
            beside.cancel()

    assert clock.steps > 20
    assert clock.longest <= 2.0 + 0.7 + 0.001, f"{clock.longest:.1f} ms"


async def test_a_step_appends_a_megabyte_to_columns_or_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a batch of many MB would be copied in one step, and hold the event loop for as long."""
    steps: list[int] = []
    append = PartitionBuffer.append

    def noted(buffer: PartitionBuffer, builder: Any, *limits: Any) -> int:
        before = builder.size
        count = append(buffer, builder, *limits)
        steps.append(builder.size - before)
        return count

    monkeypatch.setattr(PartitionBuffer, "append", noted)
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", *[bytes(100_000)] * 40)
        async with asyncio.timeout(20), reading(cluster, ZERO) as consumer:
            assert len(await consumer.getmany_columns(max_bytes=8 << 20)) == 40
    assert sum(steps) > 4_000_000
    assert max(steps) < (1 << 20) + 101_000


class Clock:
    """A loop's time that passes only while records are decoded. ``longest``: the most ms in which no other task ran."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest, self.steps = 0.0, 0
        self._loop, self._patch = loop, monkeypatch
        self._now = loop.time()

    async def watched(self) -> None:
        """Note the time in each round of the loop."""
        before = self._now
        while True:
            await asyncio.sleep(0)
            self.longest = max(self.longest, (self._now - before) * 1e3)
            before = self._now

    @contextmanager
    def of_decoding(self) -> Iterator[None]:
        with self._patch.context() as patch:
            self._now = self._loop.time()
            patch.setattr(self._loop, "time", lambda: self._now)
            for name in ("decode", "append", "take_of_runs"):
                patch.setattr(PartitionBuffer, name, self._timed(getattr(PartitionBuffer, name)))
            yield

    def _timed(self, step: Any) -> Any:
        def timed(*args: Any) -> Any:
            self.steps += 1
            self._now += 0.0007
            return step(*args)

        return timed
