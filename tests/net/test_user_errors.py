"""Errors raised by the application's code: which of them end the task that awaits it, and which become UsageError."""

from __future__ import annotations

import asyncio

import anyio.lowlevel
import pytest

from aiokc.errors import UsageError
from aiokc.net.user_errors import as_error, ends_us, leaves_the_loop


async def test_a_closed_coroutine_is_ended_and_one_whose_code_raises_is_not() -> None:
    ended: list[bool] = []

    async def awaits(user: asyncio.Future[None] | None) -> None:
        task = asyncio.current_task()
        try:
            if user is None:
                raise GeneratorExit
            await user
        except GeneratorExit as error:
            ended.append(ends_us(error, task))

    await awaits(None)
    coroutine = awaits(asyncio.get_running_loop().create_future())
    await asyncio.create_task(begin(coroutine))
    coroutine.close()
    assert ended == [False, True]


async def begin(coroutine: object) -> None:
    coroutine.send(None)  # type: ignore[attr-defined]


async def test_a_cancelled_error_ends_a_cancelled_task_and_no_other() -> None:
    error = asyncio.CancelledError()
    assert not ends_us(error, asyncio.current_task())
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert ends_us(error, asyncio.current_task())
        await anyio.lowlevel.checkpoint()
    assert not ends_us(LookupError(), asyncio.current_task())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exit_leaves_the_run_of_the_loop_in_the_next_iteration(error: BaseException) -> None:
    went_on: list[int] = []

    async def raises() -> None:
        assert leaves_the_loop(error)
        went_on.append(1)
        await asyncio.sleep(0)
        went_on.append(2)

    with asyncio.Runner() as runner, pytest.raises(type(error)) as left:
        runner.run(raises())
    assert left.value is error
    assert went_on[0] == 1


async def test_no_other_error_leaves_the_loop() -> None:
    for error in (LookupError(), asyncio.CancelledError(), GeneratorExit(), BaseException()):
        assert not leaves_the_loop(error)


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), GeneratorExit(), StopIteration(), StopAsyncIteration()], ids=repr
)
def test_what_ends_in_silence_is_the_cause_of_an_error(error: BaseException) -> None:
    told = as_error(error, "resolve()")
    assert isinstance(told, UsageError)
    assert type(error).__name__ in str(told)
    assert told.__cause__ is error


def test_one_that_cannot_say_what_it_is_is_the_cause_of_an_error_too() -> None:
    class Unreadable(StopAsyncIteration):
        def __repr__(self) -> str:
            raise RuntimeError("no words")

    error = Unreadable()
    told = as_error(error, "resolve()")
    assert isinstance(told, UsageError)
    assert "<Unreadable, whose repr() raised RuntimeError>" in str(told)
    assert told.__cause__ is error


def test_an_error_is_itself() -> None:
    error = LookupError()
    assert as_error(error, "resolve()") is error
