"""Authentication: what is offered, a wrong password and a wrong mechanism, how long a session lasts, no SASL at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import ErrorCode
from aiokc.doctor import Step, Verdict
from aiokc.testing import Certificates, Cluster, Listener
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from tests.net.scripted import Peer, serving

from .examining import APIS, USER, WITH_SASL, asked_of, cause, examined, happen, ill, only, problems

OVER_PLAINTEXT = {"security_protocol": "SASL_PLAINTEXT", **USER}


def cluster_with_alice(brokers: int = 1, **options: Any) -> Cluster:
    return Cluster(brokers, sasl={"alice": "alice-secret"}, **options)


async def test_what_the_listener_offers_and_how_long_a_session_lasts() -> None:
    async with cluster_with_alice(session_ms=3_600_000) as cluster:
        report = await examined(cluster.bootstrap, **OVER_PLAINTEXT)
        found = only(report, "authentication.logged_in")
        assert found.details["offered"] == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
        assert found.details["session_ms"] == 3_600_000
        assert "the session lasts 60 minutes" in found.text
        assert only(report, "config.weakness").verdict is Verdict.NOTE  # SCRAM without TLS
        assert ill(report) == []


async def test_a_session_of_seconds() -> None:
    async with cluster_with_alice(session_ms=5_000) as cluster:
        report = await examined(cluster.bootstrap, **OVER_PLAINTEXT)
        assert only(report, "authentication.short_session").verdict is Verdict.NOTE


async def test_a_wrong_password_is_tried_once() -> None:
    async with cluster_with_alice(3) as cluster:
        asked = asked_of(cluster)
        report = await examined(cluster.bootstrap, **{**OVER_PLAINTEXT, "sasl_plain_password": "a-wrong-one"})
        assert problems(report) == ["authentication.refused"]
        assert cause(report).step is Step.AUTHENTICATION
        assert "user 'alice'" in cause(report).text
        assert "directories lock accounts" in cause(report).advice
        logins = [broker for broker, api in asked if api == "SaslAuthenticate"]
        assert logins == [1, 1]  # the two messages of SCRAM; no other broker was asked


async def test_a_wrong_mechanism_is_told_from_a_wrong_password() -> None:
    async with cluster_with_alice(mechanisms=["PLAIN", "SCRAM-SHA-512"]) as cluster:
        asked = asked_of(cluster)
        report = await examined(cluster.bootstrap, **OVER_PLAINTEXT)
        assert problems(report) == ["authentication.mechanism"]
        assert "does not offer SCRAM-SHA-256; it offers PLAIN, SCRAM-SHA-512" in cause(report).text
        assert cause(report).details["offered"] == ["PLAIN", "SCRAM-SHA-512"]
        assert (1, "SaslAuthenticate") not in asked  # the credentials were not sent


async def test_a_listener_that_wants_sasl_and_gets_none(certificates: Certificates) -> None:
    listeners: dict[str, Any] = {"SASL": "SASL_PLAINTEXT", "BOTH": Listener("SASL_SSL", mechanisms=("PLAIN",))}
    async with cluster_with_alice(tls=certificates, listeners=listeners) as cluster:
        report = await examined(cluster.bootstrap_of("SASL"))
        assert problems(report) == ["authentication.sasl_wanted"]
        assert "The listener wants SASL, and offers OAUTHBEARER, PLAIN" in cause(report).text
        assert "SCRAM-SHA-512" in cause(report).details["offered"]
        assert "security_protocol='SASL_PLAINTEXT'" in cause(report).advice
        report = await examined(cluster.bootstrap_of("BOTH"), ssl_truststore_certificates=certificates.ca_pem)
        assert problems(report) == ["authentication.sasl_wanted"]
        assert cause(report).details["offered"] == ["PLAIN"]
        assert "security_protocol='SASL_SSL'" in cause(report).advice


async def test_a_listener_without_sasl_gets_no_credentials() -> None:
    async with Cluster() as cluster:
        asked = asked_of(cluster)
        report = await examined(cluster.bootstrap, **OVER_PLAINTEXT)
        assert problems(report) == ["authentication.no_sasl"]
        assert "security_protocol='PLAINTEXT'" in cause(report).advice
        assert (1, "SaslAuthenticate") not in asked


async def test_a_peer_that_closes_after_api_versions_and_knows_no_sasl() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(*APIS)
        await peer.request()

    async with serving(script) as server:
        report = await examined(server.bootstrap)
    assert problems(report) == ["authentication.sasl_wanted"]
    assert "probably wants SASL" in cause(report).advice


async def test_a_broker_that_does_not_know_the_password_either() -> None:
    async with cluster_with_alice() as cluster:
        cluster.wrong_server_signature()
        report = await examined(cluster.bootstrap, **OVER_PLAINTEXT)
        assert problems(report) == ["authentication.not_proven"]


async def test_a_directory_that_is_away() -> None:
    async with cluster_with_alice() as cluster:
        cluster.refuse_login(text="the directory is away")
        report = await examined(cluster.bootstrap, **OVER_PLAINTEXT)
        assert problems(report) == ["authentication.refused"]
        assert "the directory is away" in cause(report).text


async def test_a_broker_that_closes_during_the_login() -> None:
    async with cluster_with_alice() as cluster:
        cluster.close_after_handshake()
        report = await examined(cluster.bootstrap, **OVER_PLAINTEXT)
        assert problems(report) == ["authentication.failed"]


@pytest.mark.parametrize("kind", ["raises", "hangs"])
async def test_a_provider_without_credentials(kind: str) -> None:
    async def provider() -> tuple[str, str]:
        if kind == "hangs":
            await asyncio.get_running_loop().create_future()
        raise ConnectionError("the vault is sealed")

    async with cluster_with_alice() as cluster:
        for timeout_ms in (20_000,) if kind == "raises" else (2_000, 20_000):
            report = await examined(
                cluster.bootstrap,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-256",
                sasl_credentials_provider=provider,
                timeout_ms=timeout_ms,
            )
            if problems(report) == ["authentication.no_credentials"]:
                break  # else a busy machine has not come so far in the short time
        assert problems(report) == ["authentication.no_credentials"]
        assert ("the vault is sealed" in cause(report).text) == (kind == "raises")


async def test_a_broker_that_goes_on_asking() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(*WITH_SASL)
        while True:
            await peer.log_in()

    async with serving(script) as server:
        report = await examined(server.bootstrap, **OVER_PLAINTEXT)
    assert report.cause is not None
    assert cause(report).step is Step.AUTHENTICATION


def test_sessions_that_end_during_the_examination() -> None:
    """The search for a coordinator takes longer than a session: no connection that has ended is an illness."""

    async def story(cluster: Cluster, loop: VirtualLoop) -> None:
        cluster.append("t", b"x")
        cluster.intercept(FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE, times=20)
        report = await examined(cluster.bootstrap, topic="t", group_id="g", **OVER_PLAINTEXT)
        assert ill(report) == ["group.unknown"]
        assert {found.code for found in report.findings} >= {"authentication.short_session", "fetch.answered"}

    happen(story, sasl={"alice": "alice-secret"}, session_ms=2_000)
