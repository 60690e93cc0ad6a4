"""Listeners with TLS: which certificate a broker shows, which it wants, and handshakes that go wrong."""

from __future__ import annotations

import asyncio
import builtins
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from aiokc.testing import Acl, Certificates, Cluster, Listener
from aiokc.testing.security.certificate_authority import load_pem
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest

from ..._native.reading.seen_by_linux import descriptors
from ..wire_client import WireClient, connected
from .sasl_client import is_closed, plain

pytestmark = [pytest.mark.timeout(30), pytest.mark.any_loop]


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return Certificates()


@asynccontextmanager
async def secured(
    bootstrap: str, context: ssl.SSLContext, *, name: str = "localhost", broker: int = 1
) -> AsyncIterator[WireClient]:
    """Connect to the n-th address of ``bootstrap`` with TLS."""
    host, _, port = bootstrap.split(",")[broker - 1].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name)
    client = WireClient(reader, writer)
    try:
        yield client
    finally:
        client.close()


async def metadata(client: WireClient) -> Any:
    return await client.ask(MetadataRequest(topics=None))


async def test_a_listener_with_tls(certificates: Certificates) -> None:
    async with Cluster(2, tls=certificates) as cluster:
        assert {address.partition(":")[0] for address in cluster.bootstrap.split(",")} == {"localhost"}
        assert cluster.bootstrap == cluster.bootstrap_of("SSL")
        async with secured(cluster.bootstrap, certificates.client_context()) as client:
            answer = await metadata(client)
            found = await client.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))
        addresses = cluster.bootstrap.split(",")
        assert [f"{one.host}:{one.port}" for one in answer.brokers] == addresses
        assert f"{found.coordinators[0].host}:{found.coordinators[0].port}" in addresses
        async with secured(cluster.bootstrap, certificates.client_context(), name="127.0.0.1") as client:
            assert (await metadata(client)).brokers


async def test_each_listener_names_its_own_addresses(certificates: Certificates) -> None:
    listeners = {"TLS": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
    async with Cluster(listeners=listeners, tls=certificates, sasl={"alice": "secret"}) as cluster:  # type: ignore[arg-type]
        context = certificates.client_context()
        addresses = {name: cluster.bootstrap_of(name) for name in ("PLAINTEXT", *listeners)}
        assert len(set(addresses.values())) == 4
        assert cluster.bootstrap == addresses["PLAINTEXT"]
        for name, address in addresses.items():
            opened = secured(address, context) if name in ("TLS", "BOTH") else connected(address)
            async with opened as client:
                if name in ("SASL", "BOTH"):
                    assert (await plain(client, "alice", "secret")).error_code == 0
                (broker,) = (await metadata(client)).brokers
                assert f"{broker.host}:{broker.port}" == address
        with pytest.raises(LookupError, match="no listener 'MTLS'; it has PLAINTEXT, TLS, SASL, BOTH"):
            cluster.bootstrap_of("MTLS")


async def test_a_client_that_trusts_another_authority(certificates: Certificates) -> None:
    async with Cluster(tls=certificates) as cluster:
        with pytest.raises(ssl.SSLCertVerificationError) as error:
            async with secured(cluster.bootstrap, Certificates().client_context()):
                pass
        assert error.value.verify_code in (18, 19, 20)
        async with secured(cluster.bootstrap, certificates.client_context()) as client:
            assert (await metadata(client)).brokers


async def test_the_certificate_is_swapped_while_connections_live(certificates: Certificates) -> None:
    context = certificates.client_context()
    async with Cluster(tls=certificates) as cluster, secured(cluster.bootstrap, context) as old:
        for pem, code in ((certificates.issue("elsewhere.example"), 62), (certificates.expired(), 10)):
            cluster.swap_certificate(pem)
            with pytest.raises(ssl.SSLCertVerificationError) as error:
                async with secured(cluster.bootstrap, context):
                    pass
            assert error.value.verify_code == code
        with pytest.raises(ssl.SSLError):
            cluster.swap_certificate("no PEM")
        cluster.swap_certificate(certificates.issue("localhost"))
        async with secured(cluster.bootstrap, context) as client:
            assert (await metadata(client)).brokers
        assert (await metadata(old)).brokers


async def test_a_listener_may_have_a_certificate_of_its_own(certificates: Certificates) -> None:
    expired = Listener("SSL", certificate=certificates.expired())
    async with Cluster(listeners={"TLS": "SSL", "EXPIRED": expired}, tls=certificates) as cluster:
        context = certificates.client_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            async with secured(cluster.bootstrap_of("EXPIRED"), context):
                pass
        async with secured(cluster.bootstrap_of("TLS"), context) as client:
            assert (await metadata(client)).brokers


async def alert_on_the_first_read(bootstrap: str, context: ssl.SSLContext) -> str:
    """Return why the broker ends the connection although the handshake has succeeded for the client (TLS 1.3)."""
    async with secured(bootstrap, context) as client:
        with pytest.raises(ssl.SSLError) as error:
            await client.frame()
    return error.value.reason


async def test_a_client_certificate_is_required_and_names_the_user(certificates: Certificates) -> None:
    acls = [Acl("alice", "Describe", topic="t")]
    listeners = {"MTLS": Listener("SSL", client_auth="required"), "MAY": Listener("SSL", client_auth="requested")}
    async with Cluster(
        listeners=listeners, tls=certificates, acls=acls, topics={"t": 1, "u": 1}, super_users=()
    ) as cluster:
        for user, listener, expected in (("alice", "MTLS", ["t"]), ("bob", "MTLS", []), (None, "MAY", [])):
            async with secured(cluster.bootstrap_of(listener), certificates.client_context(user)) as client:
                assert [topic.name for topic in (await metadata(client)).topics] == expected
        alert = await alert_on_the_first_read(cluster.bootstrap_of("MTLS"), certificates.client_context())
        assert alert == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
        stranger = certificates.client_context()
        other = Certificates()
        stranger.load_verify_locations(cadata=certificates.ca_pem)
        load_pem(stranger, other.client_pem("alice"))
        assert await alert_on_the_first_read(cluster.bootstrap_of("MTLS"), stranger) == "TLSV1_ALERT_UNKNOWN_CA"


async def test_client_certificates_are_required_from_now_on(certificates: Certificates) -> None:
    async with Cluster(tls=certificates) as cluster:
        async with secured(cluster.bootstrap, certificates.client_context()) as client:
            cluster.require_client_certificate()
            assert (await metadata(client)).brokers
        alert = await alert_on_the_first_read(cluster.bootstrap, certificates.client_context())
        assert alert == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
        async with secured(cluster.bootstrap, certificates.client_context("alice")) as client:
            assert (await metadata(client)).brokers


async def test_half_a_handshake(certificates: Certificates) -> None:
    async with Cluster(tls=certificates) as cluster:
        fault = cluster.half_handshake(times=1)
        host, _, port = cluster.bootstrap.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = certificates.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            ours.do_handshake()
        writer.write(outgoing.read())
        incoming.write(await reader.read(100_000))
        with pytest.raises(ssl.SSLWantReadError):
            ours.do_handshake()  # it is a beginning, and no more comes
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        writer.close()
        assert fault.hits == 1
        async with secured(cluster.bootstrap, certificates.client_context()) as client:
            assert (await metadata(client)).brokers


async def test_plaintext_to_a_tls_listener_gets_an_alert(certificates: Certificates) -> None:
    async with Cluster(tls=certificates) as cluster:
        host, _, port = cluster.bootstrap.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(bytes.fromhex("0000000e 0012 0000 00000001 0005") + b"tests")
        got = b""
        try:
            while some := await reader.read(100):
                got += some
        except ConnectionError:
            pass  # the reset may overtake the end
        assert got[:2] == b"\x15\x03"
        writer.close()


async def test_brokers_that_go_and_come_keep_their_ports(certificates: Certificates) -> None:
    async with Cluster(tls=certificates, sasl={"alice": "secret"}) as cluster:
        before = cluster.bootstrap
        async with secured(before, certificates.client_context()) as client:
            cluster.take_down(1)
            assert await is_closed(client)
        with pytest.raises(OSError):  # noqa: PT011, refused or reset
            async with secured(before, certificates.client_context()):
                pass
        cluster.heal()
        while True:
            try:
                async with secured(before, certificates.client_context()) as client:
                    assert (await plain(client, "alice", "secret")).error_code == 0
                    break
            except OSError:
                await asyncio.sleep(0)
        assert cluster.bootstrap == before


def test_the_virtual_network_has_no_tls(certificates: Certificates) -> None:
    loop = VirtualLoop(Random(1))
    try:
        with pytest.raises(ValueError, match="listener SSL: the virtual network has no TLS; SASL_PLAINTEXT works"):
            loop.run_until_complete(Cluster(tls=certificates).start())
    finally:
        loop.end()


def test_a_listener_with_tls_needs_certificates() -> None:
    with pytest.raises(ValueError, match=r"listener TLS has TLS: give the cluster tls=Certificates\(\)"):
        Cluster(listeners={"TLS": "SSL"})


async def test_a_certificate_cannot_be_swapped_without_tls() -> None:
    async with Cluster() as cluster:
        with pytest.raises(ValueError, match="the cluster has no TLS listener"):
            cluster.swap_certificate("...")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"protocol": "TLS"}, "listener protocol 'TLS': it is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"client_auth": "yes"}, "client_auth='yes': it is one of none, requested, required"),
        ({"mechanisms": ("GSSAPI",)}, "mechanism 'GSSAPI': the cluster has PLAIN, SCRAM-SHA-256"),
    ],
)
def test_a_listener_that_cannot_be(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Listener(**wrong)


def test_mechanisms_of_the_cluster_are_checked() -> None:
    with pytest.raises(ValueError, match="mechanism 'DIGEST-MD5'"):
        Cluster(mechanisms=["DIGEST-MD5"])
    with pytest.raises(ValueError, match="user 'alice' has a password for 'SHA': there are PLAIN"):
        Cluster(sasl={"alice": {"SHA": "secret"}})


def test_certificates_without_trustme(monkeypatch: pytest.MonkeyPatch) -> None:
    really = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "trustme":
            raise ImportError(name)
        return really(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install trustme"):
        Certificates()


def test_a_key_is_in_a_file_that_is_closed_when_it_is_read_and_gone_afterwards(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows opens no file twice."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    read: list[str] = []

    class Context(ssl.SSLContext):
        def load_cert_chain(self, certfile: Any, *arguments: Any, **options: Any) -> None:
            if sys.platform == "linux":
                assert certfile not in descriptors()
            read.append(Path(certfile).read_text())

    load_pem(Context(ssl.PROTOCOL_TLS_CLIENT), certificates.server_pem)
    assert read == [certificates.server_pem]
    assert list(tmp_path.iterdir()) == []


async def test_an_encrypted_key_is_refused_without_a_question(certificates: Certificates) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(certificates.server_pem.encode(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    ).decode()
    chain = certificates.server_pem.partition("-----BEGIN CERTIFICATE-----")[2]
    async with Cluster(tls=certificates) as cluster:
        with pytest.raises((ValueError, ssl.SSLError)):
            cluster.swap_certificate(locked + "-----BEGIN CERTIFICATE-----" + chain)
