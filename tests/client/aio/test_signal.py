"""Signal: it wakes the tasks that wait for it at that moment, and those that wait for a signal that follows it."""

from __future__ import annotations

import asyncio

import pytest

from aiokc.client.aio.signal import Signal
from aiokc.net.reply import Reply

pytestmark = pytest.mark.any_loop


async def test_every_waiting_task_is_woken_and_no_later_one() -> None:
    signal = Signal()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(signal.wait(20)) for _ in range(3)]
        await asyncio.sleep(0)  # let them begin
        signal.notify()
    assert [task.result() for task in waiting] == [True, True, True]
    assert not await signal.wait(0.01), "a notification is not kept for those who come later"


async def test_they_are_woken_in_the_order_in_which_they_came() -> None:
    signal = Signal()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await signal.wait(20)
        woken.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(50):
            tasks.create_task(wait(number))
        await asyncio.sleep(0)
        signal.notify()
    assert woken == list(range(50))


async def test_what_an_answer_brings_wakes_them_before_the_callback_returns_that_has_read_it() -> None:
    signal, follower, reply = Signal(), Signal(), Reply()
    signal.followed_by(follower)
    steps: list[str] = []

    async def answered() -> None:
        await reply
        signal.notify()
        steps.append("answered")

    async def wait(number: int) -> None:
        assert await follower.wait(20)
        steps.append(f"woken {number}")

    def read() -> None:
        reply.hand_over(memoryview(b""))
        steps.append("read")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(answered())
        for number in range(3):
            tasks.create_task(wait(number))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(read)
    assert steps == ["answered", "woken 0", "woken 1", "woken 2", "read"]


async def test_no_time_to_wait() -> None:
    assert not await Signal().wait(0)
    assert not await Signal().wait(-1)


async def test_followers_are_notified_until_they_are_no_followers() -> None:
    signal, follower = Signal(), Signal()
    signal.followed_by(follower)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(follower.wait(20))
        await asyncio.sleep(0)
        signal.notify()
    assert waiting.result()
    signal.not_followed_by(follower)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(follower.wait(0.01))
        await asyncio.sleep(0)
        signal.notify()
    assert not waiting.result()


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    signal = Signal()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await signal.wait()
    assert not signal._waiters
    signal.notify()
