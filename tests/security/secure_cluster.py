"""``SecureCluster``: the brokers in Python with the listeners, users and certificates of a `SecureKafka`.

The fixture `brokers` is one after the other.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA256

from aiokc.testing import Certificates, Cluster, Listener, TokenRules
from aiokc.testing.kafka import SecureKafka
from aiokc.testing.kafka.secure.broker_config import LISTENERS
from aiokc.testing.kafka.secure.certificate_files import CertificateFiles
from aiokc.testing.kafka.secure.tokens import AUDIENCE, ISSUER, TokenMaker
from aiokc.testing.security.jwt import CLOCK_SKEW

_SESSION_SECONDS: Final = 3.0


class SecureCluster:
    """A `Cluster` that a client can't tell from a `SecureKafka` of the same folder of certificates.

    Its one rule for tokens is that of the listener OIDC.
    """

    def __init__(self, certificates: CertificateFiles, tokens: TokenMaker) -> None:
        self.certificates = certificates
        self.tokens = tokens
        self.passwords = {"alice": "alice-secret", "bob": "bob-secret"}
        self.scram_passwords = {"alice": "alice-scram", "bob": "bob-scram"}
        self.session_seconds = _SESSION_SECONDS  # on the listener SHORT
        own = {
            "BADNAME": certificates.wrong_name,
            "EXPIRED": certificates.expired,
            "NOTYET": certificates.not_yet_valid,
            "NOCHAIN": certificates.without_intermediate,
            "LAX": certificates.lax,
        }
        listeners = {
            name: Listener(
                protocol,  # type: ignore[arg-type]
                client_auth="required" if name == "MTLS" else "none",
                certificate=name if name == "TLS12" else own.get(name, certificates.server).read_text(),
                mechanisms=("OAUTHBEARER",) if name == "OIDC" else None,
                session_ms=int(_SESSION_SECONDS * 1e3) if name == "SHORT" else None,
            )
            for name, protocol in LISTENERS.items()
        }
        self._cluster = Cluster(
            listeners=listeners,
            tls=_Files(certificates),
            sasl={
                user: {
                    "PLAIN": password,
                    **dict.fromkeys(("SCRAM-SHA-256", "SCRAM-SHA-512"), self.scram_passwords[user]),
                }
                for user, password in self.passwords.items()
            },
            tokens=TokenRules(idp=_Issuer(tokens), audience=AUDIENCE, clock_skew=CLOCK_SKEW),
            group_min_session_timeout_ms=500,
        )

    def bootstrap_of(self, listener: str) -> str:
        """Return the addresses of a listener."""
        return self._cluster.bootstrap_of(listener)

    def options_of(self, listener: str) -> dict[str, Any]:
        """Return the options of a client for one of the listeners, but for those of SASL."""
        protocol = LISTENERS.get(listener, "PLAINTEXT")
        options = {"bootstrap_servers": self.bootstrap_of(listener), "security_protocol": protocol}
        if protocol.endswith("SSL"):
            options["ssl_truststore_location"] = str(self.certificates.ca)
        if listener == "MTLS":
            options["ssl_keystore_location"] = str(self.certificates.client)
        return options

    def create_topic(self, name: str) -> None:
        """Create a topic of one partition."""
        self._cluster.create_topic(name)

    def produce(self, topic: str, *values: bytes) -> None:
        """Append records to the topic."""
        self._cluster.append(topic, *values)

    async def __aenter__(self) -> SecureCluster:
        await self._cluster.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cluster.stop()


class _Files(Certificates):
    """The brokers' contexts by the certificates in files; the one "TLS12" speaks TLS 1.2 only."""

    def __init__(self, files: CertificateFiles) -> None:
        super().__init__()
        self._files = files

    @property
    def ca_pem(self) -> str:
        return Path(self._files.ca).read_text()

    @property
    def server_pem(self) -> str:
        return Path(self._files.server).read_text()

    def server_context(self, pem: str | None = None, client_auth: str = "none") -> ssl.SSLContext:
        if pem != "TLS12":
            return super().server_context(pem, client_auth)
        context = super().server_context(None, client_auth)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context


class _Issuer:
    """Checks signatures with the public key that a `TokenMaker` shows."""

    issuer = ISSUER

    def __init__(self, tokens: TokenMaker) -> None:
        (key,) = json.loads(tokens.jwks())["keys"]
        self._key_id: str = key["kid"]
        self._key = RSAPublicNumbers(_number(key["e"]), _number(key["n"])).public_key()

    def is_signed(self, signed: bytes, signature: bytes, key_id: str) -> bool:
        try:
            self._key.verify(signature, signed, PKCS1v15(), SHA256())
        except InvalidSignature:
            return False
        return key_id == self._key_id


def _number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tokens() -> TokenMaker:
    return TokenMaker()


@pytest.fixture(params=["kafka", "cluster"])
async def brokers(request: pytest.FixtureRequest) -> AsyncIterator[SecureKafka | SecureCluster]:
    """A real Kafka, and a `SecureCluster`; each test that asks for it runs at both."""
    if request.param == "kafka":
        yield request.getfixturevalue("secure_kafka")
    else:
        made = (request.getfixturevalue(name) for name in ("certificates", "tokens"))
        async with SecureCluster(*made) as cluster:
            yield cluster
