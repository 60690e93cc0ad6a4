"""The ways to connect to a secure Kafka, or a cluster like it: which listener, with which mechanism, as which user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from aiokc.testing.kafka import SecureKafka
from aiokc.testing.kafka.secure import tokens
from aiokc.testing.kafka.secure.broker_config import LOGIN_LISTENERS, MECHANISMS
from tests.producing import produce

from .secure_cluster import SecureCluster

Brokers: TypeAlias = SecureKafka | SecureCluster


def write(brokers: Brokers, topic: str, *values: bytes) -> None:
    """Append records to the only partition of a topic."""
    if isinstance(brokers, SecureCluster):
        brokers.produce(topic, *values)
    else:
        produce(brokers.bootstrap, topic, list(values))


class TokenProvider:
    """Makes a token at each call, and counts the calls."""

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make
        self.calls = 0

    async def token(self) -> str:
        self.calls += 1
        return self._make()


@dataclass(frozen=True)
class Way:
    """A listener, and the mechanism that a client uses there ("": none)."""

    listener: str
    mechanism: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, (self.listener, self.mechanism)))

    def password(self, kafka: Brokers, user: str = "alice") -> str:
        """Return the user's password for PLAIN or SCRAM."""
        return (kafka.passwords if self.mechanism == "PLAIN" else kafka.scram_passwords)[user]

    def token(self, kafka: Brokers, user: str = "alice", **options: Any) -> str:
        """Return a token that the listener takes."""
        make = kafka.tokens.signed if self.listener == "OIDC" else tokens.unsecured
        return make(user, **options)

    def options(self, kafka: Brokers, user: str = "alice") -> dict[str, Any]:
        """Return the options of an aiokc client."""
        options = kafka.options_of(self.listener)
        if self.mechanism == "OAUTHBEARER":
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_oauth_token_provider": TokenProvider(lambda: self.token(kafka, user)),
            }
        elif self.mechanism:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": self.password(kafka, user),
            }
        if self.listener == "SASL" and self.mechanism in ("PLAIN", "OAUTHBEARER"):
            options["allow_plaintext_credentials"] = True
        return options


def parameters(*ways: Way, long: Callable[[Way], bool] = lambda _: False) -> list[Any]:
    """Return the ways as parameters of a test; those that are `long` run in make test-long only.

    Old releases of Kafka check no signed tokens.
    """
    found = []
    for way in ways:
        signed = [pytest.mark.every_kafka(since="3.1")] if way.listener == "OIDC" else []
        found.append(pytest.param(way, id=str(way), marks=[*signed, *([pytest.mark.long] if long(way) else [])]))
    return found


LOGINS = [Way(listener, mechanism) for listener in LOGIN_LISTENERS for mechanism in MECHANISMS]
WAYS = [Way("TLS"), Way("TLS12"), Way("MTLS"), *LOGINS, Way("OIDC", "OAUTHBEARER")]
