"""Real TLS handshakes on loopback, in three ways: which brokers a client trusts, and what its errors say otherwise."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiokc.config import SecurityConfig
from aiokc.errors import CertificateRefused, ConnectionFailed
from aiokc.net.tls.contexts import TlsContexts
from aiokc.net.tls.our_side import OurSide
from aiokc.net.tls.tls_errors import tls_failure

from . import certificates as made
from .peers.listening import Script, listening, resets, says, stays_silent, tls, tls_in_single_bytes
from .peers.reaching import BROKER, Reach

Make = Callable[..., TlsContexts]

SECONDS = 10.0
ALERT = b"\x15\x03\x03\x00\x02\x02"
PROTOCOL_VERSION, ILLEGAL_PARAMETER, UNRECOGNIZED_NAME = b"\x46", b"\x2f", b"\x70"
HANDSHAKE_FAILURE, INTERNAL_ERROR = b"\x28", b"\x50"


def refused(reach: Reach, contexts: TlsContexts, script: Script, host: str = "localhost") -> str:
    """Return the message about a certificate that one side has refused."""
    with listening(script) as peer, pytest.raises(CertificateRefused) as caught:
        reach(contexts, peer.host, peer.port, host, SECONDS)
    assert isinstance(caught.value.__cause__, ssl.SSLError)
    return str(caught.value)


def failed(
    reach: Reach, contexts: TlsContexts, script: Script, host: str = "localhost", within: float = SECONDS
) -> str:
    """Return the message about a connection that failed for other reasons."""
    with listening(script) as peer, pytest.raises(ConnectionFailed) as caught:
        reach(contexts, peer.host, peer.port, host, within)
    assert caught.value.__cause__ is not None
    return str(caught.value)


# Names


@pytest.mark.parametrize(
    ("names", "host", "sni"),
    [
        (["localhost"], "localhost", "localhost"),
        (["localhost"], "localhost.", "localhost"),
        (["*.kafka.example"], "b-1.kafka.example", "b-1.kafka.example"),
        (["broker_1"], "broker_1", "broker_1"),
        (["127.0.0.1"], "127.0.0.1", None),
        (["::1"], "::1", None),
        (["fe80::1"], "fe80::1%eth0", None),
        (["xn--bcher-kva.example"], "bücher.example", "xn--bcher-kva.example"),
    ],
)
def test_a_certificate_for_the_host_is_accepted(
    reach: Reach, contexts: Make, names: list[str], host: str, sni: str | None
) -> None:
    seen: list[str | None] = []
    context = made.with_underscore(*names) if "_" in host else made.of_server(made.server(*names))
    with listening(tls(context, seen)) as peer:
        assert reach(contexts(), peer.host, peer.port, host, SECONDS) == b"hello"
    assert seen == [sni]


@pytest.mark.parametrize(
    ("names", "host"),
    [
        (["localhost"], "other.example"),
        (["localhost"], "127.0.0.1"),
        (["127.0.0.1"], "localhost"),
        (["127.0.0.1"], "127.0.0.2"),
        (["*.example"], "broker_1.example"),
        (["::1"], "::2"),
        (["*.example"], "a.b.example"),
    ],
)
def test_a_certificate_for_another_host_is_refused(reach: Reach, contexts: Make, names: list[str], host: str) -> None:
    told = refused(reach, contexts(), tls(made.of_server(made.server(*names))), host)
    assert told.startswith(f"{BROKER}: the broker's certificate is not for '{host}'")
    assert "advertised.listeners" in told
    assert "resolve" in told
    assert ("a wildcard covers no name with an underscore" in told) == ("_" in host)


def test_ipv6(reach: Reach, contexts: Make) -> None:
    with listening(tls(made.of_server(made.server("::1"))), "::1") as peer:
        assert reach(contexts(), peer.host, peer.port, "::1", SECONDS) == b"hello"


def test_without_the_check_of_names_another_name_is_accepted_and_another_authority_is_not(
    reach: Reach, contexts: Make
) -> None:
    lax = contexts(ssl_endpoint_identification_algorithm="")
    with listening(tls(made.of_server(made.server("other.example")))) as peer:
        assert reach(lax, peer.host, peer.port, "localhost", SECONDS) == b"hello"
    assert "issuer" in refused(reach, lax, tls(made.of_server(made.stranger().issue_cert("localhost"))))


# Trust


def test_another_authority_is_not_trusted(reach: Reach, contexts: Make, tmp_path: Path) -> None:
    told = refused(reach, contexts(), tls(made.of_server(made.stranger().issue_cert("localhost"))))
    assert f"issuer of the broker's certificate is not in ssl_truststore_location='{tmp_path / 'ca.pem'}'" in told


def test_the_store_of_the_system(reach: Reach, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """OpenSSL looks for it where SSL_CERT_FILE says."""
    monkeypatch.setenv("SSL_CERT_FILE", str(made.written(tmp_path / "system.pem", made.trust_pem(made.authority()))))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "no such folder"))
    of_system = TlsContexts(SecurityConfig(security_protocol="SSL"))
    with listening(tls(made.of_server(made.server("localhost")))) as peer:
        assert reach(of_system, peer.host, peer.port, "localhost", SECONDS) == b"hello"
    told = refused(reach, of_system, tls(made.of_server(made.stranger().issue_cert("localhost"))))
    assert f"not in the system's store ({tmp_path / 'system.pem'})" in told


def test_a_trust_store_replaces_the_one_of_the_system(
    reach: Reach, contexts: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(made.written(tmp_path / "system.pem", made.trust_pem(made.stranger()))))
    refused(reach, contexts(), tls(made.of_server(made.stranger().issue_cert("localhost"))))


def test_an_intermediate_authority_is_trusted_without_its_root_as_in_java(reach: Reach, contexts: Make) -> None:
    middle = made.authority().create_child_ca()
    lone = contexts(ssl_truststore_location=None, ssl_truststore_certificates=made.trust_pem(middle).decode())
    with listening(tls(made.of_server(middle.issue_cert("localhost")))) as peer:
        assert reach(lone, peer.host, peer.port, "localhost", SECONDS) == b"hello"


def test_a_broker_that_sends_no_intermediate_certificate(reach: Reach, contexts: Make) -> None:
    leaf = made.authority().create_child_ca().issue_cert("localhost")
    told = refused(reach, contexts(), tls(made.of_server(leaf, chain=[leaf.cert_chain_pems[0].bytes()])))
    assert "or the broker sends its certificate without the intermediate one" in told


def test_a_chain_of_a_hundred_certificates(reach: Reach, contexts: Make) -> None:
    """OpenSSL bounds it: by a depth of 100, and by 100 KiB."""
    root, leaf = made.chain_of(100)
    trusting = contexts(ssl_truststore_location=None, ssl_truststore_certificates=made.trust_pem(root).decode())
    script = tls(made.of_server(leaf))
    with listening(script) as peer:
        assert reach(trusting, peer.host, peer.port, "localhost", SECONDS) == b"hello"
    root, leaf = made.chain_of(102)
    trusting = contexts(ssl_truststore_location=None, ssl_truststore_certificates=made.trust_pem(root).decode())
    assert "chain" in refused(reach, trusting, tls(made.of_server(leaf)))


def test_an_expired_certificate(reach: Reach, contexts: Make) -> None:
    told = refused(reach, contexts(), tls(made.of_server(made.expired("localhost"))))
    assert "has expired; the clock here says 20" in told


def test_a_certificate_that_is_not_valid_yet(reach: Reach, contexts: Make) -> None:
    told = refused(reach, contexts(), tls(made.of_server(made.not_yet_valid("localhost"))))
    assert "is not valid yet; the clock here says 20" in told


def test_a_lax_authority_is_accepted_where_it_was_named(reach: Reach, contexts: Make) -> None:
    lax = made.lax_authority()
    trusting = contexts(ssl_truststore_location=None, ssl_truststore_certificates=made.trust_pem(lax).decode())
    with listening(tls(made.of_server(lax.issue_cert("localhost")))) as peer:
        assert reach(trusting, peer.host, peer.port, "localhost", SECONDS) == b"hello"


def test_a_lax_authority_in_a_strict_context(reach: Reach) -> None:
    """What Python's default context says of it since 3.13."""
    lax = made.lax_authority()
    strict = ssl.create_default_context(cadata=made.trust_pem(lax).decode())
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    own = TlsContexts(SecurityConfig(security_protocol="SSL", ssl_context=strict))
    told = refused(reach, own, tls(made.of_server(lax.issue_cert("localhost"))))
    assert "which Python is strict about since 3.13" in told
    assert "ssl_truststore_location" in told


def test_a_context_of_the_application(reach: Reach) -> None:
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    own = TlsContexts(SecurityConfig(security_protocol="SSL", ssl_context=careless))
    with listening(tls(made.of_server(made.stranger().issue_cert("other.example")))) as peer:
        assert reach(own, peer.host, peer.port, "localhost", SECONDS) == b"hello"


def test_a_context_of_truststore(reach: Reach, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its SSLContext verifies with the system's own means: on Linux with what OpenSSL finds."""
    truststore = pytest.importorskip("truststore", reason="the package truststore is not installed")
    monkeypatch.setenv("SSL_CERT_FILE", str(made.written(tmp_path / "system.pem", made.trust_pem(made.authority()))))
    context: Any = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    own = TlsContexts(SecurityConfig(security_protocol="SSL", ssl_context=context))
    with listening(tls(made.of_server(made.server("localhost")))) as peer:
        assert reach(own, peer.host, peer.port, "localhost", SECONDS) == b"hello"
    told = refused(reach, own, tls(made.of_server(made.stranger().issue_cert("localhost"))))
    assert "not in the ssl_context" in told


# The client's certificate


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
class TestOwnCertificate:
    """With TLS 1.3 a broker refuses it after the client's handshake: on the first read."""

    def wanting(self, version: ssl.TLSVersion) -> Script:
        context = made.wanting_clients(made.of_server(made.server("localhost")))
        context.minimum_version = context.maximum_version = version
        return tls(context)

    def test_it_is_shown(self, reach: Reach, contexts: Make, version: ssl.TLSVersion, tmp_path: Path) -> None:
        file = made.written(tmp_path / "client.pem", made.identity_pem(made.client()))
        with listening(self.wanting(version)) as peer:
            known = contexts(ssl_keystore_location=file)
            assert reach(known, peer.host, peer.port, "localhost", SECONDS) == b"hello"

    def test_it_is_missing(self, reach: Reach, contexts: Make, version: ssl.TLSVersion) -> None:
        told = refused(reach, contexts(), self.wanting(version))
        assert told.startswith(BROKER)
        assert "wants a certificate of this client" in told
        assert "ssl_keystore_location" in told

    def test_it_is_unknown(self, reach: Reach, contexts: Make, version: ssl.TLSVersion, tmp_path: Path) -> None:
        unknown = made.stranger().issue_cert("client@aiokc.example")
        file = made.written(tmp_path / "client.pem", made.identity_pem(unknown))
        told = refused(reach, contexts(ssl_keystore_location=file), self.wanting(version))
        assert f"the broker refused our certificate, from ssl_keystore_location='{file}'" in told
        assert "probably not in the broker's truststore; by the clock here it is valid until " in told

    @pytest.mark.parametrize(
        ("leaf", "why"), [(made.expired, "it expired at 20"), (made.not_yet_valid, "it is valid from 20")]
    )
    def test_it_is_out_of_date(
        self,
        reach: Reach,
        contexts: Make,
        version: ssl.TLSVersion,
        leaf: Callable[[str], Any],
        why: str,
        tmp_path: Path,
    ) -> None:
        file = made.written(tmp_path / "client.pem", made.identity_pem(leaf("client@aiokc.example")))
        told = refused(reach, contexts(ssl_keystore_location=file), self.wanting(version))
        assert why in told
        assert "and the clock here says 20" in told

    def test_it_is_in_the_context_of_the_application(self, reach: Reach, version: ssl.TLSVersion) -> None:
        own = ssl.create_default_context(cadata=made.trust_pem(made.authority()).decode())
        contexts = TlsContexts(SecurityConfig(security_protocol="SSL", ssl_context=own))
        told = refused(reach, contexts, self.wanting(version))
        assert "ssl_context" in told
        assert "wants" in told


# No TLS, or another version


@pytest.mark.parametrize(("ours", "theirs"), [("TLSv1.3", ssl.TLSVersion.TLSv1_2), ("TLSv1.2", ssl.TLSVersion.TLSv1_3)])
def test_no_version_in_common(reach: Reach, contexts: Make, ours: str, theirs: ssl.TLSVersion) -> None:
    context = made.of_server(made.server("localhost"))
    context.minimum_version = context.maximum_version = theirs
    told = failed(reach, contexts(ssl_enabled_protocols=ours), tls(context))
    assert f"this client speaks {ours} (ssl_enabled_protocols)" in told


def test_each_version_alone(reach: Reach, contexts: Make) -> None:
    with listening(tls(made.of_server(made.server("localhost")))) as peer:
        for version in ("TLSv1.2", "TLSv1.3"):
            one = contexts(ssl_enabled_protocols=version)
            assert reach(one, peer.host, peer.port, "localhost", SECONDS) == b"hello"


@pytest.mark.parametrize(
    ("alert", "host", "parts"),
    [
        (PROTOCOL_VERSION, "localhost", ["this client speaks TLSv1.2 and TLSv1.3"]),
        (ILLEGAL_PARAMETER, "broker_1", ["refused the name 'broker_1'", "names with an underscore: look at"]),
        (UNRECOGNIZED_NAME, "localhost", ["refused the name 'localhost'", "): look at its advertised.listeners"]),
        (HANDSHAKE_FAILURE, "localhost", ["no cipher or kind of key in common"]),
        (INTERNAL_ERROR, "localhost", ["the TLS handshake failed", "ALERT_INTERNAL_ERROR"]),
    ],
)
def test_alerts(reach: Reach, contexts: Make, alert: bytes, host: str, parts: list[str], tmp_path: Path) -> None:
    own = made.written(tmp_path / "client.pem", made.identity_pem(made.client()))
    told = failed(reach, contexts(ssl_keystore_location=own), says(ALERT + alert), host)
    assert [part for part in parts if part not in told] == []


def test_a_peer_that_speaks_http(reach: Reach, contexts: Make) -> None:
    told = failed(reach, contexts(), says(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
    assert "what answered is not TLS" in told


def test_a_server_that_speaks_a_version_before_1_2(reach: Reach, contexts: Make) -> None:
    for version in (b"\x03\x01", b"\x03\x02"):
        hello = b"\x02\0\0\x26" + version + bytes(32) + b"\0\xc0\x09\0"
        told = failed(reach, contexts(), says(b"\x16" + version + b"\0\x2a" + hello))
        assert "versions before 1.2 are not safe" in told


def test_records_of_one_byte(reach: Reach, contexts: Make) -> None:
    with listening(tls_in_single_bytes(made.of_server(made.server("localhost")))) as peer:
        assert reach(contexts(), peer.host, peer.port, "localhost", SECONDS) == b"hello"


def test_an_end_in_good_order_within_a_frame(reach: Reach, contexts: Make) -> None:
    script = tls_in_single_bytes(made.of_server(made.server("localhost")), cut_after=6)
    with listening(script) as peer, pytest.raises(ConnectionFailed, match="closed"):
        reach(contexts(), peer.host, peer.port, "localhost", SECONDS)


@pytest.mark.parametrize("script", [says(b""), resets], ids=["closes", "resets"])
def test_a_plaintext_listener_that_closes(reach: Reach, contexts: Make, script: Script) -> None:
    told = failed(reach, contexts(), script)
    assert told.startswith(f"{BROKER}: closed during the TLS handshake")
    assert "a plaintext listener?" in told


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        ((2, 20, 21), "is not in t, or the broker sends its certificate without the intermediate one (why)"),
        ((18, 19), "is not in t (why): give"),
        ((62, 63, 64), "is not for 'b_1' (why)"),
        ((10,), "has expired"),
        ((9,), "is not valid yet"),
        ((80, 93), "breaks RFC 5280 (why)"),
        ((22, 25), "its chain is too long (why)"),
        ((23,), "its authority has revoked it"),
        ((26,), "is not meant for servers (why)"),
        ((66, 67, 68), "is too weak for the security level of OpenSSL here (why)"),
        ((1, 79, 94), "the broker's certificate was refused: why (OpenSSL's error "),
    ],
)
def test_each_code_of_openssl_is_told(codes: tuple[int, ...], told: str) -> None:
    side = OurSide(trusts="t", certificate=None, valid=None, versions="v")
    for code in codes:
        error = ssl.SSLCertVerificationError("refused")
        error.verify_code, error.verify_message = code, "why"
        failure = tls_failure(error, BROKER, "b_1", side)
        assert isinstance(failure, CertificateRefused)
        assert told in str(failure)
        assert failure.__cause__ is error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionResetError(104, "Connection reset by peer"), "handshake (Connection reset by peer): "),
        (ConnectionResetError(), "handshake: "),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), "handshake: "),
    ],
)
@pytest.mark.parametrize("established", [False, True])
def test_how_the_connection_ended_is_told_as_far_as_the_system_says_it(
    error: OSError, told: str, established: bool
) -> None:
    side = OurSide(trusts="t", certificate=None, valid=None, versions="v")
    failure = tls_failure(error, BROKER, "localhost", side, established=established)
    assert isinstance(failure, ConnectionFailed)
    assert f"TLS {told}" in str(failure)


def test_a_peer_that_stays_silent(reach: Reach, contexts: Make) -> None:
    told = failed(reach, contexts(), stays_silent, within=0.05)
    assert told.startswith(f"{BROKER}: no answer to the TLS handshake")
