"""What a failure of TLS means, and what to do: by OpenSSL's verify_code and reason, on both loops and on sockets."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from ...errors import CertificateRefused, ConnectionFailed, KafkaError
from .our_side import OurSide

# X509_V_ERR_... of OpenSSL's x509_vfy.h
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_ISSUER: Final = frozenset((2, 18, 19, 20, 21))
_ISSUER_MISSING: Final = frozenset((2, 20, 21))
_CHAIN_TOO_LONG: Final = frozenset((22, 25))
_REVOKED: Final = 23
_NOT_FOR_SERVERS: Final = 26
_WRONG_NAME: Final = frozenset((62, 63, 64))
_TOO_WEAK: Final = frozenset((66, 67, 68))
_STRICT: Final = frozenset(range(80, 94))  # the checks of X509_V_FLAG_X509_STRICT

# Alerts by which a broker refuses our certificate, or the lack of one. OpenSSL's reason has SSLV3_, TLSV1_ or TLSV13_
# before them.
_CERTIFICATE_ALERTS: Final = (
    *("ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE_UNKNOWN", "ALERT_CERTIFICATE_REQUIRED", "ALERT_CERTIFICATE_EXPIRED"),
    *("ALERT_UNSUPPORTED_CERTIFICATE", "ALERT_CERTIFICATE_REVOKED", "ALERT_UNKNOWN_CA", "ALERT_ACCESS_DENIED"),
    *("ALERT_DECRYPT_ERROR", "ALERT_NO_CERTIFICATE"),
)
_VERSION_REASONS: Final = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "INAPPROPRIATE_FALLBACK")
_NO_TLS_REASONS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
_NAME_REASONS: Final = ("UNRECOGNIZED_NAME", "ALERT_ILLEGAL_PARAMETER")

# What the end of a connection is on the three ways: a ConnectionResetError without a text on asyncio and uvloop, an
# SSLEOFError on a blocking socket, and on all of them what the operating system says of a broken connection.
_ENDS: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


def tls_failure(
    error: BaseException, broker: str, name: str, side: OurSide, *, established: bool = False
) -> KafkaError | None:
    """Return what ``error`` means where it is about TLS, with ``error`` as its cause; None where it is not.

    ``broker`` begins the message. ``name`` is the name that the certificate must be for. ``established``: the handshake
    was over, and nothing was received since; in TLS 1.3 a broker refuses a client's certificate then. A TimeoutError is
    that of the handshake.
    """
    found: KafkaError | None = None
    if isinstance(error, ssl.SSLCertVerificationError):
        found = CertificateRefused(f"{broker}: {_refused_by_us(error, name, side)}")
    elif isinstance(error, _ENDS):
        found = ConnectionFailed(f"{broker}: {_closed_after(error) if established else _closed(error)}")
    elif isinstance(error, ssl.SSLError):
        found = _of_alert(error, broker, name, side, established)
    elif isinstance(error, TimeoutError) and not established:
        found = ConnectionFailed(
            f"{broker}: no answer to the TLS handshake: a plaintext listener, which waits for more (then use "
            "security_protocol='PLAINTEXT' or 'SASL_PLAINTEXT'), or a broker that is too busy"
        )
    if found is not None:
        found.__cause__ = error
    return found


def _closed(error: BaseException) -> str:
    return (
        f"closed during the TLS handshake{_by_system(error)}: a plaintext listener? Then use its TLS port, or "
        "security_protocol='PLAINTEXT' or 'SASL_PLAINTEXT'"
    )


def _closed_after(error: BaseException) -> str:
    # A broker that closes with bytes of ours unread resets the connection, and its alert may be lost.
    return (
        f"closed right after the TLS handshake{_by_system(error)}: with TLS 1.3 a broker may refuse a client's "
        "certificate so, or the lack of one; look at ssl_keystore_location, and at the broker's log"
    )


def _by_system(error: BaseException) -> str:
    why = getattr(error, "strerror", None)
    return f" ({why})" if why and isinstance(error, ConnectionError) else ""


def _refused_by_us(error: ssl.SSLCertVerificationError, name: str, side: OurSide) -> str:
    """Return why this client refuses the broker's certificate, and what to do."""
    code, text = getattr(error, "verify_code", 0), getattr(error, "verify_message", "") or str(error)
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if code in _UNKNOWN_ISSUER:
        maybe = ", or the broker sends its certificate without the intermediate one" if code in _ISSUER_MISSING else ""
        return (
            f"the issuer of the broker's certificate is not in {side.trusts}{maybe} ({text}): give the certificate of "
            "the authority that signed it as ssl_truststore_location"
        )
    if code in _WRONG_NAME:
        underscore = "; a wildcard covers no name with an underscore" if "_" in name else ""
        return (
            f"the broker's certificate is not for {name!r} ({text}): look at the broker's advertised.listeners, and at "
            "the subject alternative names of its certificate; behind a tunnel, keep the broker's name and map it to "
            f"another address by the option resolve{underscore}"
        )
    if code == _EXPIRED:
        return f"the broker's certificate, or one of its chain, has expired; the clock here says {now}"
    if code == _NOT_YET_VALID:
        return f"the broker's certificate, or one of its chain, is not valid yet; the clock here says {now}"
    if code in _STRICT:
        return (
            f"the broker's certificate, or one of its chain, breaks RFC 5280 ({text}), which Python is strict about "
            "since 3.13: let it be issued anew; or give its authority as ssl_truststore_location, where that is not "
            "checked; or clear ssl.VERIFY_X509_STRICT in the verify_flags of an ssl_context of your own"
        )
    return f"the broker's certificate was refused: {_other_refusals(code, text)}"


def _other_refusals(code: int, text: str) -> str:
    if code in _CHAIN_TOO_LONG:
        return f"its chain is too long ({text})"
    if code == _REVOKED:
        return "its authority has revoked it"
    if code == _NOT_FOR_SERVERS:
        return f"it, or its authority, is not meant for servers ({text}): its extended key usage needs serverAuth"
    if code in _TOO_WEAK:
        return f"a key or digest in its chain is too weak for the security level of OpenSSL here ({text})"
    return f"{text} (OpenSSL's error {code})"


def _of_alert(error: ssl.SSLError, broker: str, name: str, side: OurSide, established: bool) -> KafkaError:
    """Return the error for what the broker told by an alert, or what its bytes were."""
    reason = (error.reason or str(error)).upper().replace(" ", "_")
    if _has(reason, _CERTIFICATE_ALERTS):
        return CertificateRefused(f"{broker}: {_refused_by_broker(reason, side)}")
    if "ALERT_HANDSHAKE_FAILURE" in reason and side.certificate in (None, "ssl_context"):
        return CertificateRefused(
            f"{broker}: the broker broke the TLS handshake off ({reason}): it wants a certificate of this client (give "
            "ssl_keystore_location, or put one into the ssl_context), or both sides have no cipher in common"
        )
    for reasons, explain in _EXPLANATIONS:
        if _has(reason, reasons):
            return ConnectionFailed(f"{broker}: {explain(reason, name, side)}")
    what = "TLS broke" if established else "the TLS handshake failed"
    return ConnectionFailed(f"{broker}: {what} ({reason})")


def _has(reason: str, parts: tuple[str, ...]) -> bool:
    return any(part in reason for part in parts)


def _refused_by_broker(reason: str, side: OurSide) -> str:
    if side.certificate is None:
        return (
            f"the broker wants a certificate of this client ({reason}): give ssl_keystore_location, or another "
            "listener's port (ssl.client.auth is set on this one)"
        )
    if side.certificate == "ssl_context":
        return f"the broker refused the certificate of the ssl_context, or wants one ({reason})"
    told = f"the broker refused our certificate, from {side.certificate} ({reason})"
    if side.valid is None:
        return f"{told}: its authority is not in the broker's truststore, or it has expired"
    now = datetime.now(UTC)
    if now > side.valid.end:
        return f"{told}: it expired at {side.valid.end:%Y-%m-%d %H:%M:%S} UTC, and the clock here says {_time(now)}"
    if now < side.valid.begin:
        return f"{told}: it is valid from {_time(side.valid.begin)} on, and the clock here says {_time(now)}"
    return (
        f"{told}: its authority is probably not in the broker's truststore; by the clock here it is valid until "
        f"{_time(side.valid.end)}"
    )


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _no_common_version(reason: str, name: str, side: OurSide) -> str:
    return (
        f"no version of TLS in common ({reason}): this client speaks {side.versions} (ssl_enabled_protocols), the "
        "broker's ssl.enabled.protocols has none of them; versions before 1.2 are not safe, and not spoken"
    )


def _no_agreement(reason: str, name: str, side: OurSide) -> str:
    return (
        f"the broker broke the TLS handshake off ({reason}): both sides have no cipher or kind of key in common; look "
        "at the broker's log, and at its ssl.cipher.suites"
    )


def _no_tls(reason: str, name: str, side: OurSide) -> str:
    return (
        f"what answered is not TLS ({reason}): a plaintext listener, an HTTP server or a proxy? Look at the port, and "
        "at security_protocol"
    )


def _name_refused(reason: str, name: str, side: OurSide) -> str:
    advice = "a broker in Java refuses names with an underscore: " if "_" in name else ""
    return f"the broker refused the name {name!r} ({reason}): {advice}look at its advertised.listeners"


_EXPLANATIONS: Final[tuple[tuple[tuple[str, ...], Callable[[str, str, OurSide], str]], ...]] = (
    (_VERSION_REASONS, _no_common_version),
    (_NO_TLS_REASONS, _no_tls),
    (("ALERT_HANDSHAKE_FAILURE",), _no_agreement),
    (_NAME_REASONS, _name_refused),
)
