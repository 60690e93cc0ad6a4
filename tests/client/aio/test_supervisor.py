"""Supervisor: the task that runs the background drivers. When one driver ends, all end, and the supervisor says why."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from aiokc.client.aio.supervisor import Driver, Supervisor
from aiokc.errors import AuthenticationFailed, ClientClosed

pytestmark = pytest.mark.any_loop


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_stop_ends_every_driver() -> None:
    ended = []

    async def driver() -> None:
        try:
            await for_ever()
        finally:
            ended.append(True)

    supervisor = Supervisor("test")
    before = asyncio.all_tasks()
    supervisor.start([driver, driver])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await supervisor.stop()
    await supervisor.stop()
    supervisor.check()
    assert ended == [True, True]
    assert asyncio.all_tasks() == before


async def test_the_error_of_a_driver_ends_the_others_and_is_raised_as_itself() -> None:
    async def fails() -> None:
        raise AuthenticationFailed("wrong password")

    async def fails_while_ending() -> None:
        try:
            await for_ever()
        finally:
            raise ValueError("a consequence")

    supervisor = Supervisor("test")
    supervisor.start([fails_while_ending, fails, for_ever])
    assert await supervisor.ended.wait(20)
    for _ in range(2):
        with pytest.raises(AuthenticationFailed, match="wrong password"):
            supervisor.check()
    await supervisor.stop()


async def test_an_error_that_is_not_ours_is_raised_as_itself_too() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    supervisor = Supervisor("test")
    supervisor.start([fails])
    assert await supervisor.ended.wait(20)
    with pytest.raises(ZeroDivisionError):
        supervisor.check()


async def test_stop_without_start() -> None:
    supervisor, before = Supervisor("test"), asyncio.all_tasks()
    await supervisor.stop()
    supervisor.check()
    assert not supervisor.alive
    assert asyncio.all_tasks() == before


async def test_stop_from_another_task_than_start() -> None:
    supervisor = Supervisor("test")
    supervisor.start([for_ever])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(supervisor.stop())
    assert supervisor.error is None


async def ends_by_a_cancelled_error() -> None:
    raise asyncio.CancelledError


async def with_a_task_that_ends_by_one() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ends_by_a_cancelled_error)
        await for_ever()


async def returns() -> None:
    pass


async def closes() -> None:
    raise GeneratorExit


@pytest.mark.parametrize(
    ("driver", "why"),
    [
        (ends_by_a_cancelled_error, "was cancelled"),
        (with_a_task_that_ends_by_one, r"was cancelled.*with_a_task_that_ends_by_one has ended"),
        (returns, r"was cancelled.*returns has ended"),
        (closes, r"has ended by GeneratorExit\(\)"),
    ],
)
async def test_a_driver_that_ends_before_stop_ends_them_all_and_is_an_error(driver: Driver, why: str) -> None:
    supervisor = Supervisor("test")
    supervisor.start([for_ever, driver])
    assert await supervisor.ended.wait(20)
    assert not supervisor.alive
    with pytest.raises(ClientClosed, match=f"the background task {why}"):
        supervisor.check()
    await supervisor.stop()
