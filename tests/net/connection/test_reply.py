"""Replies: the waiting task goes on in the very step that brings the reply, wherever that is possible, and in order."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from aiokc.net.reply import Reply

BODY = memoryview(b"body")


async def waiting(reply: Reply, steps: list[str]) -> asyncio.Task[None]:
    """Return a task that waits for the reply."""

    async def wait() -> None:
        try:
            assert await reply == BODY
            steps.append("went on")
        except BaseException as error:
            steps.append(type(error).__name__)
            raise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    return task


async def in_a_callback(reply: Reply, steps: list[str]) -> None:
    """Hand over the reply as a transport does, and note when that call has returned."""

    done = asyncio.Event()

    def receive() -> None:
        reply.hand_over(BODY)
        steps.append("handed over")
        done.set()

    asyncio.get_running_loop().call_soon(receive)
    await done.wait()


async def test_the_task_goes_on_before_the_callback_returns() -> None:
    reply, steps = Reply(), list[str]()
    task = await waiting(reply, steps)
    await in_a_callback(reply, steps)
    assert steps == ["went on", "handed over"]
    await task


async def test_within_a_task_the_other_one_goes_on_later() -> None:
    reply, steps = Reply(), list[str]()
    task = await waiting(reply, steps)
    reply.hand_over(BODY)
    assert steps == []
    await task
    assert steps == ["went on"]


async def test_the_reply_may_come_before_it_is_awaited() -> None:
    reply, steps = Reply(), list[str]()
    await in_a_callback(reply, steps)
    await (await waiting(reply, steps))
    assert steps == ["handed over", "went on"]


async def test_a_failure_wakes_the_task_in_a_later_round() -> None:
    reply, steps = Reply(), list[str]()
    task = await waiting(reply, steps)
    reply.set_exception(ConnectionError())
    assert steps == []
    with pytest.raises(ConnectionError):
        await task


async def test_a_cancelled_task_is_not_woken_twice() -> None:
    reply, steps = Reply(), list[str]()
    task = await waiting(reply, steps)
    task.cancel()
    assert reply.cancelled()  # so the connection hands nothing over any more
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["CancelledError"]


async def test_a_task_that_is_cancelled_by_the_step_itself_ends_at_its_next_wait() -> None:
    reply, steps = Reply(), list[str]()

    async def wait() -> None:
        await reply
        task.cancel()
        steps.append("went on")
        await asyncio.sleep(60)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await in_a_callback(reply, steps)
    assert steps == ["went on", "handed over"]
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_task_keeps_its_own_context() -> None:
    mine = ContextVar("mine", default="nobody's")
    seen = []

    async def wait(name: str, reply: Reply) -> None:
        mine.set(name)
        await reply
        seen.append((name, mine.get()))

    replies = [Reply(), Reply()]
    tasks = [asyncio.create_task(wait(f"task {number}", reply)) for number, reply in enumerate(replies)]
    await asyncio.sleep(0)
    for reply in replies:
        await in_a_callback(reply, [])
    await asyncio.gather(*tasks)
    assert seen == [("task 0", "task 0"), ("task 1", "task 1")]


async def test_an_error_behind_it_is_the_tasks() -> None:
    reply, steps = Reply(), list[str]()

    async def wait() -> None:
        await reply
        raise LookupError

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await in_a_callback(reply, steps)
    assert steps == ["handed over"]
    with pytest.raises(LookupError):
        await task
