"""Why a connection was not made, or has ended: what it means for TLS, for the login, and at the end of a session."""

from __future__ import annotations

from ...core.sasl.mechanism import Mechanism
from ...errors import (
    AuthenticationFailed,
    CertificateRefused,
    ConnectionFailed,
    KafkaError,
    MalformedResponse,
    fresh,
)
from ..options import ConnectionOptions


class SessionEnded(ConnectionFailed):
    """The SASL session of a connection is over, so the connection is, too; a new one may be made at once."""

    in_flight = False  # whether the request was: the broker may have handled it. Otherwise it was not sent.


def about_credentials(error: BaseException) -> bool:
    """Whether a login has ended because of its credentials; a certificate says nothing about them.

    Unlike ``is_refusal`` of the LoginPolicy, also where the error is retriable: other credentials may be needed then.
    """
    return isinstance(error, AuthenticationFailed) and not isinstance(error, CertificateRefused)


def unanswered_text(mechanism: Mechanism | None) -> str:
    """Return what is missing, for the message, where the handshake with a broker takes too long."""
    asks_kdc = mechanism is not None and mechanism.name == "GSSAPI"
    return f"answer to the handshake (is it a Kafka listener{', and does the KDC answer' if asks_kdc else ''}?)"


def why_not_connected(
    error: BaseException, broker: str, host: str, options: ConnectionOptions, missing: str
) -> KafkaError:
    """Return the error for a connection that was not made. ``missing``: what a TimeoutError means."""
    if isinstance(error, TimeoutError):
        return ConnectionFailed(f"{broker}: no {missing}")
    if isinstance(error, OSError):
        failure = None if options.tls is None else options.tls.failure(error, broker, host)
        return failure or ConnectionFailed(f"{broker}: cannot connect ({error.strerror or error})")
    # A loop of another kind may look up a name in threads of its own, and have none: a RuntimeError. No resolver takes
    # some names, with an empty part or a NUL: a ValueError.
    return ConnectionFailed(f"{broker}: cannot connect ({error if isinstance(error, ValueError) else repr(error)})")


def why_it_ended(
    error: Exception | None,
    broker: str,
    host: str,
    options: ConnectionOptions,
    *,
    is_greeted: bool,
    is_due: bool,
    is_by_token: bool,
    at_first_request: bool,
) -> KafkaError:
    """Return the error for an established connection that the peer or the network has ended; ``error``: in which way.

    ``host`` is the name that the broker's certificate is for. ``is_greeted``: the handshake is over. ``is_due``: the
    SASL session is over, or nearly so. ``is_by_token``: it began with credentials that expire. ``at_first_request``:
    only the first request after the handshake waits for its reply.
    """
    failure: KafkaError | None = None
    if isinstance(error, KafkaError):
        failure = MalformedResponse(f"{broker}: {error}")
    elif is_due:
        failure = SessionEnded(f"{broker} closed the connection at the end of its SASL session")
    elif error is not None and not is_greeted and options.tls is not None:
        # In TLS 1.3 a broker refuses the client's certificate after the handshake: the first read tells.
        failure = options.tls.failure(error, broker, host, established=True)
    if failure is None:
        hint = at_first_request_text(options, is_by_token) if at_first_request else ""
        if error is None:
            failure = ConnectionFailed(f"{broker} closed the connection{hint}")
        else:
            why = (error.strerror if isinstance(error, OSError) else None) or repr(error)
            failure = ConnectionFailed(f"{broker}: the connection broke ({why}){hint}")
    failure.__cause__ = error
    return failure


def at_first_request_text(options: ConnectionOptions, is_by_token: bool) -> str:
    """Return what to look at, for the message, where a broker closes a connection at its first request; else ""."""
    if options.credentials is None:
        return " at the first request: this listener probably wants SASL (security_protocol, sasl_mechanism)"
    # A broker accepts a token that is over by no more than its allowed clock skew, and then closes the connection.
    return " at the first request after the login: is the token over by the broker's clock?" if is_by_token else ""


def failure_of(request: object, error: KafkaError, elapsed: float) -> KafkaError:
    """Return the exception for one waiting request of a connection that ended by ``error``.

    Each request gets its own: raising one writes a traceback into it. ``elapsed``: for how many seconds it has waited.
    """
    if isinstance(error, AuthenticationFailed):
        return fresh(error)
    kinds = (MalformedResponse, SessionEnded)
    kind = next((kind for kind in kinds if isinstance(error, kind)), ConnectionFailed)
    failure = kind(f"{error}, while {request} was in flight (for {elapsed:.3g} s)")
    if isinstance(failure, SessionEnded):
        failure.in_flight = True
    failure.__cause__ = error.__cause__ or error
    return failure
