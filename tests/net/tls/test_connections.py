"""The library's connections over TLS, on both loops and on a blocking socket: names, tunnels, and what failures say."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from aiokc.config import ClientConfig, SecurityConfig
from aiokc.errors import CertificateRefused, ConnectionFailed, KafkaError, MalformedResponse, RequestTimedOut
from aiokc.net.blocking import BlockingConnection
from aiokc.net.connect import connect
from aiokc.net.options import ConnectionOptions, Route
from aiokc.net.pool import Pool
from aiokc.net.tls.contexts import TlsContexts
from aiokc.wire import decode_request_header, encode_response
from aiokc.wire.messages.discovery import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

from . import certificates as made
from .peers.listening import Listener, Script, listening, says, stays_silent

Make = Callable[..., TlsContexts]
#: (options, listener, name of the host, seconds) -> the APIs that the broker offers
Open = Callable[[ConnectionOptions, Listener, str, float], Sequence[int]]

SECONDS = 10.0
NAME = "broker 1"


@pytest.fixture(params=["asyncio", "uvloop", "blocking"])
def connected(request: pytest.FixtureRequest) -> Open:
    """Open one of the library's connections, and close it."""
    if request.param == "blocking":
        return on_a_socket
    if request.param == "asyncio":
        return on_a_loop(asyncio.SelectorEventLoop)
    return on_a_loop(pytest.importorskip("uvloop").new_event_loop)


def on_a_loop(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Open:
    async def work(options: ConnectionOptions, peer: Listener, host: str, seconds: float) -> Sequence[int]:
        connection = await connect(NAME, (host, peer.port), options, timeout=seconds)
        connection.close()
        await connection.wait_closed()
        return list(connection.versions)

    def run(options: ConnectionOptions, peer: Listener, host: str, seconds: float) -> Sequence[int]:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(work(options, peer, host, seconds))

    return run


def on_a_socket(options: ConnectionOptions, peer: Listener, host: str, seconds: float) -> Sequence[int]:
    name = host if options.tls is None else options.tls.server_name(host)
    connection = BlockingConnection.open(Route(NAME, (peer.host, peer.port), name), options, timeout=seconds)
    connection.close()
    return list(connection._pipeline.versions)


def options(tls: TlsContexts | None, host: str = "127.0.0.1") -> ConnectionOptions:
    """Return options with a ``resolve`` that maps every name to ``host``, as a tunnel does."""

    async def tunnel(name: str, port: int) -> Sequence[tuple[str, int]]:
        return [(host, port)]

    return ConnectionOptions(client_id="me", max_response_bytes=1 << 20, resolve=tunnel, tls=tls)


def broker(context: ssl.SSLContext) -> Script:
    """Answer the handshake of clients that speak TLS."""

    def script(peer: socket.socket) -> None:
        secure = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
        with secure:
            try:
                secure.do_handshake()
                greet(secure)
            except ssl.SSLError:
                while socket.socket.recv(secure, 65_536):  # else the socket is reset, and the client may lose the alert
                    pass

    return script


def greet(secure: ssl.SSLSocket) -> None:
    frame = secure.recv(65_536)
    asked = decode_request_header(memoryview(frame)[4:], {18: ApiVersionsRequest.flexible_from})
    offered = ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    secure.sendall(encode_response(offered, version=asked.api_version, correlation_id=asked.correlation_id))
    while secure.recv(65_536):
        pass


def error(
    connected: Open, given: ConnectionOptions, script: Script, host: str = "localhost", within: float = SECONDS
) -> KafkaError:
    with listening(script) as peer, pytest.raises(KafkaError) as caught:
        connected(given, peer, host, within)
    assert str(caught.value).startswith(NAME)
    return caught.value


@pytest.mark.parametrize("name", ["localhost", "localhost.", "127.0.0.1", "b-1.kafka.example"])
def test_through_a_tunnel_the_certificate_is_for_the_brokers_name(connected: Open, contexts: Make, name: str) -> None:
    context = made.of_server(made.server(name.removesuffix(".")))
    with listening(broker(context)) as peer:
        assert connected(options(contexts()), peer, name, SECONDS) == [18]
    assert "not for 'b-2.kafka.example'" in str(
        error(connected, options(contexts()), broker(context), "b-2.kafka.example")
    )


def test_ipv6(connected: Open, contexts: Make) -> None:
    with listening(broker(made.of_server(made.server("::1"))), "::1") as peer:
        assert connected(options(contexts(), "::1"), peer, "::1", SECONDS) == [18]


@pytest.mark.parametrize("host", ["", "a..b", "a" * 64, "a b", ".", "*"])
def test_no_connection_is_made_to_a_host_without_a_name(connected: Open, contexts: Make, host: str) -> None:
    """With an empty name ssl does not check the name at all; with the others it raises errors that are no OSError."""
    accepted: list[socket.socket] = []
    with listening(accepted.append) as peer, pytest.raises(ConnectionFailed, match="can have no certificate"):
        connected(options(contexts()), peer, host, SECONDS)
    assert accepted == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_broker_that_wants_a_certificate(connected: Open, contexts: Make, version: ssl.TLSVersion) -> None:
    context = made.wanting_clients(made.of_server(made.server("localhost")))
    context.minimum_version = context.maximum_version = version
    found = error(connected, options(contexts()), broker(context))
    assert isinstance(found, CertificateRefused)
    assert "wants a certificate of this client" in str(found)


def test_an_unknown_authority(connected: Open, contexts: Make) -> None:
    unknown = made.of_server(made.stranger().issue_cert("localhost"))
    found = error(connected, options(contexts()), broker(unknown))
    assert isinstance(found, CertificateRefused)
    assert "is not in ssl_truststore_location=" in str(found)


def test_a_plaintext_listener(connected: Open, contexts: Make) -> None:
    found = error(connected, options(contexts()), says(b""))
    assert isinstance(found, ConnectionFailed)
    assert "closed during the TLS handshake" in str(found)


def test_an_http_server(connected: Open, contexts: Make) -> None:
    found = error(connected, options(contexts()), says(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert "what answered is not TLS" in str(found)


def test_a_peer_that_stays_silent(connected: Open, contexts: Make) -> None:
    found = error(connected, options(contexts()), stays_silent, within=0.05)
    assert isinstance(found, ConnectionFailed | RequestTimedOut)
    assert re.search(r"within 0\.0", str(found))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x50", "looks like a TLS listener: set security_protocol='SSL' or 'SASL_SSL'"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "looks like an HTTP server"),
    ],
)
def test_plaintext_to_a_tls_listener(connected: Open, answer: bytes, told: str) -> None:
    found = error(connected, options(None), says(answer))
    assert isinstance(found, MalformedResponse)
    assert told in str(found)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"security_protocol": "SSL"}, []),
        ({"ssl_endpoint_identification_algorithm": ""}, ["a certificate for any host is accepted"]),
    ],
)
async def test_what_is_weaker_than_it_need_be_is_logged_once(
    given: dict[str, Any], told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aiokc")
    Pool(ClientConfig(**given), random=Random(0))
    Pool(ClientConfig(), random=Random(0))  # one that has nothing to say
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == len(told)
    assert all(part in sentence for part, sentence in zip(told, found, strict=True))


def test_a_context_without_checks_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    (told,) = SecurityConfig(security_protocol="SSL", ssl_context=careless).security_warnings
    assert "does not verify certificates" in told
