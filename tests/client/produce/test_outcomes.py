"""Outcomes: who waits goes on at once, and a task that raises KeyboardInterrupt keeps no other one waiting."""

from __future__ import annotations

import asyncio

import pytest

from aiokc.client.produce.callbacks import Callbacks
from aiokc.client.produce.outcomes import Outcomes
from aiokc.core.produce.accumulator import AccumulatorOptions, RecordAccumulator
from aiokc.core.produce.batch import ProducerBatch, Stored
from aiokc.core.produce.session import PlainSession
from aiokc.net.reply import HandedOver
from aiokc.records.encoding.batch_builder import OpenBatch
from aiokc.types import TopicPartition

pytestmark = pytest.mark.timeout(30)


def outcomes(callbacks: Callbacks) -> Outcomes:
    accumulator = RecordAccumulator(AccumulatorOptions(), PlainSession(idempotent=False), lambda attempts: 0.0)
    return Outcomes(accumulator, callbacks, freed=lambda: None)


def waited_for(loop: asyncio.AbstractEventLoop, waiters: int) -> tuple[ProducerBatch, list[HandedOver[None]]]:
    batch = ProducerBatch(TopicPartition("t", 0), (1,), 0.0, OpenBatch())
    batch.outcome = Stored(0)
    futures: list[HandedOver[None]] = [HandedOver(loop=loop) for _ in range(waiters)]
    batch.waiting = dict.fromkeys(futures, 0)
    return batch, futures


@pytest.mark.usefixtures("endless_slices")
def test_a_keyboard_interrupt_of_one_that_waits_leaves_nobody_waiting() -> None:
    loop, went_on, called = asyncio.new_event_loop(), list[int](), list[int]()
    batch, futures = waited_for(loop, 3)
    callbacks = Callbacks()

    async def wait(number: int) -> None:
        await futures[number]
        went_on.append(number)
        if number == 0:
            raise KeyboardInterrupt

    def due() -> None:
        batch.callbacks.append((0, lambda *_: called.append(1)))
        outcomes(callbacks).tell([batch], at_once=True)

    try:
        tasks = [loop.create_task(wait(number)) for number in range(3)]
        loop.call_later(0.01, due)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.sleep(10))
        assert (went_on, called) == ([0, 1, 2], [1])
        assert isinstance(tasks[0].exception(), KeyboardInterrupt)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@pytest.mark.parametrize("at_once", [True, False])
async def test_who_waits_goes_on_within_the_call_only_where_that_is_wanted(at_once: bool) -> None:
    loop, steps, called = asyncio.get_running_loop(), list[str](), asyncio.Event()
    batch, (future,) = waited_for(loop, 1)

    async def wait() -> None:
        await future
        steps.append("went on")

    def due() -> None:
        outcomes(Callbacks()).tell([batch], at_once=at_once)
        steps.append("told")
        called.set()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    loop.call_soon(due)
    await called.wait()
    await task
    assert steps == (["went on", "told"] if at_once else ["told", "went on"])
