"""Replies: the waiting task goes on in the very step that brings the reply, wherever that is possible, and in order."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context

import pytest

from aiokc.errors import ConnectionFailed
from aiokc.net.reply import HandedOver, Reply, Written, hand_over_next, others_first
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


async def handed_on(reply: Reply, news: HandedOver[None], steps: list[str]) -> None:
    """The task that gets the reply tells others of it, and goes on behind them."""
    await reply
    steps.append("first")
    hand_over_next(news)
    steps.append("told")
    await others_first()
    steps.append("first again")


async def told(news: HandedOver[None], steps: list[str]) -> None:
    await news
    steps.append("next")


async def test_who_is_told_of_it_goes_on_before_the_callback_returns_and_the_teller_behind_them() -> None:
    reply, news, steps = Reply(), HandedOver[None](), list[str]()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(handed_on(reply, news, steps))
        tasks.create_task(told(news, steps))
        await asyncio.sleep(0)
        await in_a_callback(reply, steps)
        assert steps == ["first", "told", "next", "first again", "handed over"]


async def test_outside_of_a_callback_they_go_on_in_a_later_round_in_the_same_order() -> None:
    reply, news, steps = Reply(), HandedOver[None](), list[str]()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(handed_on(reply, news, steps))
        tasks.create_task(told(news, steps))
        await asyncio.sleep(0)
        reply.hand_over(BODY)  # within this task
        assert steps == []
    assert steps == ["first", "told", "next", "first again"]


async def test_in_debug_mode_they_go_on_later_so_that_asyncio_names_them_if_they_take_long() -> None:
    reply, news, steps = Reply(), HandedOver[None](), list[str]()
    asyncio.get_running_loop().set_debug(True)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(handed_on(reply, news, steps))
        tasks.create_task(told(news, steps))
        await asyncio.sleep(0)
        await in_a_callback(reply, steps)
    assert steps == ["first", "told", "handed over", "next", "first again"]


async def test_whom_those_tell_who_are_told_goes_on_later_so_that_none_can_hold_the_loop() -> None:
    reply, steps = Reply(), list[str]()
    news = [HandedOver[None]() for _ in range(3)]

    async def tell(number: int) -> None:
        await news[number]
        steps.append(str(number))
        if number < 2:
            hand_over_next(news[number + 1])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(handed_on(reply, news[0], steps))
        for number in range(3):
            tasks.create_task(tell(number))
        await asyncio.sleep(0)
        await in_a_callback(reply, steps)
    assert steps == ["first", "told", "0", "first again", "handed over", "1", "2"]


async def test_who_is_cancelled_meanwhile_is_left_out() -> None:
    """The task that is told first cancels the one that is told next, and the one that has told them."""
    reply, news, steps = Reply(), [HandedOver[None](), HandedOver[None]()], list[str]()

    async def tell() -> None:
        await reply
        for one in news:
            hand_over_next(one)
        await others_first()
        steps.append("first again")

    async def cancel() -> None:
        await news[0]
        steps.append("next")
        teller.cancel()
        second.cancel()

    teller = asyncio.create_task(tell())
    first, second = asyncio.create_task(cancel()), asyncio.create_task(told(news[1], steps))
    await asyncio.sleep(0)
    await in_a_callback(reply, steps)
    assert steps == ["next", "handed over"]
    await first
    for task in (teller, second):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert steps == ["next", "handed over"]


def test_where_a_task_interrupts_the_loop_the_others_are_woken_all_the_same() -> None:
    """KeyboardInterrupt leaves the loop in its next iteration. Whoever runs it again finds nobody waiting for ever."""
    steps: list[str] = []

    async def interrupted(news: HandedOver[None]) -> None:
        await news
        raise KeyboardInterrupt

    async def tell(reply: Reply, news: list[HandedOver[None]]) -> None:
        await reply
        for one in news:
            hand_over_next(one)

    async def story() -> Reply:
        reply, news = Reply(), [HandedOver[None](), HandedOver[None]()]
        tasks.append(asyncio.create_task(tell(reply, news)))
        tasks.append(asyncio.create_task(interrupted(news[0])))
        tasks.append(asyncio.create_task(told(news[1], steps)))
        await asyncio.sleep(0)
        return reply

    tasks: list[asyncio.Task[None]] = []
    with asyncio.Runner() as runner:
        reply = runner.run(story())
        runner.get_loop().call_soon(reply.hand_over, BODY)
        with pytest.raises(KeyboardInterrupt):
            runner.get_loop().run_forever()
        assert steps == ["next"]
        runner.get_loop().run_until_complete(tasks[-1])
        assert steps == ["next"]
        with pytest.raises(KeyboardInterrupt):
            tasks[1].result()
        runner.run(after_it(steps))
    assert steps == ["next", "went on", "handed over"]


async def after_it(steps: list[str]) -> None:
    """Nothing is left of a callback that was interrupted."""
    reply = Reply()
    task = await waiting(reply, steps)
    await in_a_callback(reply, steps)
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
        written.reply_came(BODY, 1.5)
        steps.append("read")
        done.set()

    asyncio.get_running_loop().call_soon(receive)
    await done.wait()
    assert (steps, written.result(), written.ended_at) == (["told", "read"], BODY, 1.5)


async def test_within_a_task_it_is_told_of_later() -> None:
    steps = list[str]()
    written = Noting(steps)
    written.reply_came(BODY, 1.5)
    assert steps == []
    await asyncio.sleep(0)
    assert steps == ["told"]


async def test_that_it_fails_is_told_later_and_once() -> None:
    steps = list[str]()
    written = Noting(steps)
    for number in range(2):
        written.failed(ConnectionFailed(f"broken {number}"))
    assert steps == []
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert steps == ["told"]
    with pytest.raises(ConnectionFailed, match="broken 0"):
        written.result()


async def test_a_reply_that_was_read_fails_no_more() -> None:
    written = Noting([])
    written.reply_came(BODY, 1.5)
    written.failed(ConnectionFailed("too late"))
    assert written.result() == BODY
