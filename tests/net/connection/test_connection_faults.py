"""One connection and a broker that does something wrong, or nothing at all."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from aiokc.errors import ConnectionFailed, MalformedResponse, RequestTimedOut
from aiokc.wire.messages.group import HeartbeatRequest

from ..credentials.tokens.scripted import run_virtually
from ..scripted import (
    Peer,
    about,
    ask_over,
    cancelled,
    connected,
    frame_of,
    many_topics,
    metadata,
    serve_plainly,
    serving,
    ticks,
)

pytestmark = pytest.mark.any_loop

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


async def test_a_garbage_body_fails_only_its_request() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        good, bad, last = [await peer.request() for _ in range(3)]
        peer.reply(good, metadata("good"))
        frame = frame_of(bad, metadata("bad"))
        peer.send(frame[:9] + b"\xff" * (len(frame) - 9))
        peer.reply(last, metadata("last"))
        await peer.serve_on()

    async with serving(script) as server, connected(server) as connection:
        good, bad, last = await asyncio.gather(
            *(ask_over(connection, topic) for topic in ("good", "bad", "last")), return_exceptions=True
        )
        assert (good, last) == ("good", "last")
        assert isinstance(bad, MalformedResponse)
        assert str(bad).startswith("broker 1: Metadata v12: ")
        assert await ask_over(connection, "again") == "again"


async def test_a_wrong_correlation_id_poisons_the_connection_for_all() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        first = await peer.request()
        await peer.request()
        peer.reply(first._replace(correlation_id=77), metadata())
        await peer.until_closed()

    async with serving(script) as server, connected(server) as connection:
        outcomes = await asyncio.gather(*(ask_over(connection, topic) for topic in "ab"), return_exceptions=True)
        assert [type(error) for error in outcomes] == [MalformedResponse, MalformedResponse]
        assert "broker 1 answered request 77 where 1 (Metadata v12) was due" in str(outcomes[1])
        assert outcomes[0] is not outcomes[1]
        assert connection.closed
        with pytest.raises(ConnectionFailed, match=r"broker 1: Metadata not sent, the connection is closed: .*77"):
            await ask_over(connection, "later")
        await server.all_closed()


async def test_a_frame_without_a_request_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        peer.send(frame_of(asked, metadata("t")) * 2)
        await peer.until_closed()

    async with serving(script) as server, connected(server) as connection:
        assert await ask_over(connection, "t") == "t"
        await connection.wait_closed()
        assert isinstance(connection.error, MalformedResponse)
        assert "nobody asked for" in str(connection.error)


async def test_an_oversize_frame_ends_the_connection_and_names_the_limit() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.request()
        peer.send((5000).to_bytes(4, "big"))
        await peer.until_closed()

    async with serving(script) as server, connected(server, max_response_bytes=4096) as connection:
        with pytest.raises(
            MalformedResponse, match=r"broker 1: an answer of 5000 bytes, and max_response_bytes is 4096: raise"
        ):
            await ask_over(connection, "t")
        assert connection.closed


async def test_a_close_in_the_middle_of_a_frame_fails_every_request() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        await peer.request()
        peer.send(frame_of(asked, metadata("t"))[:-3])
        await peer.drain()

    async with serving(script) as server, connected(server) as connection:
        outcomes = await asyncio.gather(*(ask_over(connection, topic) for topic in "ab"), return_exceptions=True)
        assert [type(error) for error in outcomes] == [ConnectionFailed, ConnectionFailed]
        assert str(outcomes[0]).startswith("broker 1 closed the connection, while Metadata v12 was in flight (for ")


async def test_a_reset_names_the_broker_and_has_the_cause() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.request()
        peer.reset()

    async with serving(script) as server, connected(server) as connection:
        with pytest.raises(
            ConnectionFailed,
            match=r"broker 1: the connection broke \(.*reset.*\) at the first .*, while Metadata",
        ) as got:
            await ask_over(connection, "t")
        assert isinstance(got.value.__cause__, ConnectionResetError)


async def test_a_reply_that_came_before_the_close_is_delivered() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        peer.reply(asked, metadata("last words"))

    async with serving(script) as server, connected(server) as connection:
        assert await ask_over(connection, "t") == "last words"


# Deadlines


async def test_a_request_that_is_never_answered_times_out_and_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.until_closed()

    async with serving(script) as server, connected(server) as connection:
        other = asyncio.ensure_future(ask_over(connection, "other", timeout=60))
        await ticks(1)
        with pytest.raises(RequestTimedOut, match=r"broker 1: no answer to Heartbeat v4 within \d\.\d+ s"):
            await connection.request(HEARTBEAT, timeout=0.02)
        with pytest.raises(ConnectionFailed, match=r"no answer to Heartbeat v4 .*, while Metadata v12 was in flight"):
            await other
        assert connection.closed
        await server.all_closed()


async def test_an_abandoned_request_that_is_never_answered_ends_the_connection_too() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.until_closed()

    async with serving(script) as server, connected(server) as connection:
        assert await cancelled(ask_over(connection, "t", timeout=0.02), 2)
        await connection.wait_closed()
        assert isinstance(connection.error, RequestTimedOut)


def test_the_deadline_of_an_answered_request_is_not_that_of_the_next_one() -> None:
    """One timer serves all requests: it is set for the first one, and fires while the second waits."""

    async def story() -> None:

        async def script(peer: Peer) -> None:
            await peer.greet()
            peer.reply(await peer.request(), metadata("quick"))
            slow = await peer.request()
            await asyncio.sleep(1.3)
            peer.reply(slow, metadata("slow"))
            await peer.request()
            await peer.until_closed()

        async with serving(script) as server, connected(server) as connection:
            assert await ask_over(connection, "t", timeout=1.0) == "quick"
            assert await ask_over(connection, "t", timeout=60) == "slow"
            with pytest.raises(RequestTimedOut):
                await ask_over(connection, "t", timeout=0.02)

    run_virtually(story)


async def test_no_time_left_sends_nothing() -> None:
    async with serving(serve_plainly) as server, connected(server) as connection:
        with pytest.raises(RequestTimedOut, match="Metadata not sent, no time is left"):
            await ask_over(connection, "t", timeout=0)
        assert await ask_over(connection, "t") == "t"


async def test_a_reply_that_waits_in_the_socket_while_the_loop_is_held_is_no_timeout() -> None:
    """A response of several reads: when the loop is free again, its first piece and the timer are due in one round."""
    large = many_topics(5_000)
    timeout = 0.5

    async def script(peer: Peer) -> None:
        await peer.greet()
        peer.reply(await peer.request(), large)
        time.sleep(timeout + 1.1)  # noqa: ASYNC251 -- stands for a handler of the application that holds the loop
        await peer.until_closed()

    async with serving(script) as server:
        async with connected(server) as connection:
            with suppress(RequestTimedOut):  # a busy machine may not have read the request within that time
                assert await connection.request(about("t"), timeout=timeout) == large
                return
        timeout = 5.0
        async with connected(server) as connection:
            assert await connection.request(about("t"), timeout=timeout) == large


async def test_a_loop_that_is_held_does_not_let_a_silent_broker_off() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.request()
        time.sleep(0.3)  # noqa: ASYNC251 -- stands for a handler of the application that holds the loop
        await peer.until_closed()

    async with serving(script) as server, connected(server) as connection:
        with pytest.raises(RequestTimedOut):
            await ask_over(connection, "t", timeout=0.1)
