"""``Listener``: the security protocol of one of the brokers' listeners, and how clients authenticate there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

Protocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ClientAuth: TypeAlias = Literal["none", "requested", "required"]

#: The listener that every cluster with named listeners has beside them.
PLAINTEXT: Final = "PLAINTEXT"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(frozen=True)
class Listener:
    """One listener. ``client_auth`` is Kafka's ssl.client.auth, ``session_ms`` its connections.max.reauth.ms.

    ``certificate`` is a PEM of a private key and its chain; None stands for the cluster's certificate. ``mechanisms``
    and ``session_ms`` are the cluster's where they are None.
    """

    protocol: Protocol = "PLAINTEXT"
    client_auth: ClientAuth = "none"
    certificate: str | None = None
    mechanisms: tuple[str, ...] | None = None
    session_ms: int | None = None

    def __post_init__(self) -> None:
        if self.protocol not in get_args(Protocol):
            raise ValueError(f"listener protocol {self.protocol!r}: it is one of {', '.join(get_args(Protocol))}")
        if self.client_auth not in get_args(ClientAuth):
            raise ValueError(f"client_auth={self.client_auth!r}: it is one of {', '.join(get_args(ClientAuth))}")
        unknown = [one for one in self.mechanisms or () if one not in MECHANISMS]
        if unknown:
            raise ValueError(f"mechanism {unknown[0]!r}: the cluster has {', '.join(MECHANISMS)}")

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def listeners_of(
    named: Mapping[str, Listener | Protocol] | None,
    *,
    has_tls: bool,
    has_sasl: bool,
    mechanisms: tuple[str, ...],
    session_ms: int,
) -> dict[str, Listener]:
    """Return all listeners by name, the first of them the one that ``Cluster.bootstrap`` names.

    Without names there is one listener: SASL_SSL, SASL_PLAINTEXT, SSL or PLAINTEXT, as the cluster has TLS and SASL.
    """
    if named is None:
        protocol: Protocol = "SASL_SSL" if has_tls else "SASL_PLAINTEXT"
        if not has_sasl:
            protocol = "SSL" if has_tls else "PLAINTEXT"
        found: dict[str, Listener | Protocol] = {protocol: protocol}
    else:
        found = {PLAINTEXT: "PLAINTEXT", **named}
    listeners = {name: one if isinstance(one, Listener) else Listener(one) for name, one in found.items()}
    without = [name for name, one in listeners.items() if one.uses_tls and not has_tls]
    if without:
        raise ValueError(f"listener {without[0]} has TLS: give the cluster tls=Certificates()")
    return {
        name: replace(
            one,
            mechanisms=mechanisms if one.mechanisms is None else one.mechanisms,
            session_ms=session_ms if one.session_ms is None else one.session_ms,
        )
        for name, one in listeners.items()
    }
