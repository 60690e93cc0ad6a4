"""TLS: chain, name, expiry and protocol; a TLS port spoken to in plaintext, and the other way round."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aiokc.doctor import Step, Verdict
from aiokc.testing import Certificates, Cluster, Listener
from tests.net.scripted import Peer, serving

from .examining import cause, examined, first_of, only, problems

# uvloop ends TLS in other ways than asyncio
pytestmark = pytest.mark.any_loop(uvloop="long")


def trusting(certificates: Certificates) -> dict[str, Any]:
    return {"ssl_truststore_certificates": certificates.ca_pem}


async def test_a_certificate_is_told(certificates: Certificates) -> None:
    async with Cluster(tls=certificates) as cluster:
        report = await examined(cluster.bootstrap, **trusting(certificates))
        found = only(report, "tls.done")
        assert found.details["protocol"] == "TLSv1.3"
        assert "localhost" in found.details["names"]
        assert found.details["issuer"].startswith("trustme")
        assert datetime.fromisoformat(found.details["expires"]) > datetime.now(UTC)


async def test_an_unknown_authority(certificates: Certificates) -> None:
    async with Cluster(tls=certificates) as cluster:
        report = await examined(cluster.bootstrap, security_protocol="SSL")
        assert problems(report) == ["tls.unknown_issuer"]
        assert cause(report).step is Step.TLS
        assert "ssl_truststore_location" in cause(report).advice


async def test_a_certificate_for_another_name(certificates: Certificates) -> None:
    listeners = {"BAD": Listener("SSL", certificate=certificates.issue("kafka.example"))}
    async with Cluster(tls=certificates, listeners=listeners) as cluster:
        report = await examined(cluster.bootstrap_of("BAD"), **trusting(certificates))
        assert problems(report) == ["tls.wrong_name"]
        assert "advertised.listeners" in cause(report).advice
        report = await examined(
            cluster.bootstrap_of("BAD"), ssl_endpoint_identification_algorithm="", **trusting(certificates)
        )
        assert report.cause is None


async def test_a_certificate_that_has_expired_or_is_not_valid_yet(certificates: Certificates) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    early = certificates.issue("localhost", not_before=tomorrow, not_after=tomorrow + timedelta(days=9))
    listeners = {
        "OLD": Listener("SSL", certificate=certificates.expired()),
        "EARLY": Listener("SSL", certificate=early),
    }
    async with Cluster(tls=certificates, listeners=listeners) as cluster:
        report = await examined(cluster.bootstrap_of("OLD"), **trusting(certificates))
        assert problems(report) == ["tls.expired"]
        assert "the clock here says" in cause(report).text
        report = await examined(cluster.bootstrap_of("EARLY"), **trusting(certificates))
        assert problems(report) == ["tls.not_yet_valid"]


async def test_a_certificate_that_expires_in_a_week(certificates: Certificates) -> None:
    soon = certificates.issue("localhost", not_after=datetime.now(UTC) + timedelta(days=7))
    async with Cluster(tls=certificates, listeners={"SOON": Listener("SSL", certificate=soon)}) as cluster:
        report = await examined(cluster.bootstrap_of("SOON"), **trusting(certificates))
        found = only(report, "tls.expires_soon")
        assert found.verdict is Verdict.WARNING
        assert (report.cause, report.is_healthy) == (None, False)


async def test_a_broker_that_wants_a_certificate_of_the_client(certificates: Certificates) -> None:
    listeners = {"MTLS": Listener("SSL", client_auth="required")}
    async with Cluster(tls=certificates, listeners=listeners) as cluster:
        report = await examined(cluster.bootstrap_of("MTLS"), **trusting(certificates))
        assert problems(report) == ["tls.client_certificate"]
        assert "ssl_keystore_location" in cause(report).advice


async def test_no_version_in_common(certificates: Certificates) -> None:
    context = certificates.server_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async with serving(lambda peer: peer.until_closed(), tls=context) as server:
        report = await examined(f"localhost:{server.port}", ssl_enabled_protocols="TLSv1.3", **trusting(certificates))
    assert problems(report) == ["tls.version"]
    assert "ssl_enabled_protocols" in cause(report).advice


async def test_plaintext_to_a_tls_port(certificates: Certificates) -> None:
    async with Cluster(tls=certificates) as cluster:
        report = await examined(cluster.bootstrap)
        assert problems(report) == ["api_versions.tls_port"]
        assert cause(report).details["first_bytes"].startswith("150303")
        assert "security_protocol='SSL'" in cause(report).advice


async def test_plaintext_to_a_tls_port_that_says_nothing(certificates: Certificates) -> None:
    """Some servers close without an alert: only a handshake tells what they are."""
    context = certificates.server_context()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1)
        if first == b"\x16":  # a ClientHello
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_side=True)
            incoming.write(first)
            while data := await reader.read(4096):
                incoming.write(data)
                try:
                    tls.do_handshake()
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    break
                writer.write(outgoing.read())
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        report = await examined(f"127.0.0.1:{port}")
    finally:
        server.close()
        await server.wait_closed()
    assert problems(report) == ["api_versions.tls_port"]
    assert "a TLS handshake with it succeeds" in cause(report).text


async def test_tls_to_a_plaintext_port(certificates: Certificates) -> None:
    async with Cluster() as cluster:
        report = await examined(cluster.bootstrap, **trusting(certificates))
        assert problems(report) == ["tls.plaintext_port"]
        assert cause(report).step is Step.TLS
        assert "security_protocol='PLAINTEXT'" in cause(report).advice


async def test_a_host_that_no_certificate_can_be_for(certificates: Certificates) -> None:
    async with Cluster() as cluster:
        port = int(first_of(cluster.bootstrap).rpartition(":")[2])

        async def resolve(host: str, _: int) -> list[tuple[str, int]]:
            return [("127.0.0.1", port)]

        report = await examined(f"bad..name:{port}", resolve=resolve, **trusting(certificates))
        assert problems(report) == ["tls.impossible_name"]


async def test_neither_tls_nor_kafka() -> None:
    async def script(peer: Peer) -> None:
        await peer.read(1)
        peer.send(b"220 mail.example ESMTP\r\n")

    async with serving(script) as server:
        report = await examined(server.bootstrap, security_protocol="SSL")
    assert problems(report) == ["tls.handshake"]
    assert "In plaintext it answers '220 mail.example ESMTP'" in cause(report).text
