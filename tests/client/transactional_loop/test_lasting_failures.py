"""The loop after failures that take more than one attempt to get over, and after a group that went on without it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc.client.transactional_loop.transactional_loop import TransactionalLoop
from aiokc.errors import ConsumerClosed, RequestTimedOut
from aiokc.testing import ApiKey
from aiokc.testing.faults import drop

from ..transactions.on_stage import IN0, Stage, scenario
from .test_transactional_loop import Batch, copying, give, looping


@scenario()
async def test_a_batch_whose_partitions_the_group_has_given_again_meanwhile_is_not_committed(stage: Stage) -> None:
    """The function polls by itself. The member's new generation may commit, but others may have read the batch."""
    give(stage, 1, 2)
    async with looping(stage) as (loop, producer):
        copy, consumer = copying(producer, loop, 2), loop._consumer
        generations: list[int] = []

        async def process(batch: Batch) -> None:
            await copy(batch)  # type: ignore[misc]
            generations.append(consumer.group_metadata().generation_id)
            if len(generations) == 2:
                stage.cluster.expire_member("g")
                while consumer.group_metadata().generation_id in (-1, *generations):
                    await consumer.getmany(timeout_ms=500)

        await loop.run(process, max_records=1)
        assert (loop.committed, loop.aborted) == (1, 1)
        await loop.run(process)
        assert loop.committed == 2
    assert await stage.read() == [b"1", b"2"]


@scenario()
async def test_an_abort_without_an_answer_is_done_again_before_the_next_batch(stage: Stage) -> None:
    give(stage, 1)
    async with looping(stage, max_block_ms=2_000, request_timeout_ms=5_000) as (loop, producer):

        async def fails(batch: Batch) -> None:
            await producer.send_and_wait("out", b"half", partition=0)
            stage.cluster.intercept(ApiKey.END_TXN, drop(), times=1)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as raised:
            await loop.run(fails)
        assert "the transaction was not aborted" in "".join(raised.value.__notes__)
        await loop.run(copying(producer, loop, 1))
    assert await stage.read() == [b"1"]


@scenario(2)
async def test_a_loop_over_a_consumer_that_was_not_started_says_so(stage: Stage) -> None:
    async with stage.producer() as producer:
        loop: TransactionalLoop[Any, Any] = TransactionalLoop(stage.consumer("in", group_id="g"), producer)
        with pytest.raises(ConsumerClosed):
            await loop.run(copying(producer, loop, 1))


@scenario(2)
async def test_the_pauses_begin_anew_after_a_batch_was_committed(stage: Stage) -> None:
    give(stage, *range(1, 3))
    async with looping(stage) as (loop, producer):
        began: list[float] = []

        async def process(batch: Batch) -> None:
            began.append(stage.loop.time())
            if len(began) < 8 or len(began) == 9:
                raise RequestTimedOut("not yet")
            await copying(producer, loop, 2)(batch)  # type: ignore[misc]

        await loop.run(process, max_records=1)
        assert loop.committed == 2
    assert began[7] - began[6] > 0.5
    assert began[9] - began[8] < 0.2


@scenario()
async def test_a_commit_that_was_carried_out_counts_also_if_its_offsets_can_not_be_fetched_at_once(
    stage: Stage,
) -> None:
    give(stage, 1, 2, 3)
    async with (
        stage.consumer("in", group_id="g", default_api_timeout_ms=2_000) as consumer,
        stage.producer(max_block_ms=2_000, request_timeout_ms=5_000) as producer,
    ):
        loop = TransactionalLoop(consumer, producer)

        async def process(batch: Batch) -> None:
            if batch[IN0][0].value == b"1":
                stage.cluster.intercept(ApiKey.END_TXN, _carried_out_in_silence, times=1)
                stage.cluster.intercept(ApiKey.OFFSET_FETCH, drop(), times=1)
                stage.loop.call_later(60.0, give, stage, 4)
            await copying(producer, loop, 4)(batch)  # type: ignore[misc]

        await loop.run(process)
    assert await stage.read() == [b"1", b"2", b"3", b"4"]


async def _carried_out_in_silence(exchange: Any) -> None:
    await exchange.handle()
    await asyncio.Event().wait()
