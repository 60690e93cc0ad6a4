"""What a SASL mechanism is: a conversation of client messages and server answers, as a generator."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ...errors import AuthenticationFailed
from ...secret import Secret


class Work(NamedTuple):
    """A step that must leave the event loop, because it computes or blocks: PBKDF2, GSSAPI.

    The driver calls ``function`` in a thread, and sends its result. ``function`` is a closure, never a partial: the
    repr of a partial shows its arguments, and asyncio prints callbacks in its debug mode.
    """

    function: Callable[[], Any]


#: Yields the client's next message and is sent the server's answer (bytes), or yields Work and is sent its result. It
#: returns once the server has proven what the mechanism lets it prove, and raises AuthenticationFailed otherwise.
Conversation: TypeAlias = Generator[bytes | Work, Any, None]


class Mechanism(Protocol):
    """One snapshot of credentials, for one authentication.

    Nothing but ``secrets`` and the messages of the conversation holds a secret.
    """

    @property
    def name(self) -> str:
        """The mechanism's name in SaslHandshake."""

    @property
    def identity(self) -> str:
        """Whose credentials these are, for messages: "user 'alice'"."""

    @property
    def secrets(self) -> Sequence[Secret]:
        """What must not be shown, even if the broker repeats it."""

    @property
    def expires_at(self) -> float | None:
        """The Unix time in seconds from which on the credentials are never sent. None: they do not expire."""

    def conversation(self) -> Conversation:
        """Return a new conversation. The client speaks first in all mechanisms."""

    def advice(self) -> str:
        """What the user should look at when the broker has refused these credentials; "" for nothing."""


class HiddenBytes(bytes):
    """Bytes that no repr shows. Tools that report errors show the local variables of every frame of a traceback."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "b'***'"

    def __str__(self) -> str:
        return "b'***'"


def utf8(text: str | Secret, what: str) -> HiddenBytes:
    """Return ``text`` in UTF-8, which must have no NUL and not be empty. Raises AuthenticationFailed, without it."""
    encoded, problem = _encoded(text.reveal() if isinstance(text, Secret) else text)
    if problem:
        raise AuthenticationFailed(f"the {what} {problem}")
    return encoded


def _encoded(text: str) -> tuple[HiddenBytes, str]:
    """Return ``text`` in UTF-8, and what is wrong with it. It raises nothing, so that no traceback has ``text``."""
    # A UnicodeEncodeError would carry the text. Ignoring what can't be encoded leaves fewer bytes, and no exception.
    encoded = HiddenBytes(text.encode("utf-8", "ignore"))
    if not text:
        return encoded, "is empty"
    if "\0" in text:
        return encoded, "contains a NUL character"
    if encoded.decode("utf-8") != text:
        return encoded, "contains a lone surrogate, which UTF-8 cannot encode"
    return encoded, ""
