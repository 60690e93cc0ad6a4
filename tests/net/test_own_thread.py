"""OwnThread: the daemon thread that runs plain functions: what it returns, raises and survives, and when it ends."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from aiokc.errors import ConnectionFailed, UsageError
from aiokc.net.own_thread import OwnThread, OwnThreads, ThreadForEach
from aiokc.testing.virtual.loop import VirtualLoop

SECONDS = 10.0


def names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@pytest.mark.any_loop
async def test_functions_run_one_after_the_other_in_one_daemon_thread() -> None:
    own = OwnThread("mine")
    assert "mine" not in names()
    seen = await asyncio.gather(*(own.run(lambda n=n: (n, threading.current_thread())) for n in range(5)))  # type: ignore[misc]
    assert [number for number, _ in seen] == [0, 1, 2, 3, 4]
    (thread,) = {thread for _, thread in seen}
    assert (thread.name, thread.daemon) == ("mine", True)
    own.close()
    thread.join(SECONDS)
    assert not thread.is_alive()


@pytest.mark.any_loop
async def test_errors_are_raised_and_the_thread_goes_on() -> None:
    own = OwnThread("mine")
    with pytest.raises(ZeroDivisionError):
        await own.run(lambda: 1 // 0)
    for mistaken in (StopIteration, SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):

        def fail(kind: type[BaseException] = mistaken) -> None:
            raise kind

        with pytest.raises(UsageError, match=r"fail (raised|ended)") as caught:
            await own.run(fail)
        assert isinstance(caught.value.__cause__, mistaken)
    assert await own.run(lambda: "alive") == "alive"
    own.close()


@pytest.mark.any_loop
async def test_without_a_thread_to_spare_the_call_fails_and_the_next_one_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    own = OwnThread("mine")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(2):
            with pytest.raises(ConnectionFailed, match=r"'mine' can't be started \(can't start new thread\)"):
                await own.run(lambda: None)
    assert await own.run(lambda: "alive") == "alive"
    own.close()


@pytest.mark.any_loop
async def test_a_cancelled_caller_gets_nothing_and_its_function_does_not_start_any_more() -> None:
    own, go, ran = OwnThread("mine"), threading.Event(), list[str]()
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def slow() -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait(SECONDS)
        ran.append("slow")

    first = asyncio.create_task(own.run(slow))
    second = asyncio.create_task(own.run(lambda: ran.append("second")))
    await begun.wait()
    first.cancel()
    second.cancel()
    await asyncio.wait((first, second))
    assert first.cancelled()
    assert second.cancelled()
    third = asyncio.create_task(own.run(lambda: ran.append("third")))
    await asyncio.sleep(0)
    go.set()
    await third
    assert ran == ["slow", "third"]
    own.close()


async def test_what_was_given_before_the_close_is_run_and_a_later_run_starts_another_thread() -> None:
    own, go = OwnThread("mine"), threading.Event()
    given = asyncio.create_task(own.run(lambda: go.wait(SECONDS)))
    await asyncio.sleep(0)
    (first,) = (thread for thread in threading.enumerate() if thread.name == "mine")
    own.close()
    own.close()
    go.set()
    assert await given
    first.join(SECONDS)
    assert not first.is_alive()
    assert await own.run(threading.current_thread) is not first
    own.close()


async def test_the_thread_ends_when_its_owner_is_forgotten() -> None:
    own = OwnThread("mine")
    thread = await own.run(threading.current_thread)
    del own
    gc.collect()
    thread.join(SECONDS)
    assert not thread.is_alive()


async def test_a_thread_at_rest_keeps_nothing_alive() -> None:
    class Thing:
        pass

    own, gone = OwnThread("mine"), threading.Event()
    thing = Thing()
    weakref.finalize(thing, gone.set)
    await own.run(lambda thing=thing: None)  # type: ignore[misc]
    del thing
    assert await asyncio.to_thread(gone.wait, SECONDS)
    own.close()


def test_in_virtual_time_functions_run_at_once() -> None:
    loop = VirtualLoop()
    own = OwnThread("mine")
    assert loop.run_until_complete(own.run(threading.current_thread)) is threading.current_thread()
    assert "mine" not in names()
    loop.close()


@pytest.mark.any_loop
async def test_threads_start_one_by_one_for_what_finds_none_at_rest_and_no_more_than_allowed() -> None:
    own, go = OwnThreads("some", 2), threading.Event()
    first = await own.run(threading.current_thread)
    busy = [asyncio.ensure_future(own.run(lambda: go.wait(SECONDS) and threading.current_thread())) for _ in range(5)]
    await asyncio.sleep(0)
    threads = [thread for thread in threading.enumerate() if thread.name == "some"]
    assert len(threads) == 2
    assert first in threads
    go.set()
    assert {thread for thread in await asyncio.gather(*busy) if thread} <= set(threads)
    own.close()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


async def test_where_no_further_thread_can_be_had_the_one_that_there_is_does_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    own = OwnThreads("some", 3)
    thread = await own.run(threading.current_thread)
    monkeypatch.setattr(threading.Thread, "start", refused)
    assert set(await asyncio.gather(*(own.run(threading.current_thread) for _ in range(3)))) == {thread}
    own.close()


@pytest.mark.any_loop
async def test_each_function_has_a_daemon_thread_that_holds_up_no_other() -> None:
    loop, threads, go = asyncio.get_running_loop(), ThreadForEach("each"), threading.Event()
    hanging = loop.run_in_executor(threads, go.wait, SECONDS)
    other = await loop.run_in_executor(threads, threading.current_thread)
    assert (other.name, other.daemon) == ("each", True)
    go.set()
    assert await hanging
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(threads, lambda: 1 // 0)
