"""What a TLS handshake has shown: the certificate, its issuer, name and expiry, the protocol; or why it failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from .reaching import Endpoint
from .report import Finding, Step, Verdict, duration, long_duration

_DAY: Final = 86_400.0
_SOON_DAYS: Final = 14.0  # what renews certificates does it well before
# OpenSSL writes the months in English. %b would read them in the language of the process's locale.
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TIME: Final = "%m %d %H:%M:%S %Y GMT"

# X509_V_ERR_... of OpenSSL's x509_vfy.h, by the code of the finding
_BY_VERIFY_CODE: Final[Mapping[str, Sequence[int]]] = {
    "tls.not_yet_valid": (9,),
    "tls.expired": (10,),
    "tls.unknown_issuer": (2, 18, 19, 20, 21),
    "tls.wrong_name": (62, 63, 64),
    "tls.revoked": (23,),
    "tls.strict": tuple(range(80, 94)),
}
_WANTS_CERTIFICATE: Final = (
    *("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "UNKNOWN_CA"),
    "ALERT_HANDSHAKE_FAILURE",
)
_VERSIONS: Final = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "INAPPROPRIATE_FALLBACK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """A TLS handshake that succeeded.

    ``certificate`` is what ssl's getpeercert() returns: empty where the client verifies nothing. ``chain`` is the
    number of certificates from the broker's to the authority's, both included; 0 where Python does not tell.
    """

    protocol: str
    cipher: str
    certificate: Mapping[str, Any]
    chain: int
    seconds: float


def handshake_finding(endpoint: Endpoint, done: Handshake, now: float) -> Finding:
    """Return the finding about a handshake that succeeded. ``now`` is the Unix time in seconds."""
    expires = _unix_time(done.certificate.get("notAfter"))
    left = None if expires is None else expires - now
    issuer = _name(done.certificate.get("issuer"))
    names = [str(value) for _, value in done.certificate.get("subjectAltName", ())]
    said = f"{done.protocol} with {done.cipher} ({duration(done.seconds)})"
    if done.certificate:
        until = "" if left is None else f", and valid for {long_duration(max(left, 0.0))}"
        said += f"; the certificate is for {_listed(names)}, by {issuer}{until}"
    else:
        said += "; the certificate is not verified"
    details = {
        "protocol": done.protocol,
        "cipher": done.cipher,
        "issuer": issuer,
        "names": names[:50],
        "expires": None if expires is None else datetime.fromtimestamp(expires, UTC).isoformat(),
        "chain": done.chain,
    }
    is_soon = left is not None and left < _SOON_DAYS * _DAY
    return Finding(
        step=Step.TLS,
        verdict=Verdict.WARNING if is_soon else Verdict.OK,
        code="tls.expires_soon" if is_soon else "tls.done",
        subject=endpoint.subject,
        text=said,
        advice="renew the broker's certificate: clients refuse it from then on" if is_soon else "",
        seconds=done.seconds,
        details=details,
    )


def certificate_refused(endpoint: Endpoint, said: str, *, verify_code: int, reason: str) -> Finding:
    """Return the finding about a certificate that one side refuses.

    ``verify_code``: why this client refuses the broker's (0: the broker refuses this client's). ``reason``: OpenSSL's.
    """
    for advice in (": give ", ": look at ", ": let it "):
        said = said.partition(advice)[0]  # the finding's own advice says it
    code = next((name for name, codes in _BY_VERIFY_CODE.items() if verify_code in codes), "")
    if not code:
        wants = any(part in reason.upper() for part in _WANTS_CERTIFICATE)
        code = "tls.client_certificate" if wants and not verify_code else "tls.certificate"
    return _problem(endpoint, code, said, _ADVICE.get(code, "look at the certificates of both sides"))


def impossible_name(endpoint: Endpoint, said: str) -> Finding:
    """Return the finding about a host that no certificate can be for."""
    return _problem(endpoint, "tls.impossible_name", said, "give the broker a host name that a certificate can be for")


def handshake_failed(endpoint: Endpoint, said: str, *, reason: str, spoken: str, enabled: Sequence[str]) -> Finding:
    """Return the finding about a handshake that failed with a peer that speaks TLS.

    ``spoken``: the version that it speaks with a client that verifies nothing ("": with none either). ``enabled``: the
    versions of this client (empty: not known).
    """
    if spoken and enabled and spoken not in enabled:
        said = f"no version of TLS in common: the broker speaks {spoken}, and this client {' and '.join(enabled)} only"
        return _problem(endpoint, "tls.version", said, _ADVICE["tls.version"])
    if spoken:
        said = (
            f"the handshake fails with this client's options, and succeeds ({spoken}) without them ({reason or said})"
        )
    is_version = any(part in reason.upper() for part in _VERSIONS)
    code = "tls.version" if is_version else "tls.handshake"
    return _problem(endpoint, code, said, _ADVICE.get(code, "look at the broker's log, and at a proxy on the way"))


_ADVICE: Final = {
    "tls.not_yet_valid": "set the clock of this machine, or of the one that issued the certificate",
    "tls.expired": "let the broker's certificate be renewed; look at the clock of this machine",
    "tls.unknown_issuer": "give the authority's certificate as ssl_truststore_location",
    "tls.wrong_name": (
        "use a name that the certificate has, in bootstrap_servers or in the broker's advertised.listeners; or let the "
        "certificate be issued anew; or keep the name and map it by the option resolve"
    ),
    "tls.revoked": "let the broker's certificate be issued anew",
    "tls.strict": "let the certificate be issued anew, or name its authority in ssl_truststore_location",
    "tls.client_certificate": "give a certificate as ssl_keystore_location, of an authority that the broker trusts",
    "tls.version": "look at ssl_enabled_protocols here, and at ssl.enabled.protocols of the broker",
}


def _problem(endpoint: Endpoint, code: str, said: str, advice: str) -> Finding:
    return Finding(
        step=Step.TLS,
        verdict=Verdict.PROBLEM,
        code=code,
        subject=endpoint.subject,
        text=endpoint.announces(said),
        advice=advice,
    )


def _name(names: Any) -> str:
    fields = {field: value for parts in names or () for field, value in parts}
    found = fields.get("commonName") or fields.get("organizationName") or "an authority without a name"
    return str(found)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5]) or "no name"
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _unix_time(text: Any) -> float | None:
    month, _, rest = str(text).partition(" ")
    try:
        return datetime.strptime(f"{_MONTHS.index(month) + 1} {rest}", _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
