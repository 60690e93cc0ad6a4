"""What a rebalance listener may do, when it is called, and what becomes of its errors and of its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.errors import CommitFailed, ListenerTimedOut, NoOffsetForPartition, UsageError
from aiokc.testing import Cluster
from aiokc.wire.messages.offsets import OffsetFetchRequest

from ...listening import Gate, Noting, Polling, listening

pytestmark = pytest.mark.timeout(90)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}


# What a listener may do


async def test_commit_of_all_that_was_returned_works_in_revoked() -> None:
    async def commit(_: object) -> None:
        await consumer.commit()

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        async with listening(cluster, "t", listener=Noting(revoked=commit)) as consumer:
            await consumer.getmany(max_records=2)
        assert cluster.committed("g") == {T0: 2}


@pytest.mark.parametrize("what", ["offsets", "batch", "all"])
async def test_commits_work_in_revoked_after_unsubscribe(what: str) -> None:
    """The assignment is empty by then, but the application may still commit what it had until the callback is done."""

    async def commit(_: object) -> None:
        given: dict[str, Any] = {"offsets": {T0: 2}, "batch": batch, "all": None}
        await consumer.commit(given[what])

    listener = Noting(revoked=commit)
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        async with listening(cluster, "t", listener=listener) as consumer:
            batch = await consumer.getmany(max_records=2)
            consumer.unsubscribe()
            await listener.heard("assigned", "revoked")
            assert cluster.committed("g") == {T0: 2}


async def test_commits_and_positions_work_in_revoked_in_a_rebalance() -> None:
    async def commit(partitions: frozenset[TopicPartition]) -> None:
        assert partitions == consumer.assignment(), "still assigned"
        positions.update({tp: await consumer.position(tp) for tp in partitions})
        listener.on.clear()
        await consumer.commit({T0: 2})
        assert (await consumer.committed(T0))[T0].offset == 2  # type: ignore[union-attr]

    positions: dict[TopicPartition, int] = {}
    listener = Noting(revoked=commit)
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0", b"1")
        async with listening(cluster, "t", listener=listener, heartbeat_interval_ms=20) as consumer:
            await consumer.getmany()
            async with listening(cluster, "t") as other, Polling(consumer, other):
                await listener.until(lambda: listener.calls[:3] == ["assigned", "revoked", "assigned"])
            assert positions == {T0: 2, T1: 0}
            assert cluster.committed("g") == {T0: 2}


async def test_a_commit_of_nothing_works_in_assigned_while_the_next_rebalance_begins() -> None:
    """Else a listener that commits would fail just because it has nothing, in the moment in which nothing is stored."""

    async def commit(_: object) -> None:
        listener.on.clear()
        consumer.enforce_rebalance("another one")
        assert consumer.health().rebalancing
        await consumer.commit()
        committed.append(True)

    committed: list[bool] = []
    listener = Noting(assigned=commit)
    async with (
        Cluster() as cluster,
        listening(cluster, "new", listener=listener, allow_auto_create_topics=False, **COOPERATIVE) as consumer,
        Polling(consumer),
    ):
        await listener.until(lambda: listener.done >= 1)
        assert committed == [True]


async def test_auto_commit_comes_before_revoked() -> None:
    async def look(_: object) -> None:
        seen.append(cluster.committed("g"))

    seen: list[dict[TopicPartition, int]] = []
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1")
        async with listening(cluster, "t", listener=Noting(revoked=look), enable_auto_commit=True) as consumer:
            await consumer.getmany()
            await consumer.getmany(timeout_ms=0)
        assert seen == [{T0: 2}]


async def test_commit_works_in_assigned_and_fails_in_lost() -> None:
    async def commit(_: object) -> None:
        await consumer.commit({T0: 1})

    async def try_to_commit(_: object) -> None:
        with pytest.raises(CommitFailed):
            await consumer.commit({T0: 2})

    listener = Noting(assigned=commit, lost=try_to_commit)
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster, "t", listener=listener) as consumer,
        Polling(consumer),
    ):
        await listener.heard("assigned")
        cluster.expire_member("g")
        await listener.heard("assigned", "lost", "assigned")
        assert cluster.committed("g") == {T0: 1}


async def test_a_commit_of_all_fails_in_lost_where_nothing_is_left_to_commit() -> None:
    """The application had processed what it read, so no held records are lost; but its offsets cannot be stored."""

    async def try_to_commit(_: object) -> None:
        with pytest.raises(CommitFailed):
            await consumer.commit()
        refused.append(True)

    refused: list[bool] = []
    listener = Noting(lost=try_to_commit)
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with listening(cluster, "t", listener=listener) as consumer, Polling(consumer) as polling:
            await polling.has(1)
            cluster.expire_member("g")
            await listener.heard("assigned", "lost", "assigned")
    assert refused == [True]


async def test_seek_in_assigned_wins_over_the_committed_offset() -> None:
    """Also while the committed offset is already being looked up."""

    async def seek(partitions: frozenset[TopicPartition]) -> None:
        await asked.caught()
        for tp in partitions:
            consumer.seek(tp, 1)

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        async with listening(cluster, "t") as consumer:
            await consumer.getone()
            await consumer.commit({T0: 2})
        asked = cluster.intercept(OffsetFetchRequest, lambda exchange: None)
        async with listening(cluster, "t", listener=Noting(assigned=seek)) as consumer:
            assert (await consumer.getone()).value == b"1"


async def test_seek_in_assigned_is_all_that_is_needed_with_offsets_kept_elsewhere() -> None:
    """With auto_offset_reset="none": a missing committed offset is no error before the listener could seek."""

    async def seek(_: object) -> None:
        await asked.caught()
        with pytest.raises(NoOffsetForPartition):
            await consumer.position(T1)
        await asyncio.sleep(0.05)
        consumer.seek(T0, 1)

    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0", b"1")
        asked = cluster.intercept(OffsetFetchRequest, lambda exchange: None)
        async with listening(cluster, "t", listener=Noting(assigned=seek), auto_offset_reset="none") as consumer:
            with pytest.raises(NoOffsetForPartition) as caught:
                await consumer.getone()
            assert caught.value.partitions == {T1}, "the other one has a position, and no error"
            consumer.seek(T1, 0)
            assert (await consumer.getone()).value == b"1"


async def test_position_pause_and_the_offsets_of_the_log_in_assigned() -> None:
    async def look(partitions: frozenset[TopicPartition]) -> None:
        seen[T0] = await consumer.position(T0)
        seen[T1] = (await consumer.end_offsets([T1]))[T1]
        consumer.pause(T0)
        await consumer.seek_to_end(T1)

    seen: dict[TopicPartition, int] = {}
    listener = Noting(assigned=look)
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0")
        cluster.append("t", b"1", partition=1)
        async with listening(cluster, "t", listener=listener) as consumer:
            await listener.heard("assigned")
            assert await consumer.getmany(timeout_ms=200) == {}
            assert seen == {T0: 0, T1: 1}
            consumer.resume(T0)
            assert (await consumer.getone()).value == b"0"


async def test_a_pause_is_over_when_the_partition_was_revoked_and_has_come_back() -> None:
    listener = Noting()
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster, "t", listener=listener) as consumer,
        Polling(consumer),
    ):
        await listener.heard("assigned")
        consumer.pause(T0)
        cluster.add_partitions("t", 2)
        consumer._runtime.cluster_client.metadata.request_update()
        await listener.heard("assigned", "revoked", "assigned")
        assert consumer.paused() == frozenset()


@pytest.mark.parametrize("what", ["assigned", "revoked"])
async def test_the_subscription_can_be_changed_from_inside(what: str) -> None:
    """The changes that follow from it are carried out when the callback is done."""

    async def want_another(_: object) -> None:
        listener.on.clear()
        consumer.subscribe(["u"], listener=listener)
        assert listener.calls[-1] == what

    listener = Noting(**{what: want_another})
    async with (
        Cluster(topics={"t": 1, "u": 1}) as cluster,
        listening(cluster, "t", listener=listener) as consumer,
        Polling(consumer),
    ):
        if what == "revoked":
            await listener.heard("assigned")
            cluster.add_partitions("t", 2)
            consumer._runtime.cluster_client.metadata.request_update()
        await listener.until(lambda: listener.holds == {TopicPartition("u", 0)})
        assert listener.calls == ["assigned", "revoked", "assigned"]


async def test_a_plain_function_will_do_and_one_that_is_slow_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Plain(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            consumer.seek(T0, 1)
            time.sleep(0.15)

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1")
        async with listening(cluster, "t", listener=Plain()) as consumer:
            assert (await consumer.getone()).value == b"1"
    assert "Plain.on_partitions_assigned() held the event loop for " in caplog.text


# What a listener may not do


@pytest.mark.parametrize(
    "call", [lambda c: c.getmany(timeout_ms=0), lambda c: c.getone(), lambda c: anext(aiter(c)), lambda c: c.stop()]
)
@pytest.mark.parametrize("in_task", [False, True])
async def test_what_would_wait_for_the_listener_itself_is_an_error(call: Callable[[Any], Any], in_task: bool) -> None:
    """Also in a task that the callback waits for, but not in a task that goes on after the callback."""

    async def ask(_: object) -> None:
        with pytest.raises(UsageError, match="inside a rebalance listener"):
            await (asyncio.ensure_future(in_a_task()) if in_task else call(consumer))
        refused.append(True)

    async def in_a_task() -> None:
        await call(consumer)

    refused: list[bool] = []
    listener = Noting(assigned=ask, revoked=ask)
    async with Cluster(topics={"t": 1}) as cluster, listening(cluster, "t", listener=listener) as consumer:
        await listener.heard("assigned")
    assert refused == [True, True]


async def test_a_task_that_the_listener_leaves_behind_may_read() -> None:
    async def start(_: object) -> None:
        tasks.append(asyncio.ensure_future(read()))

    async def read() -> bytes | None:
        await done.wait()
        return (await consumer.getone()).value

    done = asyncio.Event()
    tasks: list[asyncio.Task[bytes | None]] = []
    listener = Noting(assigned=start)
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with listening(cluster, "t", listener=listener) as consumer:
            await listener.heard("assigned")
            done.set()
            assert await tasks[0] == b"0"


# When a listener is called


async def test_no_record_is_returned_before_assigned_is_done() -> None:
    gate = Gate()
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with listening(cluster, "t", listener=Noting(assigned=gate)) as consumer:
            reading = asyncio.ensure_future(consumer.getone())
            await gate.began.wait()
            await asyncio.sleep(0.2)
            assert not reading.done()
            gate.go_on.set()
            assert (await reading).value == b"0"


async def test_kept_partitions_are_read_while_the_listener_hears_of_added_ones() -> None:
    async def slow(partitions: frozenset[TopicPartition]) -> None:
        if partitions == {T1}:
            began.set()
            await go_on.wait()

    began, go_on = asyncio.Event(), asyncio.Event()
    listener = Noting(assigned=slow)
    async with (
        Cluster(topics={"t": 1}) as cluster,
        listening(cluster, "t", listener=listener, **COOPERATIVE) as consumer,
        Polling(consumer) as user,
    ):
        await listener.heard("assigned")
        cluster.add_partitions("t", 2)
        cluster.append("t", b"new", partition=1)
        consumer._runtime.cluster_client.metadata.request_update()
        await began.wait()
        cluster.append("t", b"kept")
        assert await user.has(1) == [b"kept"]
        go_on.set()
        assert await user.has(2) == [b"kept", b"new"]


@pytest.mark.parametrize("how", ["getmany", "commit", "commit batch"])
async def test_a_revocation_waits_for_the_batch_in_hand_and_returns_nothing_more(how: str) -> None:
    """It waits until the next getmany(), or a commit of that batch. Then the listener is called, and no call returns
    records meanwhile."""

    gate = Gate()
    listener = Noting(revoked=gate)
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        async with listening(cluster, "t", listener=listener, client_id="b") as consumer:
            batch = await consumer.getmany(max_records=1)
            async with listening(cluster, "t", client_id="a") as other, Polling(other):
                async with asyncio.timeout(10):
                    while not consumer._runtime.subscription[T0].blocked:
                        await consumer._runtime.membership.moved.wait()  # type: ignore[union-attr]
                await asyncio.sleep(0.05)
                assert listener.calls == ["assigned"]
                if how == "getmany":
                    assert await consumer.getmany(timeout_ms=50) == {}
                else:
                    await consumer.commit(batch if how == "commit batch" else None)
                await gate.began.wait()
                assert await consumer.getmany(timeout_ms=50) == {}
                gate.go_on.set()
                await listener.until(lambda: listener.done >= 2)


# A listener's errors


@pytest.mark.parametrize("what", ["assigned", "revoked", "lost"])
async def test_an_exception_is_raised_as_itself_by_the_next_call_and_the_assignment_stays_right(what: str) -> None:
    """Java's KafkaConsumer.poll() wraps the exception in a KafkaException; here it is raised as itself, once."""

    async def fail(_: object) -> None:
        raise ZeroDivisionError(what)

    listener = Noting(**{what: fail})
    async with (
        Cluster(topics={"t": 2}) as cluster,
        listening(cluster, "t", listener=listener) as consumer,
        Polling(consumer) as user,
    ):
        await listener.heard("assigned")
        if what == "lost":
            cluster.expire_member("g")
            await listener.heard("assigned", "lost", "assigned")
        if what == "revoked":
            cluster.add_partitions("t", 3)
            consumer._runtime.cluster_client.metadata.request_update()
            await listener.heard("assigned", "revoked", "assigned")
        cluster.append("t", b"0")
        await user.has(1)
        assert [(type(error), str(error)) for error in user.errors] == [(ZeroDivisionError, what)]
        assert consumer.assignment() == listener.holds
        listener.on.clear()


async def test_no_record_comes_before_the_error_of_assigned() -> None:
    """The callback may have failed to seek: then the consumer would read from a position that was not wanted."""

    async def fail(_: object) -> None:
        raise ZeroDivisionError

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        listener = Noting(assigned=fail)
        async with listening(cluster, "t", listener=listener) as consumer:
            await listener.heard("assigned")
            with pytest.raises(ZeroDivisionError):
                await consumer.getmany()
            assert (await consumer.getone()).value == b"0"


async def test_an_error_in_stop_is_raised_by_stop_when_everything_is_closed() -> None:
    async def fail(_: object) -> None:
        raise ZeroDivisionError

    listener = Noting(revoked=fail)
    async with Cluster(topics={"t": 1}) as cluster:
        consumer = listening(cluster, "t", listener=listener)
        await consumer.start()
        await listener.heard("assigned")
        with pytest.raises(ZeroDivisionError):
            await consumer.stop()
        assert cluster.members("g") == []
        await consumer.stop()


async def test_the_exception_that_ends_the_block_is_not_replaced_by_one_of_the_listener() -> None:
    async def fail(_: object) -> None:
        raise ZeroDivisionError

    listener = Noting(revoked=fail)
    async with Cluster(topics={"t": 1}) as cluster:
        with pytest.raises(KeyError):  # noqa: PT012
            async with listening(cluster, "t", listener=listener):
                await listener.heard("assigned")
                raise KeyError
        listener = Noting(revoked=fail)
        with pytest.raises(ZeroDivisionError):
            async with listening(cluster, "t", listener=listener):
                await listener.heard("assigned")


async def test_a_callback_that_awaits_what_was_cancelled_ends_nothing_but_itself() -> None:
    async def await_cancelled(_: object) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    listener = Noting(assigned=await_cancelled)
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with listening(cluster, "t", listener=listener) as consumer:
            await listener.heard("assigned")
            with pytest.raises(UsageError, match="CancelledError"):
                await consumer.getone()
            assert (await consumer.getone()).value == b"0"
            consumer.unsubscribe()
            await listener.heard("assigned", "revoked")


@pytest.mark.parametrize("raised", [StopAsyncIteration("stop"), StopIteration("stop"), GeneratorExit("stop")], ids=repr)
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_would_end_an_iteration_in_silence_is_an_error_of_the_callback(
    raised: BaseException, is_async: bool
) -> None:
    class Raising(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
            if is_async and not isinstance(raised, StopIteration):  # a coroutine makes it a RuntimeError
                return self.later()
            raise raised

        async def later(self) -> None:
            await asyncio.sleep(0)
            raise raised

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with asyncio.timeout(20), listening(cluster, "t", listener=Raising()) as consumer:
            with pytest.raises(UsageError, match=r"Raising\.on_partitions_assigned\(\) raised .*\('stop'\)") as got:
                [record async for record in consumer]
            assert got.value.__cause__ is raised
            assert (await anext(aiter(consumer))).value == b"0"
            assert consumer.health().running


@pytest.mark.parametrize("kind", [StopAsyncIteration, OSError])
async def test_an_error_that_cannot_say_what_it_is_ends_nothing(kind: type[Exception]) -> None:
    class Unreadable(kind):  # type: ignore[misc, valid-type]
        def __repr__(self) -> str:
            raise asyncio.CancelledError

    class Raising(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            raise Unreadable

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with asyncio.timeout(20), listening(cluster, "t", listener=Raising()) as consumer:
            with pytest.raises((UsageError, Unreadable)):
                await consumer.getone()
            assert (await consumer.getone()).value == b"0"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_callback_may_be_any_callable(is_async: bool) -> None:
    """A mock and a partial, for instance, have no ``__name__``."""
    listener = Mock(spec=RebalanceListener)
    listener.on_partitions_revoked = (AsyncMock if is_async else Mock)(side_effect=LookupError("spoilt"))
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with asyncio.timeout(20):
            consumer = await listening(cluster, "t", listener=listener).__aenter__()
            assert (await consumer.getone()).value == b"0"
            listener.on_partitions_assigned.assert_called_once_with(frozenset({T0}))
            with pytest.raises(LookupError, match="spoilt"):
                await consumer.stop()
            listener.on_partitions_revoked.assert_called_once_with(frozenset({T0}))


async def test_a_listener_without_a_callback_that_can_be_called_is_told_so() -> None:
    class Spoilt(RebalanceListener):
        on_partitions_assigned = None  # type: ignore[assignment]

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with asyncio.timeout(20), listening(cluster, "t", listener=Spoilt()) as consumer:
            with pytest.raises(TypeError, match="not callable"):
                await consumer.getone()
            assert (await consumer.getone()).value == b"0"


# A listener's time


async def test_a_callback_that_takes_too_long_is_cancelled_and_the_next_call_raises_it() -> None:
    async def hang_once(_: object) -> None:
        if listener.count("assigned") == 1:
            await asyncio.Event().wait()

    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        listener = Noting(assigned=hang_once)
        async with listening(cluster, "t", listener=listener, max_poll_interval_ms=1_000) as consumer:
            with pytest.raises(
                ListenerTimedOut, match=r"for t-0 was cancelled: not done after \d+(\.\d+)? s, what was left of max"
            ):
                await consumer.getmany()
            assert (await consumer.getone()).value == b"0"


async def test_a_lock_shared_by_the_loop_and_the_listener_ends_with_the_time_of_the_callback() -> None:
    """The reading task holds the lock and waits for records, which wait for the listener, which waits for the lock."""

    async def take_the_lock(_: object) -> None:
        async with lock:
            pass

    lock = asyncio.Lock()
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        listener = Noting(assigned=take_the_lock)
        async with listening(cluster, "t", listener=listener, max_poll_interval_ms=1_000) as consumer:
            with pytest.raises(ListenerTimedOut):
                async with lock:
                    await consumer.getmany()
            assert (await consumer.getone()).value == b"0"


@pytest.mark.parametrize("group", ["g", None])
async def test_stop_ends_in_its_time_whatever_the_listener_does(group: str | None) -> None:
    async def hang(_: object) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(True)
                if len(swallowed) > 5:
                    raise

    swallowed: list[bool] = []
    for timeout_ms in (3_000, 20_000):  # of the first one, a quarter may be too little on a busy machine
        swallowed.clear()
        listener = Noting(revoked=hang)
        async with Cluster(topics={"t": 1}) as cluster:
            consumer = listening(cluster, "t", listener=listener, group=group)
            await consumer.start()
            await listener.heard("assigned")
            start, raised = time.monotonic(), False
            try:
                await consumer.stop(timeout_ms=timeout_ms)
            except ListenerTimedOut:
                raised = True
            assert time.monotonic() - start < timeout_ms / 1e3 + 22
            left = cluster.members("g")
        if raised and not left:
            break
    assert raised
    assert left == []


async def test_a_consumer_that_was_never_started_has_nothing_to_tell() -> None:
    listener = Noting()
    consumer = Consumer("t", listener=listener, group_id="g")
    await consumer.stop()
    assert listener.told == []
