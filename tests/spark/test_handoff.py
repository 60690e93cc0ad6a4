"""The loop's thread, and the queue between it and a blocking iterator."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from aiokc.errors import RequestTimedOut
from spark_source import handoff as handoff_module
from spark_source.handoff import Handoff
from spark_source.loop_thread import LoopThread


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    running = LoopThread("test loop")
    yield running
    running.close(timeout=60)


def test_items_arrive_in_order_and_end(thread: LoopThread) -> None:
    handoff: Handoff[int] = Handoff(thread, max_bytes=10)

    async def put_all() -> None:
        for number in range(1000):
            await handoff.put(number, 1)
        handoff.finish()

    putting = thread.submit(put_all())

    assert list(handoff) == list(range(1000))
    assert putting.result(60) is None


def test_not_more_than_the_bound_is_held(thread: LoopThread) -> None:
    handoff: Handoff[int] = Handoff(thread, max_bytes=10)
    put: list[int] = []

    async def put_all() -> None:
        for number in range(6):
            await handoff.put(number, 4)
            put.append(number)
        await handoff.put(6, 99)
        handoff.finish()

    async def put_after_other_tasks_ran() -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        return len(put)

    thread.submit(put_all())

    seen = []
    for item in handoff:
        held = thread.call(put_after_other_tasks_ran(), what="a turn", timeout=60) - item
        seen.append((item, held))

    assert [item for item, _ in seen] == list(range(7))
    assert max(held for _, held in seen) <= 3, "two wait in the queue while one is being worked on"


def test_an_error_comes_behind_the_items(thread: LoopThread) -> None:
    handoff: Handoff[int] = Handoff(thread, max_bytes=10)
    thread.call(handoff.put(1, 1), what="put", timeout=60)
    handoff.finish(OSError("gone"))
    items = iter(handoff)

    assert next(items) == 1
    with pytest.raises(OSError, match="gone"):
        next(items)


def test_a_waiting_iterator_raises_when_the_loop_has_ended(thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoff_module, "_LOOK_SECONDS", 0.01)
    handoff: Handoff[int] = Handoff(thread, max_bytes=10)
    thread.call(handoff.put(1, 1), what="put", timeout=60)
    items = iter(handoff)
    assert next(items) == 1
    thread.close(timeout=60)

    with pytest.raises(RuntimeError, match="ended before it was done"):
        next(items)


def test_a_loop_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more_files() -> asyncio.AbstractEventLoop:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", no_more_files)
    monkeypatch.setattr(asyncio.events, "new_event_loop", no_more_files)

    with pytest.raises(OSError, match="Too many open files"):
        LoopThread("test loop")


def test_a_call_has_a_deadline_and_is_cancelled(thread: LoopThread) -> None:
    began, cancelled = threading.Event(), threading.Event()

    async def forever() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    for seconds in (1, 5, 20):
        with pytest.raises(RequestTimedOut, match=rf"waiting took longer than {seconds}(\.0)? s"):
            thread.call(forever(), what="waiting", timeout=seconds)
        if began.is_set():  # on a busy machine the loop may have no turn by then
            break
    assert cancelled.wait(60)


def test_the_errors_of_a_call_are_its_own(thread: LoopThread) -> None:
    async def fail() -> None:
        raise RequestTimedOut("the broker is silent")

    with pytest.raises(RequestTimedOut, match="the broker is silent"):
        thread.call(fail(), what="failing", timeout=60)


def test_closing_cancels_what_runs() -> None:
    thread = LoopThread("test loop")
    started = threading.Event()

    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    running = thread.submit(forever())
    assert started.wait(60)

    thread.close(timeout=60)
    thread.close(timeout=60)

    assert running.cancelled()
