"""``Authenticator``: one connection's authentication: what it may send, its user, its session (KIP-368).

It decides as Kafka's SaslServerAuthenticator, KafkaChannel and Processor do, in this order: ApiVersions at most once,
SaslHandshake, SaslAuthenticate until the mechanism is done; then everything, until the session is over.
"""

from __future__ import annotations

import base64
import logging
from enum import Enum, auto
from typing import Final, Protocol

from ....error_codes import ErrorCode
from ....wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ..authorizer import ANONYMOUS
from ..listener import Listener
from ..security_state import SecurityState
from .oauthbearer import OAuthBearerServer
from .plain import PlainServer
from .refused_login import LoginRefused, WrongCredentials
from .scram import ScramServer

_log = logging.getLogger(__name__)

_SASL_HANDSHAKE: Final = SaslHandshakeRequest.api_key
_SASL_AUTHENTICATE: Final = SaslAuthenticateRequest.api_key
_API_VERSIONS: Final = 18
_REAUTHENTICATION_INTERVAL: Final = 1.0  # KIP-368: at most one re-authentication a second


class Admission(Enum):
    """What becomes of a request."""

    SERVED = auto()
    #: Its answer, in its own layout, has ILLEGAL_SASL_STATE; then the connection is closed.
    REFUSED = auto()
    #: The connection is closed without an answer: at once, or after the delay of failed authentications (KIP-306).
    CLOSED = auto()
    CLOSED_LATE = auto()


class _State(Enum):
    INITIAL = auto()
    VERSIONS_TOLD = auto()
    AUTHENTICATING = auto()
    BAD_MECHANISM = auto()
    AUTHENTICATED = auto()
    FAILED = auto()


class MechanismServer(Protocol):
    """The server's half of a mechanism, for one login."""

    user: str | None
    is_complete: bool
    expires_ms: int | None

    def respond(self, message: bytes) -> bytes:
        """Answer a message of the client. Raises LoginRefused."""


class Authenticator:
    """The authentication of one connection to ``listener``. ``user`` is its principal's name, without "User:".

    ``certificate_user`` is the user that a client certificate names.
    """

    def __init__(self, listener: Listener, security: SecurityState, certificate_user: str | None = None) -> None:
        self.user = certificate_user or ANONYMOUS
        self.session_ends: float | None = None
        self.closes = False  # the connection is closed once the answer under way has been sent
        self.expects_raw_token = False  # after SaslHandshake in version 0
        self._listener = listener
        self._security = security
        self._state = _State.INITIAL if listener.uses_sasl else _State.AUTHENTICATED
        self._mechanism_name = ""
        self._mechanism: MechanismServer | None = None
        self._before: tuple[str, str] | None = None  # user and mechanism, while the connection authenticates again
        self._last_reauthentication: float | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the client could not be authenticated: its connection is about to be closed."""
        return self._state is _State.FAILED

    def admit(self, api_key: int, now: float) -> Admission:
        """Decide about a request that has arrived."""
        match self._state:
            case _State.AUTHENTICATED:
                if api_key == _SASL_HANDSHAKE and self._may_begin_again(now):
                    return Admission.SERVED
                # At once, where it ends as it begins: uvloop's clock stands still for a millisecond.
                is_over = self.session_ends is not None and now >= self.session_ends
                return Admission.CLOSED if is_over else Admission.SERVED
            case _State.AUTHENTICATING:
                return Admission.SERVED if api_key == _SASL_AUTHENTICATE else Admission.REFUSED
            case _State.INITIAL if api_key in (_API_VERSIONS, _SASL_HANDSHAKE):
                return Admission.SERVED
            case _State.VERSIONS_TOLD if api_key == _SASL_HANDSHAKE:
                return Admission.SERVED
            case _State.VERSIONS_TOLD if api_key == _API_VERSIONS:
                return Admission.CLOSED
            case _:
                return Admission.CLOSED_LATE

    def told_versions(self) -> None:
        """Note that ApiVersions has been answered without an error; before SASL a second time is an error."""
        if self._state is _State.INITIAL:
            self._state = _State.VERSIONS_TOLD

    def expire(self, ends: float) -> None:
        """End the session at ``ends``, whatever the client was told; no effect without a login by SASL."""
        if self._listener.uses_sasl:
            self.session_ends = ends

    # SaslHandshake

    def _may_begin_again(self, now: float) -> bool:
        """Return whether the client may authenticate again: its session has an end, and the last time is 1 s ago."""
        if not self._listener.uses_sasl or self.session_ends is None:
            return False
        last = self._last_reauthentication
        return last is None or now - last >= _REAUTHENTICATION_INTERVAL

    def handshake(self, request: SaslHandshakeRequest, version: int, now: float) -> SaslHandshakeResponse:
        """Choose the mechanism, for the first time or again."""
        enabled = list(self._listener.mechanisms or ())
        faults = self._security.faults
        begins_again = self._state is _State.AUTHENTICATED
        if faults.take("illegal_sasl_state") is not None or (begins_again and not self._may_begin_again(now)):
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
        if begins_again:
            self._last_reauthentication = now
            self._before = (self.user, self._mechanism_name)
        self.closes = faults.take("close_after_handshake") is not None
        if request.mechanism not in enabled:
            self._state = _State.FAILED
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled)
        if self._before is not None and request.mechanism != self._before[1]:
            self._state = _State.BAD_MECHANISM  # Kafka says NONE, and closes the connection at the next request
        else:
            self._mechanism_name, self._mechanism = request.mechanism, self._server_of(request.mechanism)
            self._state, self.expects_raw_token = _State.AUTHENTICATING, version == 0
        return SaslHandshakeResponse(error_code=0, mechanisms=enabled)

    def _server_of(self, mechanism: str) -> MechanismServer:
        security = self._security
        if mechanism == "PLAIN":
            return PlainServer(security.users)
        if mechanism == "OAUTHBEARER":
            return OAuthBearerServer(security.token_rules, security.faults, security.now_ms)
        nonce = base64.b64encode(security.random.randbytes(18)).decode()
        return ScramServer(mechanism, security.users, security.faults, nonce, security.now_ms)

    # SaslAuthenticate

    def authenticate(self, request: SaslAuthenticateRequest, now: float) -> SaslAuthenticateResponse:
        """Pass a message to the mechanism. Afterwards the client is authenticated, has failed, or goes on."""
        if self._state is not _State.AUTHENTICATING or self._mechanism is None:
            text = "SaslAuthenticate request received after successful authentication"
            return _refusal(ErrorCode.ILLEGAL_SASL_STATE, text)
        try:
            answer = self._mechanism.respond(bytes(request.auth_bytes))
            if self._mechanism.is_complete:
                self._check_user(self._mechanism.user)
        except LoginRefused as error:
            self._state = _State.FAILED
            return _refusal(ErrorCode.SASL_AUTHENTICATION_FAILED, self._text_of(error))
        if not self._mechanism.is_complete:
            return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=answer)
        fault = self._security.faults.take("refuse_login", self._mechanism.user)
        if fault is not None:
            self._state = _State.FAILED
            code, text = fault.value
            return _refusal(code, text)
        lifetime_ms = self._begin_session(now)
        return SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms
        )

    def raw_token(self, token: bytes, now: float) -> bytes | None:
        """Pass a message without a request header, as after SaslHandshake 0; None where the login is refused."""
        response = self.authenticate(SaslAuthenticateRequest(auth_bytes=token), now)
        self.expects_raw_token = self._state is _State.AUTHENTICATING
        return None if response.error_code else bytes(response.auth_bytes)

    def _check_user(self, user: str | None) -> None:
        """Raise LoginRefused where another user authenticates on the connection than the first time."""
        if self._before is not None and self._before[0] != user:
            raise LoginRefused(
                f"Cannot change principals during re-authentication from User.{self._before[0]}: User.{user}"
            )

    def _text_of(self, error: LoginRefused) -> str:
        if not isinstance(error, WrongCredentials):
            return str(error)
        _log.info("a login by %s is refused: %s", self._mechanism_name, error)
        doing = "authentication" if self._before is None else "re-authentication"
        return (
            f"Authentication failed during {doing} due to invalid credentials with SASL mechanism"
            f" {self._mechanism_name}"
        )

    def _begin_session(self, now: float) -> int:
        """Begin the session, and return its lifetime in ms: 0 where it has no end, or where it ends at once."""
        assert self._mechanism is not None
        self.user, self._state, self._before = self._mechanism.user or ANONYMOUS, _State.AUTHENTICATED, None
        limit = self._security.session_ms
        limit = self._listener.session_ms or 0 if limit is None else limit
        limits = [limit] if limit > 0 else []
        if self._mechanism.expires_ms is not None:
            limits.append(max(0, self._mechanism.expires_ms - self._security.now_ms()))
        self.session_ends = now + min(limits) / 1000 if limits else None
        return min(limits, default=0)


def _refusal(code: int, text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=b"")
