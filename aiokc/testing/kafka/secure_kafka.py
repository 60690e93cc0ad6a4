"""``SecureKafka``: a local Kafka with TLS, SASL, ACLs and delegation tokens: one listener for each way to connect."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from .jars import KAFKA_VERSION, LocalKafkaError
from .local_kafka import LocalKafka
from .node import Node
from .secure import acls, broker_config, tokens, users
from .secure.acls import Acl
from .secure.certificate_files import CertificateFiles
from .secure.users import DelegationToken

_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.02


class SecureKafka(LocalKafka):
    """A cluster as that of `LocalKafka`, with these listeners beside ``PLAINTEXT``; `bootstrap_of` has their addresses.

    ========== ================ ==============================================================================
    listener   protocol         what it is for
    ========== ================ ==============================================================================
    TLS        SSL              no client certificate is asked for
    MTLS       SSL              a client certificate is required; its CN is the user's name
    TLS12      SSL              TLS 1.2 only
    BADNAME    SSL              the certificate is for another name
    EXPIRED    SSL              the certificate has expired
    NOTYET     SSL              the certificate is valid in five days
    NOCHAIN    SSL              the broker does not send the intermediate CA's certificate
    LAX        SSL              the certificate is of a CA that breaks RFC 5280: trust `certificates.lax_ca`
    SASL       SASL_PLAINTEXT   PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (unsecured tokens)
    SASLTLS    SASL_SSL         the same, over TLS
    SHORT      SASL_SSL         the same; a session ends after `session_seconds` (KIP-368)
    OIDC       SASL_SSL         OAUTHBEARER with signed tokens; from Kafka 3.1 on
    ========== ================ ==============================================================================

    `passwords` are those of PLAIN, `scram_passwords` those of both SCRAM mechanisms, by user. A client
    of ``PLAINTEXT``, or of TLS without a certificate, is User:ANONYMOUS, which may do everything, as User:admin may.
    Other users may do what `add_acls` allows: at first nothing.

    It needs trustme and cryptography.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        version: str = KAFKA_VERSION,
        session_seconds: float = 4.0,
        passwords: Mapping[str, str] | None = None,
        scram_passwords: Mapping[str, str] | None = None,
        config: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
        **options: Any,
    ) -> None:
        own = broker_config.listeners(version)
        super().__init__(nodes, version=version, listeners={**own, **(listeners or {})}, **options)
        self.passwords = dict(passwords or {"alice": "alice-secret", "bob": "bob-secret", "admin": "admin-secret"})
        self.scram_passwords = dict(scram_passwords or {"alice": "alice-scram", "bob": "bob-scram"})
        self.session_seconds = session_seconds
        self.tokens = tokens.TokenMaker()
        self._own_config, self._own_jvm = dict(config or {}), tuple(jvm)
        self._certificates: CertificateFiles | None = None

    @property
    def certificates(self) -> CertificateFiles:
        """The PEM files of the brokers and of clients. Raises LocalKafkaError before ``start``."""
        if self._certificates is None:
            raise LocalKafkaError("the certificates are there when the local Kafka is started")
        return self._certificates

    def options_of(self, listener: str) -> dict[str, Any]:
        """Return the options of a client for one of the listeners, but for those of SASL.

        Consumer("events", **kafka.options_of("SASLTLS"), sasl_mechanism="PLAIN", sasl_plain_username="alice", ...)
        """
        protocol = self._listeners.get(listener, "PLAINTEXT")
        options = {"bootstrap_servers": self.bootstrap_of(listener), "security_protocol": protocol}
        if protocol.endswith("SSL"):
            options["ssl_truststore_location"] = str(self.certificates.ca)
        if listener == "MTLS":
            options["ssl_keystore_location"] = str(self.certificates.client)
        return options

    def start(self) -> None:
        """Start all nodes. Afterwards each of them answers, and knows the users of SCRAM too.

        Raises LocalKafkaError where Java, Maven, trustme or cryptography is missing, or a broker does not start.
        """
        super().start()
        try:
            for user, password in self.scram_passwords.items():
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                    users.set_scram_password(self._address(), mechanism, user, password)
            for user, password in self.scram_passwords.items():
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                    self._wait_for_login(mechanism, user, password)
        except BaseException:
            self.stop()
            raise

    def set_scram_password(self, user: str, password: str, *, mechanism: str = "SCRAM-SHA-512") -> None:
        """Create a user of one SCRAM mechanism, or change its password. Afterwards every broker knows it."""
        users.set_scram_password(self._address(), mechanism, user, password)
        self._wait_for_login(mechanism, user, password)

    def delete_scram_user(self, user: str, *, mechanism: str = "SCRAM-SHA-512") -> None:
        """Delete a user of one SCRAM mechanism: soon every broker refuses it."""
        users.delete_scram_user(self._address(), mechanism, user)

    def create_delegation_token(self, user: str, *, lifetime_ms: int = -1) -> DelegationToken:
        """Create a delegation token of a user in `passwords` (-1: as long as brokers allow). Every broker knows it."""
        password = self.passwords[user]
        token = users.create_token(self._sasl_addresses()[0], user, password, lifetime_ms)
        self._wait_for_login("SCRAM-SHA-512", token.id, token.hmac, token=True)
        return token

    def add_acls(self, *new: Acl) -> None:
        """Create ACLs. Afterwards every broker obeys them."""
        acls.create(self._address(), new)
        self._wait_for_acls(new, there=True)

    def remove_acls(self, *old: Acl) -> None:
        """Delete ACLs. Afterwards no broker obeys them."""
        acls.delete(self._address(), old)
        self._wait_for_acls(old, there=False)

    def _prepare(self, folder: Path) -> None:
        own = folder / "security"
        own.mkdir(mode=0o700)
        jwks = own / "jwks.json"
        jwks.write_text(self.tokens.jwks())
        self._certificates = CertificateFiles(own)
        settings = broker_config.of_broker(
            self.version, self._certificates, jwks, self.passwords, round(self.session_seconds * 1000)
        )
        self._config = {**settings, **self._own_config}
        self._jvm = (*broker_config.jvm(jwks), *self._own_jvm)

    def _sasl_addresses(self) -> list[str]:
        return self.bootstrap_of("SASL").split(",")

    def _wait_for_login(self, mechanism: str, user: str, password: str, *, token: bool = False) -> None:
        for address in self._sasl_addresses():
            known = partial(users.knows_scram, address, mechanism, user, password, token=token)
            _wait(known, f"{address} still refuses {user!r} with {mechanism}")

    def _wait_for_acls(self, changed: Sequence[Acl], *, there: bool) -> None:
        for node in self.nodes:
            for acl in changed:
                problem = f"{node.name} does not know yet that {acl} was {'created' if there else 'deleted'}"
                _wait(partial(_obeys, node, acl, there), problem)


def _obeys(node: Node, acl: Acl, there: bool) -> bool:
    return acls.in_force(node.address, acl) == there


def _wait(done: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise LocalKafkaError(f"after {_SECONDS:g} s {problem}")
        time.sleep(_POLL_SECONDS)
