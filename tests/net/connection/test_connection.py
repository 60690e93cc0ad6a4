"""One connection to a scripted server in good order: requests, versions, throttling, cancellation and closing."""

from __future__ import annotations

import asyncio
import socket

import pytest

from aiokc.errors import ConnectionFailed, RequestTimedOut, UnsupportedVersion
from aiokc.net.connection import Connection
from aiokc.wire import encode_response
from aiokc.wire.messages.discovery import ApiVersionsResponse, MetadataRequest, MetadataRequestTopic, MetadataResponse
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.group import SyncGroupRequest

from ..scripted import (
    Peer,
    about,
    ask_over,
    cancelled,
    connected,
    frame_of,
    many_topics,
    metadata,
    options,
    serve_plainly,
    serving,
    ticks,
    topic_of,
)

pytestmark = pytest.mark.any_loop

# In good order


async def test_a_request_is_answered_in_the_highest_version_that_both_speak() -> None:
    versions = []

    async def script(peer: Peer) -> None:
        await peer.greet((3, 0, 10), (18, 0, 4))
        while True:
            asked = await peer.request()
            versions.append(asked.api_version)
            assert asked.client_id == "me"
            peer.reply(asked, metadata())

    async with serving(script) as server, connected(server, client_id="me") as connection:
        await connection.request(about("t"), timeout=10)
        await connection.request(about("t"), timeout=10, max_version=8)
        assert connection.usable_version(MetadataRequest) == 10
        assert connection.versions[3] == (0, 10)
    assert versions == [10, 8]


async def test_the_system_looks_whether_the_peer_of_a_quiet_connection_is_there() -> None:
    """A NAT gateway forgets a connection without traffic, and a JoinGroup is parked for minutes."""
    async with serving(serve_plainly) as server, connected(server) as connection:
        assert connection._transport._transport is not None
        sock = connection._transport._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_requests_share_the_connection_and_each_gets_its_own_answer() -> None:
    async with serving(serve_plainly) as server, connected(server) as connection:
        topics = [f"t{number}" for number in range(50)]
        assert await asyncio.gather(*(ask_over(connection, topic) for topic in topics)) == topics
        assert connection.in_flight == 0
    assert server.accepted == 1


async def test_a_request_may_be_written_while_the_deadline_of_another_one_is_due() -> None:
    async with serving(serve_plainly) as server, connected(server) as connection:
        connection._set_alarm(asyncio.get_running_loop().time())
        assert await ask_over(connection, "t") == "t"


async def test_a_task_that_goes_on_at_once_has_sent_again_when_the_frame_is_received() -> None:
    async with serving(serve_plainly) as server, connected(server) as connection:
        version, deadline = connection.usable_version(MetadataRequest), asyncio.get_running_loop().time() + 60
        receive = connection._transport._on_frame
        in_flight = []

        def receiving(frame: memoryview) -> None:
            receive(frame)
            in_flight.append(connection.in_flight)

        connection._transport._on_frame = receiving
        for _ in range(5):
            await connection.ask(about("t"), version, deadline, at_once=True)
        await ticks(2)
        assert in_flight == [1, 1, 1, 1, 0]


async def test_the_handshake_names_the_software() -> None:
    seen = []

    async def script(peer: Peer) -> None:
        asked = await peer.request()
        seen.append((asked.api_version, bytes(asked.body[:6])))

    async with serving(script) as server:
        with pytest.raises(ConnectionFailed):
            await Connection.open("b", ("127.0.0.1", server.port), options(), timeout=10, server_hostname="h")
    assert seen == [(3, b"\x06aiokc")]


async def test_an_old_broker_that_refuses_the_handshakes_version_is_asked_again_in_v0() -> None:
    async def script(peer: Peer) -> None:
        refused = await peer.request()
        refusal = ApiVersionsResponse(error_code=35, api_keys=[])
        peer.send(encode_response(refusal, version=0, correlation_id=refused.correlation_id))
        await peer.serve()

    async with serving(script) as server, connected(server) as connection:
        assert await ask_over(connection, "t") == "t"


async def test_half_frames_one_byte_per_write() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        while True:
            asked = await peer.request()
            for byte in frame_of(asked, metadata(topic_of(asked))):
                peer.send(bytes([byte]))
                await peer.drain()
                await ticks(2)

    async with serving(script) as server, connected(server) as connection:
        assert await asyncio.gather(*(ask_over(connection, f"t{number}") for number in range(5))) == [
            "t0",
            "t1",
            "t2",
            "t3",
            "t4",
        ]


async def replied(connection: Connection) -> None:
    """Return in the round of the loop in which the last response has arrived; it is not decoded yet then."""
    while connection.in_flight:  # noqa: ASYNC110 -- an event would come some rounds later
        await asyncio.sleep(0)


async def test_a_large_response_is_decoded_without_holding_the_loop() -> None:
    async def script(peer: Peer) -> None:
        await peer.serve(lambda asked: many_topics(20_000))

    rounds = 0

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async with serving(script) as server, connected(server, max_response_bytes=10 << 20) as connection:
        request = asyncio.ensure_future(connection.request(MetadataRequest(topics=None), timeout=30))
        await ticks(1)
        await replied(connection)
        counter = asyncio.ensure_future(count_rounds())  # from the response on, only the decoding is left
        response = await request
        counter.cancel()
        assert response == many_topics(20_000)
        assert rounds > 50  # 40,000 items, in slices of some hundred


async def test_a_cancelled_decode_of_a_large_response_leaves_the_connection_in_order() -> None:
    async def script(peer: Peer) -> None:
        await peer.serve(lambda asked: many_topics(5_000) if topic_of(asked) == "many" else metadata("next"))

    async with serving(script) as server, connected(server) as connection:
        request = asyncio.ensure_future(ask_over(connection, "many"))
        await ticks(1)
        await replied(connection)
        assert await cancelled(request, 2)
        assert await ask_over(connection, "next") == "next"


# Versions


async def test_no_common_version_names_both_ranges_and_the_broker() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet((1, 0, 3), (3, 0, 2))
        await peer.until_closed()

    async with serving(script) as server, connected(server) as connection:
        fetch = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
        with pytest.raises(UnsupportedVersion, match=r"broker 1 offers Fetch v0-3, and v4-\d+ is needed"):
            await connection.request(fetch, timeout=10)
        with pytest.raises(UnsupportedVersion, match=r"broker 1 does not offer SyncGroup \(API key 14\)"):
            await connection.request(
                SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]), timeout=10
            )
        assert not connection.closed


# Throttling (KIP-219)


async def test_a_throttled_connection_sends_nothing_until_the_time_is_over() -> None:
    received: list[float] = []
    loop = asyncio.get_running_loop()

    async def script(peer: Peer) -> None:
        await peer.greet()
        while True:
            asked = await peer.request()
            received.append(loop.time())
            peer.reply(asked, metadata(throttle_time_ms=50 if len(received) == 1 else 0))

    async with serving(script) as server, connected(server) as connection:
        await ask_over(connection, "t")
        until = connection.muted_until
        assert until > loop.time()
        await asyncio.gather(ask_over(connection, "t"), ask_over(connection, "t"))
        assert len(received) == 3
        assert min(received[1:]) >= until


async def test_a_throttle_of_weeks_is_not_believed() -> None:
    async def script(peer: Peer) -> None:
        await peer.serve(lambda asked: metadata(throttle_time_ms=(1 << 31) - 1))

    async with serving(script) as server, connected(server) as connection:
        await ask_over(connection, "t")
        now = asyncio.get_running_loop().time()
        assert now + 50 < connection.muted_until <= now + 60


async def test_a_throttle_beyond_the_deadline_fails_the_request_and_not_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.serve(lambda asked: metadata(throttle_time_ms=60_000))

    async with serving(script) as server, connected(server) as connection:
        await ask_over(connection, "t")
        with pytest.raises(
            RequestTimedOut, match=r"Metadata could not be sent within 0\.0\d+ s: it throttles this client"
        ):
            await ask_over(connection, "t", timeout=0.01)
        assert not connection.closed
        assert connection.in_flight == 0


async def test_a_connection_that_breaks_fails_what_waits_for_the_throttle_at_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        peer.reply(asked, metadata(throttle_time_ms=60_000))
        await close.wait()

    close = asyncio.Event()
    async with serving(script) as server, connected(server) as connection:
        await ask_over(connection, "t")
        waiting = asyncio.ensure_future(ask_over(connection, "t", timeout=60))
        await ticks(2)
        assert connection.in_flight == 1
        close.set()
        with pytest.raises(ConnectionFailed, match="Metadata not sent, the connection is closed"):
            await waiting


# A peer that does not read


async def test_requests_wait_for_a_peer_that_does_not_read_within_their_deadline() -> None:
    read = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        await read.wait()
        await peer.serve_on()

    async with serving(script) as server, connected(server) as connection:
        big = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 20_000) for _ in range(50)])
        flood = []
        while not connection._transport._is_paused:
            if connection._transport.can_write:  # else a frame is on its way in slices
                flood.append(asyncio.ensure_future(connection.request(big, timeout=60)))
            await asyncio.sleep(0)
        with pytest.raises(RequestTimedOut, match="it does not read what is sent"):
            await ask_over(connection, "late", timeout=0.01)
        patient = asyncio.ensure_future(ask_over(connection, "patient"))
        assert await cancelled(ask_over(connection, "given up"), 3)
        read.set()
        assert await patient == "patient"
        await asyncio.gather(*flood)


# Cancellation


async def test_a_cancelled_request_leaves_the_connection_in_order() -> None:
    answer = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = [await peer.request() for _ in range(3)]
        await answer.wait()
        for one in asked:
            peer.reply(one, metadata(topic_of(one)))
        await peer.serve_on()

    async with serving(script) as server, connected(server) as connection:
        before, given_up, after = (asyncio.ensure_future(ask_over(connection, topic)) for topic in ("a", "b", "c"))
        await ticks(1)
        given_up.cancel()
        await ticks(1)
        assert connection.in_flight == 3
        answer.set()
        assert await before == "a"
        assert await after == "c"
        assert given_up.cancelled()
        assert await ask_over(connection, "d") == "d"
        assert connection.in_flight == 0


async def test_a_request_cancelled_after_any_number_of_rounds_leaves_the_connection_in_order() -> None:
    async with serving(serve_plainly) as server, connected(server) as connection:
        in_time = []
        for rounds in range(30):
            in_time.append(await cancelled(ask_over(connection, "given up"), rounds))
            assert await ask_over(connection, f"next {rounds}") == f"next {rounds}"
        assert in_time[0]
        assert not in_time[-1]
    assert server.accepted == 1


async def test_a_request_cancelled_while_throttled_is_never_sent() -> None:
    topics = []

    async def script(peer: Peer) -> None:
        await peer.greet()
        while True:
            asked = await peer.request()
            topics.append(topic_of(asked))
            peer.reply(asked, metadata(throttle_time_ms=60_000 if len(topics) == 1 else 0))

    async with serving(script) as server, connected(server) as connection:
        await ask_over(connection, "first")
        assert await cancelled(ask_over(connection, "given up"), 2)
        connection.muted_until = 0.0
        await ask_over(connection, "second")
    assert topics == ["first", "second"]


# Closing


async def test_close_fails_what_is_in_flight() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.until_closed()

    async with serving(script) as server, connected(server) as connection:
        waiting = asyncio.ensure_future(ask_over(connection, "t"))
        await ticks(1)
        connection.close()
        connection.close()
        with pytest.raises(ConnectionFailed, match="broker 1: the connection was closed here, while Metadata v12 was"):
            await waiting
        assert connection.error is None


async def test_a_retired_connection_answers_what_is_in_flight_and_closes() -> None:
    answer = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        await answer.wait()
        peer.reply(asked, metadata("still"))
        await peer.until_closed()

    async with serving(script) as server, connected(server) as connection:
        waiting = asyncio.ensure_future(ask_over(connection, "t"))
        await ticks(1)
        connection.retire()
        assert not connection.usable
        assert not connection.closed
        with pytest.raises(ConnectionFailed, match="about to be closed"):
            await ask_over(connection, "u")
        answer.set()
        assert await waiting == "still"
        await connection.wait_closed()
        assert connection.error is None


async def test_a_retired_connection_still_sends_what_waited_for_the_throttle() -> None:
    count = 0

    async def script(peer: Peer) -> None:
        def answer(asked: object) -> MetadataResponse:
            nonlocal count
            count += 1
            return metadata(str(count), throttle_time_ms=20 if count == 1 else 0)

        await peer.serve(answer)

    async with serving(script) as server, connected(server) as connection:
        await ask_over(connection, "t")
        waiting = asyncio.ensure_future(ask_over(connection, "t"))
        await ticks(1)
        connection.retire()
        assert await waiting == "2"
        await connection.wait_closed()
