"""Steps of an iterator, in C and in Python: what they return, what a cancelled one leaves, and what is awaited."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from random import Random
from types import coroutine
from typing import Any, TypeAlias

import pytest

from aiokc.client.aio.steps import PureSteps, Steps

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)

pytestmark = pytest.mark.any_loop

Wait: TypeAlias = Callable[[], Coroutine[Any, Any, int]]
NewSteps: TypeAlias = Callable[[Wait], Steps[int]]


IN_C: NewSteps = _native.Steps
each = pytest.mark.parametrize("new_steps", [pytest.param(IN_C, id="native"), pytest.param(PureSteps, id="pure")])


class Queue:
    """What steps wait for: numbers that the test supplies."""

    def __init__(self) -> None:
        self.given: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.is_waited_for = asyncio.Event()
        self.waits = self.cleaned_up = 0

    async def get(self) -> int:
        self.waits += 1
        self.is_waited_for.set()
        try:
            return await asyncio.shield(self.given)
        finally:
            self.cleaned_up += 1


async def never() -> int:
    raise AssertionError("there was an item, and nothing to wait for")


async def the_end() -> int:
    raise StopAsyncIteration


@each
async def test_items_come_first_and_then_what_was_waited_for(new_steps: NewSteps) -> None:
    queue = Queue()
    steps = new_steps(queue.get)
    steps.items = iter([1, 2])
    assert [await anext(steps), await anext(steps)] == [1, 2]
    step = asyncio.ensure_future(anext(steps))
    await queue.is_waited_for.wait()
    queue.given.set_result(3)
    assert await step == 3
    steps.items = iter([4])
    assert await anext(steps) == 4
    assert queue.waits == 1


@each
async def test_a_loop_ends_where_the_wait_says_so_and_the_next_one_goes_on(new_steps: NewSteps) -> None:
    steps = new_steps(the_end)
    assert aiter(steps) is steps
    steps.items = iter([1, 2, 3])
    async for item in steps:
        if item == 2:
            break
    assert [item async for item in steps] == [3]
    assert [item async for item in steps] == []
    steps.items = iter([4])
    assert [item async for item in steps] == [4]
    assert await anext(steps, None) is None


@each
async def test_errors_of_items_and_of_waits_are_raised_as_they_are(new_steps: NewSteps) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("an item")

    async def wait() -> int:
        raise LookupError("a wait")

    steps = new_steps(wait)
    steps.items = items()
    assert await anext(steps) == 1
    with pytest.raises(KeyError, match="an item"):
        await anext(steps)
    with pytest.raises(LookupError, match="a wait"):
        await anext(steps)
    steps.items = iter([2])
    assert await anext(steps) == 2


@each
async def test_a_step_takes_its_item_when_it_is_awaited(new_steps: NewSteps) -> None:
    steps = new_steps(never)
    steps.items = iter([1, 2, 3])
    first, second, dropped = anext(steps), anext(steps), anext(steps)
    dropped.close()  # without which Python warns of its own coroutine
    del dropped
    assert [await second, await first, await anext(steps)] == [1, 2, 3]


@each
async def test_a_task_that_is_cancelled_before_it_runs_takes_nothing(new_steps: NewSteps) -> None:
    steps = new_steps(never)
    steps.items = iter([1])
    task = asyncio.create_task(steps.__anext__())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.create_task(steps.__anext__()) == 1


@each
async def test_a_cancelled_wait_hears_of_it_and_the_same_iterator_goes_on(new_steps: NewSteps) -> None:
    queue = Queue()
    steps = new_steps(queue.get)
    task = asyncio.create_task(steps.__anext__())
    await queue.is_waited_for.wait()
    assert "coro=" in repr(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert queue.cleaned_up == 1
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(steps), 0.001)
    assert queue.cleaned_up == 2
    steps.items = iter([1])
    assert await anext(steps) == 1


@each
async def test_a_step_is_awaited_once(new_steps: NewSteps) -> None:
    steps = new_steps(never)
    steps.items = iter([1, 2])
    step = anext(steps)
    assert await step == 1
    with pytest.raises(RuntimeError, match="cannot "):
        await step
    assert await anext(steps) == 2


@each
async def test_items_may_be_replaced_by_their_own_iterator(new_steps: NewSteps) -> None:
    steps = new_steps(the_end)

    def items() -> Iterator[int]:
        steps.items = iter([2])
        yield 1

    steps.items = items()
    gc.collect()
    assert [item async for item in steps] == [1, 2]


@each
async def test_no_task_and_no_coroutine_is_left_behind(new_steps: NewSteps) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        queue = Queue()
        steps = new_steps(queue.get)
        steps.items = iter([1])
        async for _ in steps:
            break
        step = steps.__anext__()
        step.send(None)
        step.close()
        assert queue.cleaned_up == 1
        step = steps.__anext__()
        step.send(None)
        del step
        gc.collect()
        assert queue.cleaned_up == 2
        assert len(asyncio.all_tasks()) == 1


@each
async def test_a_cycle_through_steps_is_collected(new_steps: NewSteps) -> None:
    class Holder:
        def __init__(self) -> None:
            self.steps = new_steps(self.wait)
            self.waiting = self.steps.__anext__()
            self.waiting.send(None)
            self.steps.items = self.items()
            next(self.steps.items)

        def items(self) -> Iterator[int]:
            yield 1
            yield id(self)

        async def wait(self) -> int:
            await asyncio.sleep(0)
            return id(self)

    gone = weakref.ref(Holder())
    gc.collect()
    assert gone() is None


async def test_nothing_is_leaked() -> None:
    async def nothing() -> int:
        return await asyncio.sleep(0, 7)

    async def rounds(count: int) -> int:
        for _ in range(count):
            steps = IN_C(nothing)
            steps.items = iter([1])
            assert [await anext(steps), await anext(steps)] == [1, 7]
            for begun in (False, True):
                step = steps.__anext__()
                if begun:
                    step.send(None)
                with pytest.raises(KeyError):
                    step.throw(KeyError("x"))
            with pytest.raises(TypeError):
                steps.items = None  # type: ignore[assignment]
        gc.collect()
        return sys.getallocatedblocks()

    await rounds(30)
    assert await rounds(300) - await rounds(30) < 100


# The same calls to both, by hand


@coroutine
def suspending(times: int, result: Any, caught: list[object]) -> Any:
    """Give way ``times`` times, note what is sent or thrown, and go on in spite of KeyErrors."""
    for number in range(times):
        try:
            caught.append((yield number))
        except KeyError as error:
            caught.append(repr(error))
    if isinstance(result, BaseException):
        raise result
    return result


def outcome(new_steps: NewSteps, chance: Random) -> list[object]:
    """Return the results of some sends, throws and closes."""
    caught: list[object] = []

    async def wait() -> int:
        result: int = await suspending(
            chance.randrange(3), chance.choice([7, None, StopAsyncIteration(), OSError("x")]), caught
        )
        return result

    steps = new_steps(wait)
    steps.items = iter(range(chance.randrange(3)))
    found: list[object] = []
    for _ in range(4):
        step = steps.__anext__()
        for _ in range(chance.randrange(1, 5)):
            call = chance.choice(["send", "send", "send", "throw", "class", "close"])
            try:
                match call:
                    case "send":
                        found.append(step.send(None))
                    case "throw":
                        found.append(step.throw(chance.choice([KeyError, OSError])("thrown")))
                    case "class":
                        found.append(step.throw(KeyError))
                    case _:
                        step.close()
            except StopIteration as stop:
                found.append(("returned", stop.value))
            except RuntimeError as error:
                found.append(type(error))  # it was over
            except BaseException as error:
                found.append(repr(error))
        step.close()
    return [*found, *caught]


def test_steps_in_c_do_what_coroutines_do() -> None:
    for seed in range(1_000):
        assert outcome(IN_C, Random(seed)) == outcome(PureSteps, Random(seed)), f"seed {seed}"


def test_steps_are_asynchronous_iterators() -> None:
    assert isinstance(PureSteps(never), AsyncIterator)
    assert isinstance(IN_C(never), AsyncIterator)
    assert isinstance(IN_C(never).__anext__(), Coroutine)
