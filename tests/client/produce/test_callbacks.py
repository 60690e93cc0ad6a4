"""Callbacks in turns: what one raises, be it a KeyboardInterrupt, keeps no other one from being called.

Also in stop(), which waits for all of them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from functools import partial
from unittest.mock import patch

import anyio
import pytest

from aiokc import Producer
from aiokc.client.produce import callbacks as callbacks_module
from aiokc.client.produce.callbacks import Callbacks
from aiokc.client.producer import runtime
from aiokc.core.transactions.transitions import State
from aiokc.errors import BufferFull, RequestTimedOut
from aiokc.testing import Cluster
from tests.client.virtually import virtually

pytestmark = pytest.mark.timeout(30)


def test_a_keyboard_interrupt_in_a_callback_ends_the_run_and_the_others_are_called_all_the_same() -> None:
    loop = asyncio.new_event_loop()
    called: list[int] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    def due() -> None:
        callbacks.add([lambda: called.append(1), interrupted, lambda: called.append(2)])
        callbacks.add([lambda: called.append(3)])
        callbacks.begin()

    try:
        callbacks = Callbacks()
        loop.call_later(0.01, due)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.sleep(10))
        loop.run_until_complete(asyncio.sleep(0.05))  # where the turn was over before, the others had another one
        assert called == [1, 2, 3]
        assert not callbacks.running
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


async def test_other_tasks_run_between_the_callbacks_that_stop_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All records fail within stop() here: their callbacks do not hold the event loop until the last one is called."""
    monkeypatch.setattr(runtime, "_CALLBACKS_SECONDS", 20.0)  # where the machine is busy, a second is too short
    called: Counter[int] = Counter()
    rounds = 0

    def done(_metadata: object, _error: object) -> None:
        called[rounds] += 1

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async with Cluster(topics={"t": 1}) as cluster:
        producer: Producer[bytes, bytes] = Producer(bootstrap_servers=cluster.bootstrap)
        await producer.start()
        await producer.partitions_for("t")
        for _ in range(20_000):
            producer.send_soon("t", b"", on_done=done)
        counting = asyncio.create_task(count_rounds())
        await producer.stop(timeout_ms=0)
        counting.cancel()
    assert called.total() == 20_000
    assert max(called.values()) < 10_000


async def test_where_the_wait_for_callbacks_is_cancelled_they_are_called_at_once() -> None:
    callbacks = Callbacks()
    called: list[int] = []

    def first() -> None:
        called.append(0)
        waits.cancel()

    callbacks.add([first])
    callbacks.add(partial(called.append, number) for number in range(1, 50_000))
    waits = asyncio.create_task(callbacks.all_called(lambda: math.inf))
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert called == list(range(50_000))


async def test_callbacks_that_take_too_long_for_stop_come_after_it(caplog: pytest.LogCaptureFixture) -> None:
    callbacks, called, done = Callbacks(), list[int](), asyncio.Event()
    callbacks.add(partial(called.append, number) for number in range(3))
    callbacks.add([lambda: called.append(3), done.set])
    await callbacks.all_called(lambda: -math.inf)
    assert called == []
    assert "the callbacks of 2 batches take too long" in caplog.messages[0]
    await done.wait()
    assert called == [0, 1, 2, 3]


@pytest.mark.parametrize("transactional_id", [None, "id"])
@pytest.mark.parametrize("impatience", ["a cancelled task", "a cancelled scope", "a second call"])
async def test_who_has_lost_patience_with_stop_does_not_wait_for_all_callbacks(
    impatience: str, transactional_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it takes 30 s, after which Kubernetes kills the process."""
    monkeypatch.setattr(runtime, "_CALLBACKS_SECONDS", 0.0)
    called, scope = asyncio.Event(), anyio.CancelScope()

    async def stop() -> None:
        with scope:
            await producer.stop()

    async with Cluster(topics={"t": 1}) as cluster:
        producer: Producer[bytes, bytes] = Producer(
            bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id
        )
        await producer.start()
        if transactional_id is not None:
            await producer.begin_transaction()
        callbacks = producer._runtime.callbacks
        callbacks.add([called.set])
        callbacks.add(partial(time.sleep, 0.001) for _ in range(100_000))
        callbacks.begin()
        stopping = asyncio.create_task(stop())
        await called.wait()
        assert not stopping.done()
        async with asyncio.timeout(15):
            match impatience:
                case "a cancelled task":
                    stopping.cancel()
                case "a cancelled scope":
                    scope.cancel()
                case _:
                    await producer.stop()
            await asyncio.wait([stopping])
        assert stopping.cancelled() == (impatience == "a cancelled task")
        callbacks._due.clear()


async def test_a_scope_may_be_cancelled_in_the_step_that_ends_the_wait_of_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then anyio cannot cancel that wait any more; the last steps are no earlier cancellation's, and are hurried."""
    monkeypatch.setattr(runtime, "_CALLBACKS_SECONDS", 0.0)
    loop, scope = asyncio.get_running_loop(), anyio.CancelScope()

    async def arrived(timeout: float) -> None:
        arrival = loop.create_future()

        def arrive() -> None:
            arrival.set_result(None)
            scope.cancel()

        loop.call_soon(arrive)
        await arrival

    async with Cluster(topics={"t": 1}) as cluster:
        producer: Producer[bytes, bytes] = Producer(bootstrap_servers=cluster.bootstrap)
        await producer.start()
        monkeypatch.setattr(producer._runtime.sender, "arrived", arrived)
        callbacks = producer._runtime.callbacks
        callbacks.add(partial(time.sleep, 0.001) for _ in range(100_000))
        async with asyncio.timeout(15):
            with scope:
                await producer.stop()
        assert scope.cancel_called
        assert callbacks._due, "stop() has waited for all of them"
        callbacks._due.clear()


async def test_a_scope_that_was_cancelled_before_takes_no_time_away_from_callbacks() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        producer: Producer[bytes, bytes] = Producer(bootstrap_servers=cluster.bootstrap)
        await producer.start()
        with anyio.CancelScope() as scope, patch.object(runtime, "_CALLBACKS_SECONDS", 0.0):
            called = list[int]()
            producer._runtime.callbacks.add([partial(time.sleep, 0.01), partial(called.append, 1)])
            scope.cancel()
            await producer.stop()
        assert called == [1]


def test_callbacks_that_wait_for_their_turn_make_sends_wait() -> None:
    """buffer_memory bounds them: else they would pile up where they take longer than the sends."""

    async def story(cluster: Cluster) -> None:
        called: list[object] = []
        async with Producer(bootstrap_servers=cluster.bootstrap, buffer_memory=22_000) as producer:
            callbacks = producer._runtime.callbacks
            with patch.object(callbacks, "begin"):  # no turn comes
                for _ in range(4):
                    await (await producer.send("t", bytes(4_000), on_done=lambda *told: called.append(told)))
                assert producer.health().buffered_bytes > 16_000
                waits = asyncio.create_task(producer.send("t", bytes(4_000)))
                await asyncio.sleep(5.0)
                assert not waits.done()
                with pytest.raises(BufferFull, match="is used up by records whose callbacks were not called yet"):
                    producer.send_soon("t", bytes(4_000))
            callbacks.begin()
            await (await waits)
            assert len(called) == 4
            assert producer.health().buffered_bytes == 0

    virtually(story, topics={"t": 1})


def test_a_callback_that_sends_on_finds_the_memory_of_its_own_batch() -> None:
    """A relay never has more than it began with. A callback can't wait: what finds no room is lost."""

    async def story(cluster: Cluster) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap, buffer_memory=22_000) as producer:
            await producer.partitions_for("t")
            await producer.partitions_for("on")

            def sends_on(_metadata: object, error: Exception | None) -> None:
                assert error is None
                producer.send_soon("on", bytes(1_000))

            for _ in range(18):  # two batches
                producer.send_soon("t", bytes(1_000), on_done=sends_on)
            assert producer.health().buffered_bytes > 20_000
            await producer.flush()
            await producer.flush()  # what the callbacks have sent
            assert cluster.end_offset("on") == 18

    virtually(story, topics={"t": 1, "on": 1})


@pytest.mark.parametrize("ends", ["a flush", "a commit", "an abort"])
def test_who_waits_for_records_goes_on_behind_their_callbacks(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they take more than one turn. As in Java, whose flush() returns behind them."""
    monkeypatch.setattr(callbacks_module, "SLICE_SECONDS", 0.0)  # one call in a turn
    transactional_id = None if ends == "a flush" else "pays"

    async def story(cluster: Cluster) -> None:
        called: list[int] = []

        def send(number: int) -> None:
            producer.send_soon("t", b"", partition=0, on_done=lambda *_: called.append(number))

        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id) as producer:
            if transactional_id is not None:
                await producer.begin_transaction()
            await producer.partitions_for("t")
            for number in range(100):
                send(number)
            match ends:
                case "a flush":
                    await producer.flush()
                case "a commit":
                    await producer.commit_transaction()
                case _:
                    await producer.abort_transaction()
            assert called == list(range(100))

    virtually(story, topics={"t": 1})


async def test_a_flush_does_not_wait_longer_for_callbacks_than_it_may() -> None:
    async with Cluster(topics={"t": 1}) as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        callbacks, called = producer._runtime.callbacks, list[int]()
        with patch.object(callbacks, "begin"):  # no turn comes
            await (await producer.send("t", b"", on_done=lambda *_: called.append(1)))
            with pytest.raises(RequestTimedOut, match="not all callbacks of records were called within"):
                await producer.flush(timeout_ms=10)
        assert called == []
        callbacks.begin()
        await producer.flush()
        assert called == [1]


async def test_a_commit_that_is_cancelled_while_callbacks_are_called_can_be_asked_for_again() -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap, transactional_id="pays") as producer,
    ):
        await producer.begin_transaction()
        callbacks, called = producer._runtime.callbacks, list[int]()
        with patch.object(callbacks, "begin"):  # no turn comes
            await (await producer.send("t", b"", on_done=lambda *_: called.append(1)))
            commits = asyncio.create_task(producer.commit_transaction())
            transactions = producer._runtime.transactions
            assert transactions is not None
            while transactions.machine.state is not State.READY:
                await transactions.moved.wait()
            assert not commits.done()
            commits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commits
        callbacks.begin()
        await producer.commit_transaction()
        assert called == [1]
