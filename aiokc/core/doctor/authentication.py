"""What came of logging in by SASL, or of not logging in where the listener wants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...error_codes import ErrorCode
from ...errors import AuthenticationFailed, KafkaError
from ..sasl.broker_text import broker_text
from .reaching import Endpoint
from .report import Finding, Step, Verdict, duration, long_duration

_MOST_MECHANISMS: Final = 20
_SHORT_SESSION_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a broker answers to SaslHandshake. ``code`` is its error code, ``mechanisms`` what its listener offers."""

    code: int
    mechanisms: tuple[str, ...]

    @property
    def has_sasl(self) -> bool:
        return self.code != ErrorCode.ILLEGAL_SASL_STATE or bool(self.mechanisms)

    def named(self) -> str:
        """Return the mechanisms, fit to be shown."""
        return broker_text(", ".join(sorted(self.mechanisms)[:_MOST_MECHANISMS])) or "none"


def offer(code: int, mechanisms: Sequence[str]) -> Offer:
    """Return what a broker offers, at most 20 mechanisms of it."""
    return Offer(code=code, mechanisms=tuple(mechanisms[:_MOST_MECHANISMS]))


def no_credentials(endpoint: Endpoint, error: KafkaError, seconds: float) -> Finding:
    """Return the finding about a source that gives no credentials: a provider, an OpenID provider, a file."""
    advice = "look at what provides the credentials: the options sasl_..., the provider's log, the network to it"
    return _finding(endpoint, Verdict.PROBLEM, "authentication.no_credentials", str(error), advice, seconds=seconds)


def wrong_mechanism(endpoint: Endpoint, mechanism: str, offered: Offer) -> Finding | None:
    """Return the finding about a mechanism that the listener does not offer; None if it may offer it."""
    if not offered.has_sasl:
        return no_sasl(endpoint)
    if offered.code != ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return None
    return _finding(
        endpoint,
        Verdict.PROBLEM,
        "authentication.mechanism",
        f"the listener does not offer {mechanism}; it offers {offered.named()}. The credentials were not sent",
        "set sasl_mechanism to one of these, or let the broker's sasl.enabled.mechanisms be changed",
        offered=offered,
    )


def no_sasl(endpoint: Endpoint) -> Finding:
    """Return the finding about a listener without SASL that the client wants to log in at."""
    return _finding(
        endpoint,
        Verdict.PROBLEM,
        "authentication.no_sasl",
        "the listener has no SASL, and the client wants to log in. The credentials were not sent",
        "leave the sasl_ options out and set security_protocol='PLAINTEXT' or 'SSL', or give the port of the listener "
        "with SASL",
    )


def sasl_wanted(endpoint: Endpoint, offered: Offer | None, *, uses_tls: bool) -> Finding:
    """Return the finding about a listener that closes the connection at the first request of a client without SASL.

    ``offered``: what it answers to SaslHandshake; None: nothing.
    """
    protocol = "SASL_SSL" if uses_tls else "SASL_PLAINTEXT"
    text = "it answers ApiVersions, and closes the connection at the next request"
    if offered is not None and offered.has_sasl:
        text = f"the listener wants SASL, and offers {offered.named()}: without a login {text}"
        advice = f"set security_protocol={protocol!r}, sasl_mechanism to one of these, and the credentials"
    else:
        advice = f"the listener probably wants SASL (security_protocol={protocol!r}); look at the broker's log"
    return _finding(endpoint, Verdict.PROBLEM, "authentication.sasl_wanted", text, advice, offered=offered)


def refused(endpoint: Endpoint, error: KafkaError, offered: Offer | None, seconds: float) -> Finding:
    """Return the finding about a login that failed, though the listener offers the mechanism."""
    code, advice = "authentication.failed", "look at the broker's log: it says why a login fails"
    if isinstance(error, AuthenticationFailed):
        if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            code = "authentication.refused"
            advice = (
                "look at the user and the password, and at the broker's log, which may say which of both is wrong. One "
                "attempt was made: directories lock accounts"
            )
        elif error.code == 0 and not error.retriable:
            code = "authentication.not_proven"
            advice = "the broker does not prove that it knows the password: is it the cluster that you mean?"
    return _finding(endpoint, Verdict.PROBLEM, code, str(error), advice, seconds=seconds, offered=offered)


def logged_in(
    endpoint: Endpoint,
    *,
    mechanism: str,
    identity: str,
    lifetime_ms: int,
    credential_seconds: float | None,
    offered: Offer | None,
    seconds: float,
) -> Finding:
    """Return the finding about a login that succeeded.

    ``lifetime_ms`` is the session's (0: no limit, or a broker before 2.2), ``credential_seconds`` what is left of a
    token (None: it does not expire).
    """
    text = f"logged in as {identity} by {mechanism} ({duration(seconds)})"
    verdict, code, advice = Verdict.OK, "authentication.logged_in", ""
    text += f"; the session lasts {long_duration(lifetime_ms / 1e3)}" if lifetime_ms > 0 else "; the session has no end"
    if 0 < lifetime_ms < _SHORT_SESSION_MS:
        verdict, code = Verdict.NOTE, "authentication.short_session"
        advice = "the client logs in again that often: look at connections.max.reauth.ms, and at the token's lifetime"
    if offered is not None:
        text += f"; the listener offers {offered.named()}"
    details = {"mechanism": mechanism, "session_ms": lifetime_ms, "credential_seconds": credential_seconds}
    return _finding(endpoint, verdict, code, text, advice, seconds=seconds, offered=offered, details=details)


def not_needed(endpoint: Endpoint) -> Finding:
    """Return the finding about a listener that takes requests without SASL."""
    text = "the listener takes requests without SASL"
    return _finding(endpoint, Verdict.OK, "authentication.not_needed", text)


def _finding(
    endpoint: Endpoint,
    verdict: Verdict,
    code: str,
    text: str,
    advice: str = "",
    *,
    seconds: float | None = None,
    offered: Offer | None = None,
    details: Mapping[str, object] | None = None,
) -> Finding:
    offers = {} if offered is None else {"offered": [broker_text(one) for one in offered.mechanisms]}
    return Finding(
        step=Step.AUTHENTICATION,
        verdict=verdict,
        code=code,
        subject=endpoint.subject,
        text=text[:1].upper() + text[1:] if verdict is Verdict.PROBLEM else text,
        advice=advice,
        seconds=seconds,
        details={**offers, **(details or {})},
    )
