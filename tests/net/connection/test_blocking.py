"""BlockingConnection: a thread sends requests over a blocking socket, and a scripted server answers on the loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from contextlib import closing
from pathlib import Path

import pytest

from aiokc.config import ClientConfig
from aiokc.core.cluster.home_cluster import HomeCluster
from aiokc.errors import CertificateRefused, ConnectionFailed, MalformedResponse, RequestTimedOut, UnsupportedVersion
from aiokc.net.blocking import BlockingConnection
from aiokc.net.options import Route
from aiokc.net.tls.contexts import TlsContexts
from aiokc.wire import RequestHeader
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.group import HeartbeatRequest

from ..login.session_broker import Logins
from ..scripted import (
    WITH_SASL,
    Peer,
    about,
    dead_port,
    frame_of,
    metadata,
    named,
    never_answer,
    options,
    running_pool,
    serve_plainly,
    serving,
)


def home_of(cluster_id: str | None) -> HomeCluster:
    home = HomeCluster()
    home.cluster_id = cluster_id
    return home


def ask(
    route: Route, *, count: int = 1, connect_timeout: float = 10.0, timeout: float = 10.0, home: str | None = None
) -> list[str | None]:
    """Connect, send ``count`` requests, close. ``home``: the cluster of the client."""
    given = options(client_id="me", home=home_of(home))
    with closing(BlockingConnection.open(route, given, timeout=connect_timeout)) as connection:
        return [
            connection.request(MetadataRequest, lambda version: about("t"), timeout=timeout).cluster_id
            for _ in range(count)
        ]


def route_to(port: int) -> Route:
    return Route("broker 1", ("127.0.0.1", port), "localhost")


async def test_it_greets_and_asks_in_the_highest_version_that_both_speak() -> None:
    versions = []

    async def script(peer: Peer) -> None:
        await peer.greet((3, 0, 10), (18, 0, 4))
        while True:
            asked = await peer.request()
            versions.append(asked.api_version)
            assert asked.client_id == "me"
            peer.reply(asked, metadata())

    async with serving(script) as server:
        assert await asyncio.to_thread(ask, route_to(server.port), count=2) == ["cluster", "cluster"]
    assert versions == [10, 10]


@pytest.mark.parametrize(("home", "asked"), [("home", 2), (None, 1)])
async def test_a_new_connection_is_asked_for_its_cluster_where_the_clients_is_known(
    home: str | None, asked: int
) -> None:
    keys = []

    def answer(header: RequestHeader) -> MetadataResponse:
        keys.append(header.api_key)
        return metadata("home")

    async def script(peer: Peer) -> None:
        await peer.serve(answer)

    async with serving(script) as server:
        assert await asyncio.to_thread(ask, route_to(server.port), home=home) == ["home"]
    assert keys == [MetadataRequest.api_key] * asked


async def test_a_connection_that_leads_to_another_cluster_is_closed_unused() -> None:
    async with serving(named("other")) as server:
        with pytest.raises(ConnectionFailed, match=r"broker 1 belongs to cluster other now, .* to cluster home"):
            await asyncio.to_thread(ask, route_to(server.port), home="home")
        await server.all_closed()


async def test_a_broker_that_cannot_be_asked_for_its_cluster_is_not_asked() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet((3, 0, 0), (12, 0, 4), (18, 0, 4))
        assert (await peer.request()).api_key == HeartbeatRequest.api_key
        await peer.until_closed()

    def heartbeat(route: Route) -> None:
        BlockingConnection.open(route, options(home=home_of("home")), timeout=10.0).request(
            HeartbeatRequest,
            lambda version: HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
            timeout=0.01,
        )

    async with serving(script) as server:
        with pytest.raises(RequestTimedOut, match="no answer to Heartbeat"):
            await asyncio.to_thread(heartbeat, route_to(server.port))
        await server.all_closed()


async def test_the_system_looks_whether_the_peer_is_there() -> None:
    def keeps_alive(route: Route) -> int:
        with closing(BlockingConnection.open(route, options(), timeout=10.0)) as connection:
            return connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    async with serving(serve_plainly) as server:
        assert await asyncio.to_thread(keeps_alive, route_to(server.port))


async def test_an_answer_may_come_in_pieces() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        for byte in frame_of(asked, metadata()):
            peer.send(bytes([byte]))
            await peer.drain()
        await peer.until_closed()

    async with serving(script) as server:
        assert await asyncio.to_thread(ask, route_to(server.port)) == ["cluster"]


async def test_no_server_listens() -> None:
    with pytest.raises(ConnectionFailed, match=r"broker 1: cannot connect \(Connection refused\)"):
        await asyncio.to_thread(ask, route_to(dead_port()))


@pytest.mark.parametrize("greets", [False, True], ids=["handshake", "request"])
async def test_a_silent_broker_is_given_up_in_time(greets: bool) -> None:
    async def script(peer: Peer) -> None:
        if greets:
            await peer.greet()
        await never_answer(peer)

    async with serving(script) as server:
        connect_timeout, timeout = (200.0, 0.3) if greets else (0.3, 200.0)
        begin = time.monotonic()
        with pytest.raises(RequestTimedOut, match=r"no answer to Metadata v\d+ within" if greets else "no handshake"):
            await asyncio.to_thread(ask, route_to(server.port), connect_timeout=connect_timeout, timeout=timeout)
        assert 0.25 < time.monotonic() - begin < 100.0


async def test_a_broker_that_trickles_gets_no_more_time() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        frame = frame_of(asked, metadata())
        while True:  # each byte comes in time, but there are never enough of them
            peer.send(frame[:1] if len(frame) > 5 else b"")
            frame = frame[1:] if len(frame) > 5 else frame
            await asyncio.sleep(0.05)

    async with serving(script) as server:
        with pytest.raises(RequestTimedOut):
            await asyncio.to_thread(ask, route_to(server.port), timeout=0.3)


@pytest.mark.parametrize("greets", [False, True], ids=["handshake", "request"])
async def test_a_connection_that_breaks(greets: bool) -> None:
    async def script(peer: Peer) -> None:
        if greets:
            await peer.greet()
        await peer.request()
        peer.close()

    async with serving(script) as server:
        with pytest.raises(ConnectionFailed, match="broker 1 closed the connection"):
            await asyncio.to_thread(ask, route_to(server.port))


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"])
async def test_no_length_is_believed(length: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.request()
        peer.send(length)
        await peer.until_closed()

    async with serving(script) as server:
        with pytest.raises(MalformedResponse, match="max_response_bytes"):
            await asyncio.to_thread(ask, route_to(server.port))


async def test_an_answer_to_another_request_is_not_believed() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        frame = bytearray(frame_of(asked, metadata()))
        frame[7] ^= 1
        peer.send(bytes(frame))
        await peer.until_closed()

    async with serving(script) as server:
        with pytest.raises(MalformedResponse, match="was due"):
            await asyncio.to_thread(ask, route_to(server.port))


async def test_an_api_that_the_broker_does_not_have() -> None:
    def build(version: int) -> FetchRequest:
        raise AssertionError(f"a request was made for v{version}")

    def fetch(route: Route) -> None:
        with closing(BlockingConnection.open(route, options(), timeout=10.0)) as connection:
            connection.request(FetchRequest, build, timeout=10.0)

    async def script(peer: Peer) -> None:
        await peer.greet((18, 0, 4))
        await peer.until_closed()

    async with serving(script) as server:
        with pytest.raises(UnsupportedVersion, match="does not offer Fetch"):
            await asyncio.to_thread(fetch, route_to(server.port))


async def test_over_tls_and_with_sasl(tmp_path: Path) -> None:
    """The same generators that the event loop drives: here a thread drives them."""
    sent: list[bytes] = []
    (tmp_path / "server.pem").write_text(_KEY_AND_CERTIFICATE)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(tmp_path / "server.pem")
    contexts = TlsContexts(ClientConfig(ssl_truststore_location=tmp_path / "server.pem"))

    def ask_safely(route: Route) -> str | None:
        secure = options(tls=contexts, credentials=Logins())
        with closing(BlockingConnection.open(route, secure, timeout=10.0)) as connection:
            return connection.request(MetadataRequest, lambda version: about("t"), timeout=10.0).cluster_id

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(serve(reader, writer)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, 0)
        with contextlib.suppress(EOFError):
            await peer.greet(*WITH_SASL)
            sent.append(await peer.log_in())
            await peer.serve_on()
        await peer.aclose()

    tasks: set[asyncio.Task[None]] = set()
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=server_side)
    address = server.sockets[0].getsockname()[:2]
    try:
        assert await asyncio.to_thread(ask_safely, Route("broker 1", address, "localhost")) == "t"
        assert sent == [b"\0alice\0secret"]
        with pytest.raises(CertificateRefused, match="not for 'another-name'"):
            await asyncio.to_thread(ask_safely, Route("broker 1", address, "another-name"))
    finally:
        server.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_it_goes_the_way_that_the_pool_went() -> None:
    async with serving(serve_plainly) as server, running_pool(server) as pool:
        pool.set_brokers({1: server.broker(1)})
        assert pool.route(1) is None
        await pool.connection(1, timeout=10.0)
        route = pool.route(1)
        assert route is not None
        assert route.address == ("127.0.0.1", server.port)
        assert await asyncio.to_thread(ask, route) == ["t"]
        assert pool.route(2) is None


# For CN=localhost, self-signed, for these tests only.
_KEY_AND_CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgwxvTrDsGsnu6uZ8W
w2xoGadrLTL9bsAkMk0zZnN1NxehRANCAARVvtZDQNjeg832cmCEI+YV0VidmQ30
k2/0UrfvbXxh8f5cJks83etP2aN8YZ74qVyCA0l9lSZMsPcgc5B481oU
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUBVS9lsGFTpYpWecVdCtlsJMf8g4wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTEyMTY1MVoYDzIxMjYxMDI4
MTIxNjUxWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARVvtZDQNjeg832cmCEI+YV0VidmQ30k2/0UrfvbXxh8f5cJks83etP
2aN8YZ74qVyCA0l9lSZMsPcgc5B481oUo28wbTAdBgNVHQ4EFgQUrKZL4wMclaPS
cVstQo0VMGK7lqQwHwYDVR0jBBgwFoAUrKZL4wMclaPScVstQo0VMGK7lqQwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSQAwRgIhAMZfgUADoX7g745UWGZ2dcjDO13mrDq2LaSlGPv9JsVaAiEA
qkFiSsLusbqnghpix9CgcpzBMxkYcAYNyhxTV716SOE=
-----END CERTIFICATE-----
"""
