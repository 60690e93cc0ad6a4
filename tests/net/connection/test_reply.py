"""Replies: the waiting task goes on in the very step that brings the reply, wherever that is possible, and in order."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context

import pytest

from aiokc.errors import ConnectionFailed
from aiokc.net.reply import Reply, Written
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse

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


class Noting(Written[MetadataResponse]):
    """Notes when it was told of its end."""

    def __init__(self, steps: list[str]) -> None:
        super().__init__(MetadataRequest, 0, 1.0, 2.0, copy_context())
        self._steps = steps

    def on_end(self) -> None:
        self._steps.append("told")


async def test_what_nobody_awaits_is_told_of_in_the_callback_that_reads_it() -> None:
    steps, done = list[str](), asyncio.Event()
    written = Noting(steps)

    def receive() -> None:
        written.has_reply(BODY, 1.5)
        steps.append("read")
        done.set()

    asyncio.get_running_loop().call_soon(receive)
    await done.wait()
    assert (steps, written.result(), written.ended_at) == (["told", "read"], BODY, 1.5)


async def test_within_a_task_it_is_told_of_later() -> None:
    steps = list[str]()
    written = Noting(steps)
    written.has_reply(BODY, 1.5)
    assert steps == []
    await asyncio.sleep(0)
    assert steps == ["told"]


async def test_that_it_fails_is_told_later_and_once() -> None:
    steps = list[str]()
    written = Noting(steps)
    for number in range(2):
        written.has_failed(ConnectionFailed(f"broken {number}"))
    assert steps == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert steps == ["told"]
    with pytest.raises(ConnectionFailed, match="broken 0"):
        written.result()


async def test_a_reply_that_was_read_fails_no_more() -> None:
    written = Noting([])
    written.has_reply(BODY, 1.5)
    written.has_failed(ConnectionFailed("too late"))
    assert written.result() == BODY
