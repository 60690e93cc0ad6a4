"""start() called again, or by several tasks at once: only the first call starts the producer, and stops one that fails.

The others change nothing, however they end.
"""

from __future__ import annotations

import asyncio

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, ProducerClosed, RequestTimedOut
from aiokc.testing import ApiKey
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold

from .on_stage import Stage, scenario


@scenario(2)
async def test_a_second_start_leaves_the_open_transaction_as_it_is(stage: Stage) -> None:
    async with stage.producer() as producer, producer.transaction():
        await producer.send_and_wait("out", b"1", partition=0)
        await producer.start()
        await producer.send("out", b"2", partition=0)
    assert await stage.read() == [b"1", b"2"]


@scenario(2)
async def test_starts_that_are_given_up_leave_the_first_one_as_it_is(stage: Stage) -> None:
    """One is cancelled, and the time of another one is over, before brokers have answered the first one."""
    for api in (ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID):
        hold = Hold()
        held = stage.cluster.intercept(api, hold)
        producer = stage.producer()
        first = asyncio.create_task(producer.start())
        await hold.arrived()
        cancelled = asyncio.create_task(producer.start())
        with pytest.raises(RequestTimedOut, match="another task's start"):
            await producer.start(timeout_ms=1_000)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        other = asyncio.create_task(producer.start())
        await asyncio.sleep(0.1)
        assert not first.done(), api
        assert not other.done(), api
        hold.release()
        await first
        await other
        held.cancel()
        async with producer, producer.transaction():
            await producer.send("out", b"1", partition=0)
    assert await stage.read() == [b"1", b"1"]


@scenario(2)
async def test_a_second_start_raises_where_the_first_one_fails(stage: Stage) -> None:
    arrived, opened = asyncio.Event(), asyncio.Event()

    async def refused_later(exchange: Exchange) -> ErrorCode:
        arrived.set()
        await opened.wait()
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    stage.cluster.intercept(ApiKey.INIT_PRODUCER_ID, refused_later, times=1)
    producer = stage.producer()
    starts = [asyncio.create_task(producer.start()) for _ in range(2)]
    await arrived.wait()
    opened.set()
    with pytest.raises(AuthorizationFailed):
        await starts[0]
    with pytest.raises(ProducerClosed):
        await starts[1]
    with pytest.raises(ProducerClosed):
        await producer.start()


@scenario(2)
async def test_a_transaction_does_not_begin_once_the_producer_was_stopped(stage: Stage) -> None:
    """The begin waits for the level of transaction.version meanwhile. Nobody would abort what begins after the stop."""
    producer = stage.producer()
    await producer.start()
    await asyncio.sleep(2)
    hold = Hold()
    stage.cluster.intercept(ApiKey.API_VERSIONS, hold)
    begin = asyncio.create_task(producer.begin_transaction())
    await hold.arrived()
    stop = asyncio.create_task(producer.stop())
    hold.release()
    with pytest.raises(ProducerClosed):
        await begin
    await stop
