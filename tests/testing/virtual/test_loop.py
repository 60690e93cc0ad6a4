"""The loop with virtual time: it jumps, keeps order, freezes hosts, and raises when nothing can happen any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from random import Random

import anyio
import pytest

from aiokc.testing.virtual.hosts import current_host
from aiokc.testing.virtual.loop import BusyLoop, NothingLeft, TooLate, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(Random(1))
    yield loop
    loop.end()
    assert loop.errors == []


def test_an_hour_takes_no_time(loop: VirtualLoop) -> None:
    async def hour() -> float:
        began = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - began

    began = time.thread_time()
    assert loop.run_until_complete(hour()) == pytest.approx(3600)
    assert time.thread_time() - began < 1


def test_timers_of_one_instant_fire_in_the_order_of_their_calls(loop: VirtualLoop) -> None:
    seen: list[int] = []
    at = loop.time() + 1
    for number in range(50):
        loop.call_at(at, seen.append, number)
    loop.run_until_complete(asyncio.sleep(2))
    assert seen == list(range(50))


def test_a_cancelled_timer_is_no_reason_to_wait(loop: VirtualLoop) -> None:
    loop.call_later(1000, print).cancel()
    loop.run_until_complete(asyncio.sleep(1))
    assert loop.time() < 1002


def test_time_passes_for_tasks_that_spin(loop: VirtualLoop) -> None:
    async def spin() -> None:
        deadline = loop.time() + 0.01
        while loop.time() < deadline:  # noqa: ASYNC110  (the point of the test)
            await asyncio.sleep(0)

    loop.run_until_complete(spin())


def test_a_loop_that_never_waits_is_an_error(loop: VirtualLoop) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110  (the point of the test)
            await asyncio.sleep(0)

    with pytest.raises(BusyLoop, match="spin"):
        loop.run_until_complete(spin())


def test_a_deadlock_is_an_error_that_names_the_waiting_tasks(loop: VirtualLoop) -> None:
    async def forgotten() -> None:
        await loop.create_future()

    with pytest.raises(NothingLeft, match="forgotten"):
        loop.run_until_complete(forgotten())


def test_timeouts_and_task_groups_work(loop: VirtualLoop) -> None:
    async def main() -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asyncio.sleep, 5)
            with anyio.move_on_after(3) as scope:
                await asyncio.sleep(10)
            assert scope.cancelled_caught
        try:
            async with asyncio.timeout(3):
                await asyncio.Event().wait()
        except TimeoutError:
            return f"{loop.time() - 1000:.2f}"
        return ""

    assert loop.run_until_complete(main()) == "8.00"


def test_the_executor_runs_at_once_and_answers_later(loop: VirtualLoop) -> None:
    def fails() -> None:
        raise ValueError("no")

    async def main() -> None:
        ran: list[int] = []
        future = loop.run_in_executor(None, ran.append, 1)
        assert ran == [1]
        assert not future.done()
        await future
        with pytest.raises(ValueError, match="no"):
            await loop.run_in_executor(None, fails)

    loop.run_until_complete(main())


def test_a_frozen_host_stands_still_and_goes_on_where_it_was(loop: VirtualLoop) -> None:
    seen: list[tuple[str, float]] = []

    async def ticking() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append((current_host(), round(loop.time() - 1000, 1)))

    async def main() -> None:
        ticking_tasks = [loop.spawn_on(host, ticking()) for host in "ab"]
        await asyncio.sleep(1.5)
        loop.freeze("a")
        await asyncio.sleep(3)
        loop.thaw("a")
        await asyncio.sleep(0.7)
        assert not any(task.done() for task in ticking_tasks)

    loop.run_until_complete(main())
    assert [at for host, at in seen if host == "b"] == [1, 2, 3, 4, 5]
    assert [at for host, at in seen if host == "a"] == [1, 4.5]  # the second one late


def test_sets_of_tasks_and_futures_have_an_order_of_their_own(loop: VirtualLoop) -> None:
    async def main() -> None:
        tasks = [loop.create_task(asyncio.sleep(0)) for _ in range(100)]
        await asyncio.wait(tasks)
        futures = [loop.create_future() for _ in range(100)]
        for made in (tasks, futures):
            assert [hash(one) - hash(made[0]) for one in made] == list(range(100))

    loop.run_until_complete(main())


def test_uncaught_errors_are_kept(loop: VirtualLoop) -> None:
    def fails() -> None:
        raise ValueError("nobody catches this")

    loop.call_soon(fails)
    loop.run_until_complete(asyncio.sleep(1))
    (error,) = loop.errors
    assert str(error["exception"]) == "nobody catches this"
    loop.errors.clear()


def test_time_that_goes_on_for_ever_ends() -> None:
    loop = VirtualLoop(most_seconds=60)

    async def waits_in_vain() -> None:
        await asyncio.Event().wait()

    async def ticks() -> None:
        while True:  # noqa: ASYNC110  (the point of the test)
            await asyncio.sleep(1)

    async def main() -> None:
        await asyncio.gather(waits_in_vain(), ticks())

    with pytest.raises(TooLate, match=r"these go on: .*waits_in_vain.*ticks"):
        loop.run_until_complete(main())
    assert loop.time() == pytest.approx(1061, abs=1)
    loop.end()


def test_the_end_does_not_wait_for_tasks_that_ignore_cancellation() -> None:
    loop = VirtualLoop()

    async def deaf() -> None:
        while not heard.is_set():
            try:
                async with asyncio.timeout(1):
                    await heard.wait()
            except (asyncio.CancelledError, TimeoutError):
                pass

    heard = asyncio.Event()
    task = loop.create_task(deaf())
    loop.run_until_complete(asyncio.sleep(5))
    with pytest.raises(TooLate, match="deaf"):
        loop.end()
    heard.set()
    loop.end()
    assert task.done()
