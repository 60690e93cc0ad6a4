"""Connecting: every address of a name is tried, servers that are no brokers are told apart, and it always ends."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random

import pytest

from aiokc.config import Resolve
from aiokc.core.sasl.gssapi import Gssapi, SecurityContext
from aiokc.errors import AuthenticationFailed, ConfigError, ConnectionFailed, MalformedResponse
from aiokc.net.addresses import TriedAddresses
from aiokc.net.connect import connect
from aiokc.net.connection import Connection
from aiokc.net.own_thread import OwnThread
from aiokc.net.pool import Purpose
from aiokc.wire.messages.discovery import MetadataRequest

from ..credentials.tokens.scripted import run_virtually
from ..login.session_broker import Logins
from ..scripted import (
    WITH_SASL,
    Peer,
    api_versions,
    cancelled,
    dead_port,
    frame_of,
    metadata,
    never_answer,
    options,
    running_pool,
    serve_plainly,
    serving,
    ticks,
)

pytestmark = pytest.mark.any_loop


def to(*addresses: tuple[str, int]) -> Resolve:
    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        return addresses

    return resolve


async def reach(port: int = 9092, timeout: float = 10.0, **given: object) -> Connection:
    return await connect(f"broker 1 (127.0.0.1:{port})", ("127.0.0.1", port), options(**given), timeout=timeout)


async def finish(connection: Connection) -> None:
    connection.close()
    await connection.wait_closed()


async def test_all_addresses_of_a_name_are_tried() -> None:
    async with serving(serve_plainly) as server:
        resolve = to(("127.0.0.1", dead_port()), ("127.0.0.1", server.port))
        connection = await connect("broker 1 (kafka:9092)", ("kafka", 9092), options(resolve=resolve), timeout=10)
        assert connection.name == f"broker 1 (kafka:9092) at 127.0.0.1:{server.port}"
        await finish(connection)


def test_an_address_that_hangs_leaves_time_for_the_next_one() -> None:
    async def story() -> None:
        async with serving(never_answer) as hanging, serving(serve_plainly) as server:
            resolve = to(("127.0.0.1", hanging.port), ("127.0.0.1", server.port))
            connection = await reach(resolve=resolve, timeout=2.0)
            assert connection.name.endswith(f" at 127.0.0.1:{server.port}")
            await finish(connection)
            async with asyncio.timeout(10):
                await hanging.all_closed()

    run_virtually(story)


def test_the_address_that_worked_last_comes_first(caplog: pytest.LogCaptureFixture) -> None:
    """A silent address would cost each connection of a broker its share of the time."""
    ports: list[int] = []

    async def story() -> None:
        async with serving(never_answer) as hanging, serving(serve_plainly) as server:
            ports.append(hanging.port)
            resolve = to(("127.0.0.1", hanging.port), ("127.0.0.1", server.port))
            async with running_pool(server, resolve=resolve, socket_connection_setup_timeout_ms=500) as pool:
                pool.set_brokers({1: server.broker(1)})
                with caplog.at_level(logging.INFO, "aiokc.net"):
                    await pool.connection(1, Purpose.DATA, timeout=10)
                for purpose in (Purpose.COORDINATOR, Purpose.FETCH, Purpose.DATA):
                    pool.drop(1, purpose)
                    await pool.connection(1, purpose, timeout=10)
                assert (hanging.accepted, server.accepted) == (1, 4)

    run_virtually(story)
    told = [record.getMessage() for record in caplog.records if record.name == "aiokc.net"]
    assert [f"127.0.0.1:{ports[0]}: no answer to the handshake" in text for text in told] == [True]


def test_a_name_may_have_more_addresses_than_the_time_is_enough_for() -> None:
    """Each that is tried has a third of the time at least: an eighth would be too short for this broker."""

    async def slow(peer: Peer) -> None:
        await asyncio.sleep(0.3)
        await serve_plainly(peer)

    async def story() -> None:
        async with serving(slow) as server:
            resolve = to(("127.0.0.1", server.port), *(("127.0.0.1", dead_port()) for _ in range(7)))
            await finish(await reach(resolve=resolve, timeout=1.0))

    run_virtually(story)


def test_the_next_attempt_goes_on_behind_the_last_address() -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            hanging = [await stack.enter_async_context(serving(never_answer)) for _ in range(7)]
            server = await stack.enter_async_context(serving(serve_plainly))
            resolve, tried = to(*(("127.0.0.1", one.port) for one in [*hanging, server])), TriedAddresses()
            began = asyncio.get_running_loop().time()
            for _ in range(2):
                with pytest.raises(ConnectionFailed, match=r"; no time was left for 5 more addresses$"):
                    await connect("broker 1", ("kafka", 9092), options(resolve=resolve), timeout=3.0, tried=tried)
            await finish(await connect("broker 1", ("kafka", 9092), options(resolve=resolve), timeout=3.0, tried=tried))
            assert [one.accepted for one in [*hanging, server]] == [1] * 8
            assert asyncio.get_running_loop().time() - began < 7.1

    run_virtually(story)


def test_a_pool_knows_which_addresses_it_has_tried() -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            hanging = [await stack.enter_async_context(serving(never_answer)) for _ in range(4)]
            server = await stack.enter_async_context(serving(serve_plainly))
            resolve = to(*(("127.0.0.1", one.port) for one in [*hanging, server]))
            async with running_pool(server, resolve=resolve, socket_connection_setup_timeout_ms=500) as pool:
                pool.set_brokers({1: server.broker(1)})
                with pytest.raises(ConnectionFailed, match="no time was left for 2 more addresses"):
                    await pool.connection(1, Purpose.DATA, timeout=10)
                await pool.connection(1, Purpose.DATA, timeout=10)
                assert [one.accepted for one in hanging] == [1] * 4

    run_virtually(story)


async def test_an_address_that_worked_and_is_gone_from_the_name_is_not_tried() -> None:
    async with serving(serve_plainly) as old, serving(serve_plainly) as new:
        gone, resolve = ("127.0.0.1", old.port), to(("127.0.0.1", new.port))
        await finish(await connect("broker 1", ("kafka", 9092), options(resolve=resolve), timeout=10, first=gone))
        assert (old.accepted, new.accepted) == (0, 1)


async def test_the_error_names_all_failures() -> None:
    first, second = dead_port(), dead_port()
    resolve = to(("127.0.0.1", first), ("127.0.0.1", second))
    with pytest.raises(ConnectionFailed) as got:
        await connect("broker 1 (kafka:9092)", ("kafka", 9092), options(resolve=resolve), timeout=10)
    assert re.fullmatch(
        rf"broker 1 \(kafka:9092\) at 127.0.0.1:{first}: cannot connect \(.*\); "
        rf"broker 1 \(kafka:9092\) at 127.0.0.1:{second}: cannot connect \(.*\)",
        str(got.value),
    )


async def test_the_error_names_three_failures_of_many() -> None:
    ports = [dead_port() for _ in range(5)]
    resolve = to(*(("127.0.0.1", port) for port in ports))
    with pytest.raises(ConnectionFailed, match=r"; and 2 more$") as got:
        await connect("broker 1 (kafka:9092)", ("kafka", 9092), options(resolve=resolve), timeout=10)
    assert [f"127.0.0.1:{port}: cannot connect" in str(got.value) for port in ports] == [True] * 3 + [False] * 2


async def test_a_refused_connection_has_its_cause() -> None:
    port = dead_port()
    with pytest.raises(ConnectionFailed, match=rf"broker 1 \(127.0.0.1:{port}\): cannot connect \(") as got:
        await reach(port)
    assert isinstance(got.value.__cause__, OSError)


@pytest.mark.parametrize("host", ["a..b", "k" * 300, "a\0b", "xn--\xe9"])
async def test_a_host_from_resolve_that_no_resolver_takes(host: str) -> None:
    with pytest.raises(ConnectionFailed, match=r"broker 1 .*: cannot connect \("):
        await reach(resolve=to((host, 9092)))


async def test_bytes_behind_the_last_answer_of_the_handshake_end_it() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        peer.send(frame_of(asked, api_versions()) + b"\0\0\0\x04\0\0\0\x63")
        await peer.until_closed()

    async with serving(script) as server:
        with pytest.raises(MalformedResponse, match="sent 4 bytes that nobody asked for"):
            await reach(server.port)


async def test_a_name_that_is_never_resolved_ends_at_the_deadline() -> None:
    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(ConnectionFailed, match=r"the name was not resolved within 0\.0\d+ s"):
        await reach(resolve=resolve, timeout=0.02)


async def test_a_connection_that_is_never_made_ends_at_the_deadline() -> None:
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for occupant in (first, second):  # fill the backlog: the kernel answers no further SYN then
            occupant.setblocking(False)
            occupant.connect_ex(listening.getsockname())
        with pytest.raises(ConnectionFailed, match=r"no connection within 0\.0\d+ s"):
            await reach(listening.getsockname()[1], timeout=0.05)


def test_a_handshake_that_is_never_answered_ends_at_the_deadline() -> None:
    async def story() -> None:
        async with serving(never_answer) as server:
            with pytest.raises(
                ConnectionFailed, match=r"no answer to the handshake \(is it a Kafka listener\?\) within"
            ):
                await reach(server.port, timeout=0.5)
            await server.all_closed()

    run_virtually(story)


def test_something_that_holds_the_loop_ends_no_lookup_whose_answer_is_there() -> None:
    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        await asyncio.sleep(0.1)
        return [("127.0.0.1", ports[0])]

    ports: list[int] = []

    async def story() -> None:
        async with serving(serve_plainly) as server:
            ports.append(server.port)
            opening = asyncio.ensure_future(reach(resolve=resolve, timeout=0.5))
            await ticks(2)
            asyncio.get_running_loop()._now += 5.0  # type: ignore[attr-defined]
            await finish(await opening)

    run_virtually(story)


def test_something_that_holds_the_loop_ends_no_handshake_whose_answer_is_there() -> None:
    """The answer is read first, and then there is time for the rest of the handshake."""
    accepted = asyncio.Event()

    async def script(peer: Peer) -> None:
        accepted.set()
        await peer.greet(*WITH_SASL)
        await peer.log_in()
        await peer.until_closed()

    async def story() -> None:
        async with serving(script) as server:
            given = {"credentials": Logins(), "random": Random(1)}
            opening = asyncio.ensure_future(reach(server.port, timeout=0.5, **given))
            await accepted.wait()
            asyncio.get_running_loop()._now += 5.0  # type: ignore[attr-defined]
            await finish(await opening)

    run_virtually(story)


def test_a_silent_server_is_not_let_off_where_the_loop_is_held_again_and_again() -> None:
    async def story() -> None:
        async with serving(never_answer) as server:
            opening = asyncio.ensure_future(reach(server.port, timeout=0.5))
            for _ in range(4):
                await asyncio.sleep(0.1)
                asyncio.get_running_loop()._now += 2.0  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            assert opening.done()
            assert isinstance(opening.exception(), ConnectionFailed)

    run_virtually(story)


async def test_a_server_that_closes_at_the_handshake() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()

    async with serving(script) as server:
        with pytest.raises(
            ConnectionFailed, match=r"closed the connection, .* is it a Kafka listener, and a plaintext"
        ):
            await reach(server.port)


async def test_an_http_server_is_recognised() -> None:
    async def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        await peer.until_closed()

    async with serving(script) as server:
        with pytest.raises(MalformedResponse, match=rf"broker 1 \(127.0.0.1:{server.port}\): .*an HTTP server"):
            await reach(server.port)
        await server.all_closed()


async def test_a_tls_listener_is_recognised() -> None:
    async def script(peer: Peer) -> None:
        peer.send(bytes.fromhex("15030300020250"))  # fatal alert: internal error
        await peer.until_closed()

    async with serving(script) as server:
        with pytest.raises(MalformedResponse, match=r"a TLS listener"):
            await reach(server.port)


async def test_garbage_in_the_handshake() -> None:
    async def script(peer: Peer) -> None:
        asked = await peer.request()
        peer.send(b"\0\0\0\x09" + asked.correlation_id.to_bytes(4, "big") + b"\0\0\xff\xff\xff")
        await peer.until_closed()

    async with serving(script) as server:
        with pytest.raises(MalformedResponse, match=r"ApiVersions v3: "):
            await reach(server.port)


@pytest.mark.parametrize("rounds", range(12))
async def test_connecting_may_be_cancelled_at_any_moment(rounds: int) -> None:
    """No socket stays open; a connection that was made before the cancellation is the caller's."""
    async with serving(never_answer) as server:
        assert await cancelled(reach(server.port), rounds)
        await server.all_closed()


# SASL


async def test_sasl_comes_between_the_handshake_and_the_first_request() -> None:
    sent = []

    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        sent.append(await peer.log_in(session_ms=4_000))
        await peer.serve_on(lambda asked: metadata("ready"))

    async with serving(script) as server:
        connection = await reach(server.port, credentials=Logins(), random=Random(1))
        assert (await connection.request(MetadataRequest(topics=[]), timeout=10)).cluster_id == "ready"
        session = connection.greeting.session
        assert session is not None
        assert session.lifetime_ms == 4_000
        assert 0 <= asyncio.get_running_loop().time() - session.sent_at < 60
        await finish(connection)
    assert sent == [b"\0alice\0secret"]


async def test_a_refusal_of_the_credentials_is_not_tried_on_another_address() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        await peer.log_in(58, "wrong password")
        await peer.until_closed()

    async with serving(script) as server, serving(serve_plainly) as other:
        resolve = to(("127.0.0.1", server.port), ("127.0.0.1", other.port))
        with pytest.raises(AuthenticationFailed, match="wrong password"):
            await reach(resolve=resolve, credentials=Logins(), random=Random(1))
        assert (server.accepted, other.accepted) == (1, 0)
        await server.all_closed()


async def test_a_login_for_which_a_package_is_missing_is_not_tried_on_another_address() -> None:
    """No broker could mend it, and a retriable error would have it tried until the deadline."""

    def open_context() -> SecurityContext:
        raise ConfigError("sasl_mechanism 'GSSAPI' needs the package gssapi")

    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        await peer.until_closed()

    thread = OwnThread("aiokc test")
    async with serving(script) as server, serving(script) as other:
        resolve = to(("127.0.0.1", server.port), ("127.0.0.1", other.port))
        logins = Logins(lambda: Gssapi(open_context))
        with pytest.raises(ConfigError, match="needs the package gssapi"):
            await reach(resolve=resolve, credentials=logins, thread=thread, random=Random(1))
        assert (server.accepted, other.accepted) == (1, 0)
        await server.all_closed()
    thread.close()
