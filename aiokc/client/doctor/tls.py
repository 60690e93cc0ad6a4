"""Looks at the TLS handshake with one address of a broker, by the client's own context; and why one fails."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Protocol, cast

from ...core.doctor.certificates import (
    Handshake,
    certificate_refused,
    handshake_failed,
    handshake_finding,
    impossible_name,
)
from ...core.doctor.first_reply import Speaks, no_tls_at_all, plaintext_listener
from ...core.doctor.reaching import Endpoint
from ...core.doctor.report import Finding
from ...errors import CertificateRefused, ConnectionFailed, KafkaError
from ...net.addresses import Address, create_connection
from ...net.tls.contexts import TlsContexts
from .first_reply import first_reply, tls_version
from .kit import Kit, without_name


async def look_at_tls(kit: Kit, tls: TlsContexts, endpoint: Endpoint, address: Address) -> tuple[bool, Finding]:
    """Make a TLS handshake as the client does; return whether it succeeded, and the finding about it."""
    try:
        name = kit.server_name(endpoint.host)
    except ConnectionFailed as error:
        return False, impossible_name(endpoint, str(error))
    context = await tls.get()
    patience, started = kit.patience(), kit.now()
    protocol = asyncio.Protocol()
    try:
        async with asyncio.timeout(patience):
            transport = await create_connection(
                lambda: protocol, address, ssl=context, server_hostname=name, ssl_handshake_timeout=patience + 60.0
            )
    except (OSError, ValueError) as error:
        return False, await _why_not(kit, tls, endpoint, address, name, error)
    done = _seen(transport.get_extra_info("ssl_object"), kit.now() - started)
    transport.abort()
    return True, handshake_finding(endpoint, done, kit.unix_time())


def refused_after_handshake(endpoint: Endpoint, error: CertificateRefused) -> Finding:
    """Return the finding about a certificate of ours that a broker refuses after the handshake, as in TLS 1.3."""
    return _refusal(endpoint, error)


class _TlsObject(Protocol):
    """What is read of ssl.SSLObject, and of uvloop's."""

    def version(self) -> str | None: ...
    def cipher(self) -> tuple[str, str, int] | None: ...
    def getpeercert(self) -> Mapping[str, Any] | None: ...


def _seen(tls_object: _TlsObject, seconds: float) -> Handshake:
    cipher = tls_object.cipher()
    chain = getattr(tls_object, "get_verified_chain", None)  # since Python 3.13
    certificate = tls_object.getpeercert() or {}
    return Handshake(
        protocol=tls_object.version() or "TLS",
        cipher=cipher[0] if cipher else "an unknown cipher",
        certificate=certificate,
        chain=len(chain()) if chain is not None and certificate else 0,
        seconds=seconds,
    )


async def _why_not(
    kit: Kit, tls: TlsContexts, endpoint: Endpoint, address: Address, name: str, error: OSError | ValueError
) -> Finding:
    """Return the finding about a handshake that failed. Where that may not be TLS at all, ask in plaintext."""
    failure = tls.failure(error, endpoint.subject, name)
    said = str(error) if failure is None else without_name(failure, endpoint)
    if isinstance(failure, CertificateRefused):
        return _refusal(endpoint, failure)
    reply, kind = await first_reply(kit, address)
    if kind is Speaks.KAFKA:
        return plaintext_listener(endpoint, reply, kit.config.effective_security_protocol)
    spoken = await tls_version(kit, address)
    if kind is Speaks.TLS or spoken is not None:
        enabled = () if kit.config.ssl_context is not None else tuple(kit.config.ssl_enabled_protocols)
        reason = getattr(error, "reason", None) or ""
        return handshake_failed(endpoint, said, reason=reason, spoken=spoken or "", enabled=enabled)
    return no_tls_at_all(endpoint, reply, kind, said)


def _refusal(endpoint: Endpoint, error: KafkaError) -> Finding:
    cause = cast(Any, error.__cause__)
    code = getattr(cause, "verify_code", 0) if isinstance(cause, ssl.SSLCertVerificationError) else 0
    reason = getattr(cause, "reason", None) or ""
    return certificate_refused(endpoint, without_name(error, endpoint), verify_code=code, reason=reason)
