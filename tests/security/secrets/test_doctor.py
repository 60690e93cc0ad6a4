"""No finding of the doctor holds a secret, whatever goes wrong, and whatever brokers repeat."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from typing import Any

import pytest

from aiokc import OAuthToken
from aiokc.testing import Certificates, Cluster
from tests.client.doctor.examining import APIS, examined
from tests.net.scripted import Peer, serving

CANARY = "correct-horse-battery-staple"
SPELLINGS = (CANARY, b64encode(CANARY.encode()).decode().rstrip("="), CANARY.encode().hex())


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return Certificates()


def free_of_secrets(text: str) -> bool:
    return not any(spelling in text for spelling in SPELLINGS)


async def _repeating(peer: Peer) -> None:
    """A broker that sends back what it was sent as the reason of its refusal."""
    await peer.greet(*APIS, (17, 0, 1), (36, 0, 2))
    while True:
        await peer.log_in(code=58, text=f"bad password {CANARY} {SPELLINGS[1]}")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_passwords(mechanism: str, certificates: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    options: dict[str, Any] = {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": CANARY,
        "allow_plaintext_credentials": mechanism == "PLAIN",
    }
    trust = {"ssl_truststore_certificates": certificates.ca_pem}
    listeners: dict[str, Any] = {"TLS": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
    async with Cluster(tls=certificates, sasl={"alice": "another"}, listeners=listeners) as cluster:
        reports = [
            await examined(
                cluster.bootstrap_of(listener), timeout_ms=5_000, security_protocol=protocol, **more, **options
            )
            for listener in ("PLAINTEXT", *listeners)
            for protocol, more in (("SASL_PLAINTEXT", {}), ("SASL_SSL", trust), ("SASL_SSL", {}))
        ]
    async with serving(_repeating) as server:
        reports.append(await examined(server.bootstrap, security_protocol="SASL_PLAINTEXT", **options))
    for broken in ({"security_protocol": "SSL"}, {"ssl_context": 1}, {"ssl_key_password": CANARY}):
        report = await examined("127.0.0.1:1", **{**options, **broken})
        reports.append(report)
    assert len({report.cause.code for report in reports if report.cause is not None}) >= 6
    for report in reports:
        assert report.cause is not None
        assert free_of_secrets(json.dumps(report.as_dict()))
        assert free_of_secrets(repr(report))
    assert free_of_secrets(caplog.text)


async def test_tokens() -> None:
    class Provider:
        async def token(self) -> OAuthToken:
            return OAuthToken(CANARY)

    async with Cluster(sasl={}, mechanisms=["OAUTHBEARER"]) as cluster:
        report = await examined(
            cluster.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
            allow_plaintext_credentials=True,
        )
        assert report.cause is not None
        assert report.cause.step == "authentication"
        assert free_of_secrets(json.dumps(report.as_dict()))
