"""Connections over TLS, on both loops and on the blocking socket: what goes wrong, and what the error says."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from aiokc.config import ClientConfig
from aiokc.errors import CertificateRefused, ConnectionFailed, KafkaError, NoBrokersAvailable
from aiokc.net.blocking import BlockingConnection
from aiokc.net.connect import connect
from aiokc.net.options import Route
from aiokc.net.tls.contexts import TlsContexts
from aiokc.testing import Certificates
from aiokc.wire.messages.discovery import MetadataRequest

from ..scripted import (
    WITH_SASL,
    Peer,
    about,
    ask,
    ask_over,
    dead_port,
    frame_of,
    many_topics,
    metadata,
    never_answer,
    options,
    running_pool,
    serve_plainly,
    serving,
    topic_of,
)
from .session_broker import Logins

pytestmark = [pytest.mark.any_loop, pytest.mark.timeout(30)]


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return Certificates()


def trusting(certificates: Certificates, **given: Any) -> TlsContexts:
    return TlsContexts(ClientConfig(ssl_truststore_certificates=certificates.ca_pem, **given))


async def by_loop(contexts: TlsContexts, port: int, host: str = "localhost") -> str | None:
    """Connect, send one request and close, on an event loop. Return the answer."""

    async def resolve(host: str, port: int) -> list[tuple[str, int]]:
        return [("127.0.0.1", port)]

    connection = await connect("broker 1", (host, port), options(tls=contexts, resolve=resolve), timeout=5)
    try:
        return await ask_over(connection, "t")
    finally:
        connection.close()
        await connection.wait_closed()


async def by_thread(contexts: TlsContexts, port: int, host: str = "localhost") -> str | None:
    """Do the same on a blocking socket, as the watchdog thread does it."""

    def ask_blocking() -> str | None:
        route = Route("broker 1", ("127.0.0.1", port), host)
        with closing(BlockingConnection.open(route, options(tls=contexts), timeout=5)) as connection:
            return connection.request(MetadataRequest, lambda version: about("t"), timeout=5).cluster_id

    return await asyncio.to_thread(ask_blocking)


@pytest.fixture(params=[by_loop, by_thread], ids=["loop", "thread"])
def reach(request: pytest.FixtureRequest) -> Callable[..., Any]:
    chosen: Callable[..., Any] = request.param
    return chosen


async def test_in_good_order(reach: Callable[..., Any], certificates: Certificates) -> None:
    async with serving(serve_plainly, tls=certificates.server_context()) as server:
        for host in ("localhost", "127.0.0.1"):
            assert await reach(trusting(certificates), server.port, host) == "t"


async def test_an_unknown_authority(reach: Callable[..., Any], certificates: Certificates) -> None:
    async with serving(serve_plainly, tls=Certificates().server_context()) as server:
        with pytest.raises(CertificateRefused, match=r"broker 1.*: the issuer of the broker's certificate is not in"):
            await reach(trusting(certificates), server.port)


async def test_a_wrong_name(reach: Callable[..., Any], certificates: Certificates) -> None:
    async with serving(serve_plainly, tls=certificates.server_context()) as server:
        with pytest.raises(CertificateRefused, match=r"certificate is not for 'elsewhere.example'"):
            await reach(trusting(certificates), server.port, "elsewhere.example")


async def test_an_expired_certificate(reach: Callable[..., Any], certificates: Certificates) -> None:
    async with serving(serve_plainly, tls=certificates.server_context(certificates.expired())) as server:
        with pytest.raises(CertificateRefused, match="has expired; the clock here says"):
            await reach(trusting(certificates), server.port)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_a_broker_that_wants_a_certificate_of_ours(
    reach: Callable[..., Any], certificates: Certificates, version: ssl.TLSVersion
) -> None:
    """In TLS 1.3 the handshake succeeds: the first read fails."""
    context = certificates.server_context(client_auth="required")
    context.minimum_version = context.maximum_version = version
    with (
        telling_by_alert(context) as port,
        pytest.raises(CertificateRefused, match=r"wants a certificate of this client .*ssl_keystore_location"),
    ):
        await reach(trusting(certificates), port)


@contextmanager
def telling_by_alert(context: ssl.SSLContext) -> Iterator[int]:
    """A listener that takes one connection and sends the handshake's alert, which asyncio's server does not send."""

    def serve() -> None:
        accepted, _ = listening.accept()
        with accepted, accepted.dup() as kept:
            try:
                context.wrap_socket(accepted, server_side=True)
            except OSError:
                kept.shutdown(socket.SHUT_WR)
                while kept.recv(4096):
                    pass

    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        thread.join(10)
        listening.close()


async def test_a_certificate_of_ours(reach: Callable[..., Any], certificates: Certificates, tmp_path: Path) -> None:
    keystore = tmp_path / "alice.pem"
    keystore.write_text(certificates.client_pem("alice"))
    async with serving(serve_plainly, tls=certificates.server_context(client_auth="required")) as server:
        assert await reach(trusting(certificates, ssl_keystore_location=keystore), server.port) == "t"


async def test_tls_to_a_plaintext_listener(reach: Callable[..., Any], certificates: Certificates) -> None:
    async def closes(peer: Peer) -> None:
        await peer.read(5)  # a broker takes the beginning of a ClientHello for the length of a request
        peer.reset()

    async with serving(closes) as server:
        with pytest.raises(ConnectionFailed, match=r"TLS handshake.*plaintext listener"):
            await reach(trusting(certificates), server.port)


async def test_a_tls_listener_that_closes_at_the_first_request(certificates: Certificates) -> None:
    async def closes(peer: Peer) -> None:
        await peer.request()

    async with serving(closes, tls=certificates.server_context()) as server:
        with pytest.raises(ConnectionFailed, match=r"and a TLS one, or does it want a certificate"):
            await by_loop(trusting(certificates), server.port)


async def test_plaintext_to_a_tls_listener(certificates: Certificates) -> None:
    async with serving(serve_plainly, tls=certificates.server_context()) as server:
        with pytest.raises(KafkaError, match=r"security_protocol|plaintext one"):
            await connect("broker 1", ("127.0.0.1", server.port), options(), timeout=5)


@pytest.mark.parametrize("host", ["", "a..b", "x" * 64, "y" * 300])
async def test_names_that_no_certificate_is_for(host: str, certificates: Certificates) -> None:
    """With an empty name, ssl would skip the check of the name without an error."""
    async with serving(serve_plainly, tls=certificates.server_context()) as server:
        with pytest.raises(ConnectionFailed, match="can have no certificate"):
            await by_loop(trusting(certificates), server.port, host)
        assert server.accepted == 0


async def test_a_peer_that_never_answers_the_tls_handshake_is_given_up(certificates: Certificates) -> None:
    async with serving(never_answer) as server:
        begin = asyncio.get_running_loop().time()
        with pytest.raises(ConnectionFailed, match=r"no TLS connection within 0\.\d"):
            await connect("broker 1", ("127.0.0.1", server.port), options(tls=trusting(certificates)), timeout=0.5)
        assert asyncio.get_running_loop().time() - begin < 5
        await server.all_closed()


async def test_the_setup_timeout_covers_all_of_it(certificates: Certificates) -> None:
    """TCP and TLS are done; the login is not answered."""

    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        await peer.until_closed()

    given: Any = Logins()
    async with serving(script, tls=certificates.server_context()) as server:
        with pytest.raises(ConnectionFailed, match=r"within 0\.\d"):
            await connect(
                "broker 1",
                ("127.0.0.1", server.port),
                options(tls=trusting(certificates), credentials=given),
                timeout=0.3,
            )
        await server.all_closed()


async def test_frames_of_every_size(certificates: Certificates) -> None:
    """TLS records of one byte each, and responses of many TLS records."""

    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        for byte in frame_of(asked, metadata(topic_of(asked))):
            peer.send(bytes([byte]))
            await peer.drain()
        asked = await peer.request()
        peer.reply(asked, many_topics(20_000))
        await peer.until_closed()

    async with serving(script, tls=certificates.server_context()) as server:
        connection = await connect(
            "broker 1",
            ("127.0.0.1", server.port),
            options(tls=trusting(certificates), max_response_bytes=10 << 20),
            timeout=5,
        )
        assert await ask_over(connection, "small") == "small"
        answer = await connection.request(about("large"), timeout=10)
        assert len(answer.topics or ()) == 20_000
        connection.close()
        await connection.wait_closed()


async def test_sixteen_thousand_records_of_one_byte(certificates: Certificates) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        frame = frame_of(asked, many_topics(500))
        for at in range(min(len(frame), 16_384)):
            peer.send(frame[at : at + 1])
        peer.send(frame[16_384:])
        await peer.until_closed()

    async with serving(script, tls=certificates.server_context()) as server:
        connection = await connect(
            "broker 1", ("127.0.0.1", server.port), options(tls=trusting(certificates)), timeout=5
        )
        assert len((await connection.request(about("t"), timeout=10)).topics or ()) == 500
        connection.close()
        await connection.wait_closed()


async def test_a_close_in_the_middle_of_a_frame(certificates: Certificates) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        asked = await peer.request()
        peer.send(frame_of(asked, metadata("t"))[:-3])  # a close_notify follows

    async with serving(script, tls=certificates.server_context()) as server:
        with pytest.raises(ConnectionFailed, match=r"broker 1.* closed the connection, while Metadata|broke"):
            await by_loop(trusting(certificates), server.port)


# The pool


@pytest.fixture
def secure(certificates: Certificates) -> dict[str, Any]:
    return {"ssl_truststore_certificates": certificates.ca_pem, "security_protocol": "SSL"}


async def test_what_speaks_no_kafka_is_no_question_of_time() -> None:
    async def alert(peer: Peer) -> None:
        await peer.read(4)
        peer.send(b"\x15\x03\x03\x00\x02\x02\x46")
        await peer.until_closed()

    async with serving(alert) as one, serving(alert) as two, running_pool(one, two) as pool:
        with pytest.raises(NoBrokersAvailable, match=r"no broker answered Metadata: .*security_protocol") as raised:
            await ask(pool, None, timeout=60)
        assert not raised.value.retriable
    async with serving(alert) as one, running_pool(one, f"127.0.0.1:{dead_port()}") as pool:
        with pytest.raises(NoBrokersAvailable) as raised:
            await ask(pool, None, timeout=0.3)
        assert raised.value.retriable, "the other server may come back"


async def test_other_bootstrap_servers_are_tried_after_a_certificate_that_is_refused(
    certificates: Certificates, secure: dict[str, Any]
) -> None:
    """One broker may be in the middle of a renewal of its certificate."""
    for _ in range(3):
        async with (
            serving(serve_plainly, tls=Certificates().server_context()) as strange,
            serving(serve_plainly, tls=certificates.server_context()) as good,
            running_pool(strange, good, **secure) as pool,
        ):
            assert await ask(pool, None) == "t"


async def test_if_all_certificates_are_refused_that_is_raised(secure: dict[str, Any]) -> None:
    async with (
        serving(serve_plainly, tls=Certificates().server_context()) as one,
        serving(serve_plainly, tls=Certificates().server_context()) as two,
        running_pool(one, two, **secure) as pool,
    ):
        with pytest.raises(CertificateRefused, match=r"bootstrap server .* not in"):
            await ask(pool, None, timeout=10)
        assert [node.error is not None for node in pool._nodes.best_known] == [True, True]


async def test_a_certificate_that_is_refused_later_is_a_connection_that_failed(
    certificates: Certificates, secure: dict[str, Any]
) -> None:
    async with (
        serving(serve_plainly, tls=certificates.server_context()) as good,
        serving(serve_plainly, tls=Certificates().server_context()) as strange,
        running_pool(good, **secure) as pool,
    ):
        pool.set_brokers({1: good.broker(1), 2: strange.broker(2)})
        assert await ask(pool, 1) == "t"
        clock = asyncio.get_running_loop().time
        before = clock()
        with pytest.raises(ConnectionFailed, match="is not in") as raised:
            await ask(pool, 2)
        assert isinstance(raised.value.__cause__, CertificateRefused)
        node = pool._nodes[2]
        assert before + 0.7 < node.retry_at < clock() + 1.3  # not reconnect_backoff_ms, which is 1 ms here
        with pytest.raises(ConnectionFailed, match="still no connection at the deadline"):
            await ask(pool, 2, timeout=0.05)
