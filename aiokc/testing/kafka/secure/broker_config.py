"""The broker configuration of a secure Kafka: one listener for each way to connect, the authorizer, the users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..jars import release
from .certificate_files import CertificateFiles
from .tokens import AUDIENCE, ISSUER

#: The listeners by name, with their security protocol.
LISTENERS: Final = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "TLS12": "SSL",
    "BADNAME": "SSL",
    "EXPIRED": "SSL",
    "NOTYET": "SSL",
    "NOCHAIN": "SSL",
    "LAX": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "SHORT": "SASL_SSL",
    "OIDC": "SASL_SSL",
}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
#: The listeners on which a user logs in with any of the mechanisms.
LOGIN_LISTENERS: Final = ("SASL", "SASLTLS", "SHORT")
_KRAFT_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_ZOOKEEPER_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
_KRAFT_AUTHORIZER_FROM: Final = (3, 3)
_SIGNED_TOKENS_FROM: Final = (3, 1)  # KIP-768
_NEW_VALIDATOR_FROM: Final = (3, 9)

_KEY_END: Final = "-----END PRIVATE KEY-----"
_MODULES: Final = "org.apache.kafka.common.security"
_LOGIN_MODULES: Final = {
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
}
_UNSECURED: Final = f"{_MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


def listeners(version: str) -> dict[str, str]:
    """Return the listeners that this release of Kafka can have: those before 3.1 check no signed tokens."""
    oidc = release(version) >= _SIGNED_TOKENS_FROM
    return {name: protocol for name, protocol in LISTENERS.items() if name != "OIDC" or oidc}


def of_broker(
    version: str, certificates: CertificateFiles, jwks: Path, passwords: Mapping[str, str], session_ms: int
) -> dict[str, str]:
    """Return the configuration of all brokers. `passwords` are those of PLAIN, `session_ms` the session on SHORT."""
    settings = _tls(certificates) | _authorization(version)
    for listener in LOGIN_LISTENERS:
        settings |= _logins(listener, passwords)
    for mechanism in MECHANISMS:
        settings[f"listener.name.short.{mechanism.lower()}.connections.max.reauth.ms"] = str(session_ms)
    if "OIDC" in listeners(version):
        settings |= _signed_tokens(version, jwks)
    return settings


def jvm(jwks: Path) -> Sequence[str]:
    """Return the flags of the broker's JVM: since 4.0 it reads keys only from the URLs that are named here."""
    return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks.as_uri()}",)


def _tls(certificates: CertificateFiles) -> dict[str, str]:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
        "listener.name.tls12.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.tls12.ssl.protocol": "TLSv1.2",
    }
    own = {
        "": certificates.server,
        "badname": certificates.wrong_name,
        "expired": certificates.expired,
        "notyet": certificates.not_yet_valid,
        "nochain": certificates.without_intermediate,
        "lax": certificates.lax,
    }
    for listener, path in own.items():
        prefix = f"listener.name.{listener}." if listener else ""
        # Kafka 2.8 reads a key from a file only if it is encrypted, and one that is text without a password too.
        key, end, chain = path.read_text().partition(_KEY_END)
        settings[f"{prefix}ssl.keystore.key"] = key + end
        settings[f"{prefix}ssl.keystore.certificate.chain"] = chain.strip()
    return settings


def _authorization(version: str) -> dict[str, str]:
    kraft = release(version) >= _KRAFT_AUTHORIZER_FROM
    return {
        "authorizer.class.name": _KRAFT_AUTHORIZER if kraft else _ZOOKEEPER_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:admin",  # ANONYMOUS: brokers, and all clients of PLAINTEXT
        "delegation.token.secret.key": "a-secret-of-all-brokers",
    }


def _logins(listener: str, passwords: Mapping[str, str]) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}"
    users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
    settings = {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {users};",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": _UNSECURED,
    }
    for mechanism, module in _LOGIN_MODULES.items():
        settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{module} required;"
    return settings


def _signed_tokens(version: str, jwks: Path) -> dict[str, str]:
    prefix = "listener.name.oidc"
    package = "" if release(version) >= _NEW_VALIDATOR_FROM else "secured."
    validator = f"{_MODULES}.oauthbearer.{package}OAuthBearerValidatorCallbackHandler"
    return {
        f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{_LOGIN_MODULES['OAUTHBEARER']} required;",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": validator,
        f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
        f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{prefix}.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
    }
