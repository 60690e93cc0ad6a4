"""GSSAPI (RFC 4752): Kerberos, by the optional package ``gssapi``. Each step may ask a KDC, so each one is Work."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ...errors import AuthenticationFailed, KafkaError
from ...secret import Secret
from .broker_text import broker_text
from .mechanism import Conversation, Work

T = TypeVar("T")

_NO_LAYER: Final = 0x01
# Codes of MIT Kerberos: no KDC was asked, or none could answer. Without an answer of DNS, the realm is "unknown".
_NO_KDC: Final = {
    -1765328228,  # KRB5_KDC_UNREACH
    -1765328230,  # KRB5_REALM_UNKNOWN
    -1765328164,  # KRB5_REALM_CANT_RESOLVE
    -1765328355,  # KRB5KDC_ERR_SVC_UNAVAILABLE
}


class SecurityContext(Protocol):
    """The client's side of a Kerberos authentication. Every call may block."""

    @property
    def complete(self) -> bool:
        """Whether both sides have authenticated each other."""

    @property
    def principal(self) -> str:
        """The client's own name, such as "alice@EXAMPLE.COM"."""

    def step(self, token: bytes | None) -> bytes:
        """Take the broker's token (None at first) and return the next one for it; b"" for none."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a message that the broker has signed."""

    def wrap(self, message: bytes) -> bytes:
        """Return a message, signed and not encrypted."""


class Gssapi:
    """The mechanism GSSAPI, as the Kerberos principal of ``identity``.

    ``open_context`` makes the security context; ``kerberos`` returns one for the package ``gssapi``. It is called in a
    thread, like all that the context does.
    """

    name: Final = "GSSAPI"
    expires_at: Final = None

    def __init__(
        self, open_context: Callable[[], SecurityContext], *, identity: str = "the Kerberos principal"
    ) -> None:
        self.identity = identity
        self.secrets: Sequence[Secret] = ()
        self._open_context = open_context

    def conversation(self) -> Conversation:
        context: SecurityContext = yield from _in_thread(self._open_context)
        token: bytes = yield from _in_thread(lambda: context.step(None))
        while not (yield from _in_thread(lambda: context.complete)):
            token = yield from _stepped(context, bytes((yield token)))
        # The context is complete. What is left of it goes to the broker (nothing, after a mutual authentication), which
        # then offers what may protect the messages to come. Kafka knows no protection but that of TLS.
        offer = yield from _unwrapped(context, bytes((yield token)))
        if len(offer) != 4 or not offer[0] & _NO_LAYER:
            raise AuthenticationFailed("the broker demands a security layer of GSSAPI, which Kafka does not have")
        choice = bytes((_NO_LAYER, 0, 0, 0))  # and no message under a layer, so its greatest length is 0
        yield (yield from _in_thread(lambda: context.wrap(choice + context.principal.encode())))

    def advice(self) -> str:
        return "the principal may be unknown to the broker, or the clocks differ"


class _Failure(NamedTuple):
    """What a step has raised. It is carried as a value, so that drivers need not throw into the dialogue."""

    error: Exception


def _in_thread(step: Callable[[], T]) -> Generator[Work, Any, T]:
    def guarded() -> T | _Failure:
        try:
            return step()
        except Exception as error:
            return _Failure(error)

    result: T | _Failure = yield Work(guarded)
    if not isinstance(result, _Failure):
        return result
    if isinstance(result.error, KafkaError):
        raise result.error
    retriable = getattr(result.error, "min_code", None) in _NO_KDC
    raise AuthenticationFailed(f"Kerberos: {broker_text(str(result.error))}", retriable=retriable) from result.error


def _stepped(context: SecurityContext, token: bytes) -> Generator[Work, Any, bytes]:
    return _in_thread(lambda: context.step(token))


def _unwrapped(context: SecurityContext, message: bytes) -> Generator[Work, Any, bytes]:
    return _in_thread(lambda: context.unwrap(message))
