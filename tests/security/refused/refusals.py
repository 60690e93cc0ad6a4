"""Each way in which a login or a TLS handshake fails: what leads there, and what the application reads."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aiokc.errors import AuthenticationFailed, CertificateRefused, ConnectionFailed, KafkaError
from aiokc.testing.kafka.secure.tokens import TokenMaker

from ..ways import Brokers, TokenProvider, Way

Options = dict[str, Any]

# TLS alerts of Kafka 2.8 arrive damaged: a client sees WRONG_VERSION_NUMBER or DECRYPTION_FAILED_OR_BAD_RECORD_MAC, and
# cannot tell why the broker has refused it.
ALERTS_SINCE = "3.0"


@dataclass(frozen=True)
class Refusal:
    """`options` are those of a client. It raises `error` with a message that matches `text` (a regular expression).

    `at_once`: start() raises it long before its timeout. `asks`: the client has asked the broker, and names it.
    `behind`: by how many seconds the client's clock is behind the broker's.
    """

    name: str
    options: Callable[[Brokers], Options]
    error: type[KafkaError]
    text: str
    at_once: bool = True
    asks: bool = True
    behind: float = 0.0
    since: str = "2.8"

    def parameter(self) -> Any:
        marks = pytest.mark.every_kafka(since=self.since) if self.since != "2.8" else ()
        return pytest.param(self, id=self.name, marks=marks)


def _login(listener: str, mechanism: str, **changed: Any) -> Callable[[Brokers], Options]:
    return lambda kafka: {**Way(listener, mechanism).options(kafka), **changed}


def _moved(listener: str, way: Way, **changed: Any) -> Callable[[Brokers], Options]:
    """Return the options of one way, at the address of another listener."""
    return lambda kafka: {**way.options(kafka), "bootstrap_servers": kafka.bootstrap_of(listener), **changed}


def _tls(listener: str, **changed: Any) -> Callable[[Brokers], Options]:
    return lambda kafka: {**kafka.options_of(listener), **changed}


def _certificate(choose: Callable[[Brokers], Path | None]) -> Callable[[Brokers], Options]:
    return lambda kafka: {**kafka.options_of("MTLS"), "ssl_keystore_location": choose(kafka)}


def _strict(authority: Path) -> ssl.SSLContext:
    """Return a context that is as strict as Python 3.13's with the system's store."""
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def _token(listener: str, make: Callable[[Brokers], str]) -> Callable[[Brokers], Options]:
    return lambda kafka: {
        **kafka.options_of(listener),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": TokenProvider(lambda: make(kafka)),
    }


LOGINS = [
    Refusal(
        "wrong password of PLAIN",
        _login("SASLTLS", "PLAIN", sasl_plain_password="wrong"),
        AuthenticationFailed,
        r"refused user 'alice' \(PLAIN\): .*unknown user and (a )?wrong password look the same",
    ),
    Refusal(
        "unknown user of PLAIN",
        _login("SASL", "PLAIN", sasl_plain_username="mallory"),
        AuthenticationFailed,
        r"refused user 'mallory' \(PLAIN\)",
    ),
    *(
        Refusal(
            f"wrong password of {mechanism}",
            _login("SASLTLS", mechanism, sasl_plain_password="wrong"),
            AuthenticationFailed,
            rf"refused user 'alice' \({mechanism}\): .*SCRAM users exist per hash",
        )
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ),
    Refusal(
        "unknown user of SCRAM",
        _login("SASLTLS", "SCRAM-SHA-256", sasl_plain_username="mallory"),
        AuthenticationFailed,
        r"refused user 'mallory' \(SCRAM-SHA-256\)",
    ),
    Refusal(
        "mechanism off",
        _moved("OIDC", Way("SASLTLS", "PLAIN")),
        AuthenticationFailed,
        r"does not offer PLAIN on this listener; enabled here: OAUTHBEARER",
        since="3.1",
    ),
    Refusal(
        "TLS listener without SASL",
        _moved("TLS", Way("SASLTLS", "SCRAM-SHA-512")),
        AuthenticationFailed,
        r"has no SASL.*security_protocol 'SSL' or 'PLAINTEXT'",
    ),
    Refusal(
        "plaintext listener without SASL",
        _moved("PLAINTEXT", Way("SASL", "SCRAM-SHA-512")),
        AuthenticationFailed,
        r"has no SASL.*security_protocol 'SSL' or 'PLAINTEXT'",
    ),
    Refusal(
        "token of a key that the broker does not know",
        _token("OIDC", lambda _: TokenMaker().signed("alice")),
        AuthenticationFailed,
        r"refused .*alice.*\(OAUTHBEARER\).*invalid_token.*https://idp\.example",
        since="3.1",
    ),
    Refusal(
        "token for another audience",
        _token("OIDC", lambda kafka: kafka.tokens.signed("alice", aud="another")),
        AuthenticationFailed,
        r"\(OAUTHBEARER\).*invalid_token.*another",
        since="3.1",
    ),
    Refusal(
        "token of another issuer",
        _token("OIDC", lambda kafka: kafka.tokens.signed("alice", iss="https://other.example")),
        AuthenticationFailed,
        r"\(OAUTHBEARER\).*invalid_token.*https://other\.example",
        since="3.1",
    ),
    Refusal(
        "unsecured token that has expired",
        _token("SASLTLS", lambda _: Way("SASLTLS").token(_, lifetime=-5)),
        AuthenticationFailed,
        r"expired \d+ s ago by this computer's clock",
        at_once=False,  # the next token may be better
        asks=False,
    ),
    Refusal(
        "token that has expired by the broker's clock",
        _token("OIDC", lambda kafka: kafka.tokens.signed("alice", lifetime=-1000)),
        AuthenticationFailed,
        r"\(OAUTHBEARER\).*invalid_token.*the token itself says, unverified: it expires in (1000|9\d\d) s",
        behind=2000.0,
        since="3.1",
    ),
    Refusal(
        "opaque token",
        _token("OIDC", lambda _: "no-jwt"),
        AuthenticationFailed,
        r"\(OAUTHBEARER\).*invalid_token",
        since="3.1",
    ),
]

CERTIFICATES = [
    Refusal(
        "unknown CA",
        lambda kafka: {**kafka.options_of("TLS"), "ssl_truststore_location": kafka.certificates.foreign_ca},
        CertificateRefused,
        r"issuer of the broker's certificate is not in .*foreign-ca\.pem",
    ),
    Refusal(
        "no intermediate certificate",
        _tls("NOCHAIN"),
        CertificateRefused,
        r"issuer of the broker's certificate is not in .*without the intermediate one",
    ),
    Refusal(
        "wrong name", _tls("BADNAME"), CertificateRefused, r"certificate is not for 'localhost'.*advertised\.listeners"
    ),
    Refusal("expired", _tls("EXPIRED"), CertificateRefused, r"has expired; the clock here says 20\d\d-"),
    Refusal("not yet valid", _tls("NOTYET"), CertificateRefused, r"is not valid yet; the clock here says 20\d\d-"),
    Refusal(
        "strict",
        lambda kafka: {
            "bootstrap_servers": kafka.bootstrap_of("LAX"),
            "security_protocol": "SSL",
            "ssl_context": _strict(kafka.certificates.lax_ca),
        },
        CertificateRefused,
        r"breaks RFC 5280",
    ),
    Refusal(
        "no client certificate",
        _certificate(lambda _: None),
        CertificateRefused,
        r"wants a certificate of this client",
        since=ALERTS_SINCE,
    ),
    Refusal(
        "client certificate of an unknown CA",
        _certificate(lambda kafka: kafka.certificates.foreign_client),
        CertificateRefused,
        r"the broker refused our certificate, from .*foreign-client\.pem",
        since=ALERTS_SINCE,
    ),
    Refusal(
        "client certificate that has expired",
        _certificate(lambda kafka: kafka.certificates.expired_client),
        CertificateRefused,
        r"the broker refused our certificate, from .*expired-client\.pem.*expired",
        since=ALERTS_SINCE,
    ),
]

MISTAKEN = [
    Refusal(
        "no SASL to a SASL listener",
        lambda kafka: {"bootstrap_servers": kafka.bootstrap_of("SASL")},
        ConnectionFailed,
        r"at the first request: this listener probably wants SASL",
        at_once=False,
    ),
    Refusal(
        "TLS without SASL to a SASL listener",
        _moved("SASLTLS", Way("TLS")),
        ConnectionFailed,
        r"at the first request: this listener probably wants SASL",
        at_once=False,
    ),
    Refusal(
        "token that is valid within the broker's clock skew only",
        _token("OIDC", lambda kafka: kafka.tokens.signed("alice", lifetime=-10)),
        ConnectionFailed,
        r"at the first request after the login: is the token over by the broker's clock\?",
        at_once=False,
        behind=2000.0,
        since="3.1",
    ),
    Refusal(
        "plaintext to TLS",
        lambda kafka: {"bootstrap_servers": kafka.bootstrap_of("TLS")},
        KafkaError,
        r"security_protocol='SSL' or 'SASL_SSL'",
        at_once=False,
    ),
    Refusal(
        "TLS to plaintext",
        _moved("PLAINTEXT", Way("TLS")),
        ConnectionFailed,
        r"closed during the TLS handshake.*: a plaintext listener\?",
        at_once=False,
    ),
    Refusal(
        "TLS versions that do not meet",
        _tls("TLS12", ssl_enabled_protocols=["TLSv1.3"]),
        ConnectionFailed,
        r"TLSv1\.3",
        at_once=False,
        since=ALERTS_SINCE,
    ),
]

REFUSALS = [*LOGINS, *CERTIFICATES, *MISTAKEN]
