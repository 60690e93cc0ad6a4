"""Deadlines while handlers of the application hold the loop again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokc.errors import RequestTimedOut

from ..scripted import Peer, ask_over, connected, metadata, serving, ticks


@asynccontextmanager
async def held(seconds: float) -> AsyncIterator[list[float]]:
    """A handler of the application holds the loop in each of its rounds; yields a list with an item for each."""
    rounds: list[float] = []

    async def compute() -> None:
        while True:
            await asyncio.sleep(0)
            time.sleep(seconds)  # noqa: ASYNC251 -- stands for what the handler computes
            rounds.append(time.monotonic())

    handler = asyncio.ensure_future(compute())
    try:
        yield rounds
    finally:
        handler.cancel()


@pytest.mark.any_loop
async def test_a_silent_broker_is_not_let_off() -> None:
    """Each time that the alarm is set again, it is late again."""

    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.until_closed()

    async with serving(script) as server, connected(server) as connection:
        asked = asyncio.ensure_future(ask_over(connection, "t", timeout=0.1))
        await ticks(2)
        async with held(0.2) as rounds:
            while not (asked.done() or len(rounds) == 10):
                await ticks(1)
        assert asked.done(), f"the request goes on after {len(rounds)} rounds"
        assert isinstance(asked.exception(), RequestTimedOut)


async def test_an_answer_of_several_reads_is_no_timeout() -> None:
    """asyncio reads 1 MiB of it in a round. The alarm is late several times before the last one."""
    long = "c" * 8_000_000

    async def script(peer: Peer) -> None:
        await peer.greet()
        peer.reply(await peer.request(), metadata(long))
        await peer.until_closed()

    async with serving(script) as server, connected(server, max_response_bytes=16 << 20) as connection:
        asked = asyncio.ensure_future(ask_over(connection, "t", timeout=1_000.0))
        while not connection._transport.partial:
            await ticks(1)
        (exchange,) = connection._pipeline  # from here on it has a tenth of a second
        exchange.waiter.deadline = asyncio.get_running_loop().time() + 0.1
        connection._set_alarm(exchange.waiter.deadline)
        async with held(0.15):
            assert await asked == long
