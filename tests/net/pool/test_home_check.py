"""The check of a new connection: to which cluster it leads is asked before the pool counts it as one."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aiokc.errors import ConnectionFailed, KafkaError
from aiokc.net.pool import Pool, Purpose

from ..credentials.tokens.scripted import run_virtually
from ..scripted import Peer, Script, Server, ask, frame_of, metadata, plain_answer, running_pool, serve_plainly, serving

HOME = "cluster"


async def connected_before(pool: Pool, server: Server) -> None:
    """Connect to broker 1 and end that connection: the next one is to be checked."""
    pool.set_brokers({1: server.broker(1)})
    await ask(pool, 1)
    pool.drop(1, Purpose.DATA)
    pool.home.cluster_id = HOME


def then(script: Script) -> Script:
    """Return the script of a broker that is in good order for its first connection only."""

    async def scripts(peer: Peer) -> None:
        await (script if peer.number else serve_plainly)(peer)

    return scripts


def test_a_broker_that_is_slow_to_answer_the_check_gets_more_time_with_each_attempt() -> None:
    @then
    async def script(peer: Peer) -> None:
        await peer.greet()
        while True:
            asked = await peer.request()
            await asyncio.sleep(0.7)
            peer.reply(asked, plain_answer(asked))

    async def story() -> None:
        async with serving(script) as server, running_pool(server, socket_connection_setup_timeout_ms=500) as pool:
            await connected_before(pool, server)
            with pytest.raises(ConnectionFailed, match=r"no answer to Metadata v12 .* to which cluster it belongs"):
                await ask(pool, 1)
            assert await ask(pool, 1) == "t"

    run_virtually(story)


def test_a_pool_that_is_closed_ends_a_connection_that_is_being_checked(caplog: pytest.LogCaptureFixture) -> None:
    checked = asyncio.Event()

    @then
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.request()
        checked.set()
        await peer.until_closed()

    async def story() -> None:
        async with serving(script) as server, running_pool(server) as pool:
            await connected_before(pool, server)
            asking = asyncio.ensure_future(ask(pool, 1))
            await checked.wait()
            pool.close()
            with pytest.raises(ConnectionFailed, match="the client is closed"):
                await asking
            await server.all_closed()

    with caplog.at_level(logging.INFO, logger="aiokc"):
        run_virtually(story)
    assert caplog.messages == []


def test_a_connection_that_ends_with_the_answer_is_none() -> None:
    @then
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        peer.send(frame_of(asked, metadata(HOME)) + b"\xff" * 8)
        await peer.until_closed()

    async def story() -> None:
        async with serving(script) as server, running_pool(server) as pool:
            await connected_before(pool, server)
            with pytest.raises(KafkaError, match="frame of -1 bytes"):
                await ask(pool, 1)
            assert not pool._connections

    run_virtually(story)


def test_an_idle_connection_says_nothing_for_a_broker_that_has_just_ended_another_one() -> None:
    """The idle one may be half open: its end has not come through yet, or never will."""
    ends = asyncio.Event()

    async def script(peer: Peer) -> None:
        if peer.number == 2:
            return await peer.serve(lambda asked: metadata("other"))
        await peer.greet()
        while peer.number == 0 or not ends.is_set():
            asked = await peer.request()
            peer.reply(asked, plain_answer(asked))

    async def story() -> None:
        async with serving(script) as server, running_pool(server) as pool:
            pool.set_brokers({1: server.broker(1)})
            await ask(pool, 1, purpose=Purpose.DATA)
            await ask(pool, 1, purpose=Purpose.COORDINATOR)
            pool.home.cluster_id = HOME
            ends.set()
            await ask(pool, 1, purpose=Purpose.COORDINATOR)
            await asyncio.sleep(1)  # the broker has ended the connection after this answer
            with pytest.raises(ConnectionFailed, match="belongs to cluster other"):
                await ask(pool, 1, purpose=Purpose.COORDINATOR)
            assert await ask(pool, 1, purpose=Purpose.DATA) == "t"

    run_virtually(story)
