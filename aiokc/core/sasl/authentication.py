"""The dialogue that authenticates a connection: SaslHandshake, then SaslAuthenticate until both sides are content."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from ...error_codes import ErrorCode, error_name
from ...errors import AuthenticationFailed, MalformedResponse, UnsupportedVersion, is_retriable
from ...wire import Response, decode
from ...wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ..versions import Question, VersionRange, usable_version
from .broker_text import broker_text
from .mechanism import Conversation, HiddenBytes, Mechanism, Work
from .session import Session

#: The longest answer to a request of authentication that is read. Kafka takes no longer one than 512 KiB itself.
MOST_ANSWER_BYTES: Final = 64 * 1024
#: The most messages of a client. GSSAPI needs three or four, the others one or two.
MOST_ROUNDS: Final = 10

# In v0 the messages of the mechanism follow without any framing, as brokers before 1.0 had it.
_HANDSHAKE_VERSION: Final = 1

_NO_SASL: Final = (
    "has no SASL on this listener: security_protocol 'SSL' or 'PLAINTEXT' fits it, or give the address of another one"
)
_TAKES_NO_LOGIN: Final = (
    "answered SaslHandshake with ILLEGAL_SASL_STATE: it has no SASL on this listener, or takes no login just now; "
    "security_protocol 'SSL' or 'PLAINTEXT' fits a listener without SASL"
)

R = TypeVar("R", bound=Response)

Authentication: TypeAlias = Generator[Question | Work, Any, Session]


def authenticate(
    mechanism: Mechanism, *, broker: str, versions: Mapping[int, VersionRange], clock: Callable[[], float]
) -> Authentication:
    """Authenticate a connection to ``broker`` (a name for error messages), which offers ``versions``.

    Yields a Question and is sent the body of its answer, or yields Work and is sent its result. Returns the Session:
    the broker has accepted the credentials, and has proven what the mechanism lets it prove. Raises
    AuthenticationFailed, UnsupportedVersion, MalformedResponse.

    Before it asks the broker anything, it makes the first message. So credentials that can't be used, such as an
    expired token, leave the broker unasked. Between SaslHandshake and the last answer the driver must send nothing
    else on the connection.
    """
    conversation = mechanism.conversation()
    dialogue = _Dialogue(mechanism, conversation, broker)
    try:
        version = dialogue.version(versions)
        message = yield from dialogue.next_message(None)
        yield from dialogue.choose_mechanism()
        for _ in range(MOST_ROUNDS):
            sent_at = clock()
            answer, lifetime_ms = yield from dialogue.ask(message or HiddenBytes(), version)
            message = yield from dialogue.next_message(answer)
            if message is None:
                return Session(lifetime_ms, sent_at)
    finally:
        conversation.close()
    raise dialogue.failure(f"{broker} went on asking after {MOST_ROUNDS} messages")


class _Dialogue:
    """The steps of one authentication."""

    def __init__(self, mechanism: Mechanism, conversation: Conversation, broker: str) -> None:
        self._mechanism = mechanism
        self._conversation = conversation
        self._broker = broker

    def version(self, versions: Mapping[int, VersionRange]) -> int:
        """Return the version of SaslAuthenticate to speak."""
        if SaslHandshakeRequest.api_key not in versions:
            raise self.failure(f"{self._broker} {_NO_SASL}")
        usable = usable_version(versions, SaslHandshakeRequest, broker=self._broker)
        if usable < _HANDSHAKE_VERSION:
            raise UnsupportedVersion(
                f"{self._broker} offers SaslHandshake v{usable}, and v{_HANDSHAKE_VERSION} is needed"
            )
        return usable_version(versions, SaslAuthenticateRequest, broker=self._broker)

    def next_message(self, answer: bytes | None) -> Generator[Work, Any, HiddenBytes | None]:
        """Tell the mechanism what the broker answered. Return what it says next; None: it is content."""
        try:
            step = self._conversation.send(answer)
            while isinstance(step, Work):
                result = yield step
                step = self._conversation.send(result)
        except StopIteration:
            return None
        except AuthenticationFailed as error:
            failed = error
        else:
            return HiddenBytes(step)
        # Outside of the except: else the new exception would keep the old one, whose traceback has the variables of the
        # mechanism: keys, and what a hostile broker repeats.
        whose = f"{self._mechanism.name} ({self._mechanism.identity})"
        failure = self.failure(f"{self._broker}: {whose}: {failed}", failed)
        failure.__cause__ = failed.__cause__
        del failed
        raise failure

    def choose_mechanism(self) -> Generator[Question, Any, None]:
        """Name the mechanism to the broker. It is never another one than the application wants."""
        body = yield Question(SaslHandshakeRequest(mechanism=self._mechanism.name), _HANDSHAKE_VERSION)
        self._check_length(body, "SaslHandshake")
        answer = self._decoded(SaslHandshakeResponse, body, _HANDSHAKE_VERSION)
        if answer.error_code == ErrorCode.NONE:
            return
        refusal = self._refused_mechanism(answer)
        del answer  # it may repeat a secret, and a traceback keeps the local variables
        raise refusal

    def _refused_mechanism(self, answer: SaslHandshakeResponse) -> AuthenticationFailed:
        name = self._mechanism.name
        # A listener without SASL says so, and knows no mechanisms. The same answer comes where it is too early to
        # authenticate again, and the client can't tell which of both it is.
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE and not answer.mechanisms:
            return self.failure(f"{self._broker} {_TAKES_NO_LOGIN}", code=answer.error_code)
        enabled = broker_text(", ".join(sorted(answer.mechanisms)), self._mechanism.secrets) or "none"
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return self.failure(
                f"{self._broker} does not offer {name} on this listener; enabled here: {enabled}",
                code=answer.error_code,
            )
        return self.failure(
            f"{self._broker} refused SaslHandshake for {name}: {error_name(answer.error_code)}; enabled: {enabled}",
            code=answer.error_code,
        )

    def ask(self, message: HiddenBytes, version: int) -> Generator[Question, Any, tuple[HiddenBytes, int]]:
        """Send a message of the mechanism. Return what a broker answers that has not refused, and the lifetime."""
        body = yield Question(SaslAuthenticateRequest(auth_bytes=message), version)
        self._check_length(body, "SaslAuthenticate")
        answer = self._decoded(SaslAuthenticateResponse, body, version)
        if answer.error_code == ErrorCode.NONE:
            return HiddenBytes(answer.auth_bytes), answer.session_lifetime_ms
        refusal = self._refusal(answer)
        del answer
        raise refusal

    def _refusal(self, answer: SaslAuthenticateResponse) -> AuthenticationFailed:
        mechanism = self._mechanism
        said = broker_text(answer.error_message or "", mechanism.secrets) or "it gives no reason"
        if answer.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            said = f"{error_name(answer.error_code)}: {said}"
        advice = f"; {advice}" if (advice := mechanism.advice()) else ""
        return self.failure(
            f"{self._broker} refused {mechanism.identity} ({mechanism.name}): {said}{advice}", code=answer.error_code
        )

    def failure(
        self, message: str, error: AuthenticationFailed | None = None, *, code: int = 0
    ) -> AuthenticationFailed:
        """Return the exception to raise. ``error``: what the mechanism raised."""
        retriable = error.retriable if error is not None else is_retriable(code)
        return AuthenticationFailed(message, mechanism=self._mechanism.name, code=code, retriable=retriable)

    def _check_length(self, body: memoryview, api: str) -> None:
        if len(body) > MOST_ANSWER_BYTES:
            raise self.failure(
                f"{self._broker} answered {api} with {len(body)} bytes, more than the {MOST_ANSWER_BYTES} that are read"
            )

    def _decoded(self, response_type: type[R], body: memoryview, version: int) -> R:
        try:
            return decode(response_type, body, version)
        except MalformedResponse as error:
            name = response_type.__name__.removesuffix("Response")
            raise MalformedResponse(f"{self._broker}: {name} v{version}: {error}") from error
