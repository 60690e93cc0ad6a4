"""OAuthToken and TokenProvider: what an application's source of tokens for OAUTHBEARER looks like."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from .secret import Secret

_NO_EXTENSIONS: Final[Mapping[str, str]] = MappingProxyType({})
# Seconds: the year 11476. Some write the end of the year 9999 for "never". Milliseconds since 1979 are more.
_TOO_LATE: Final = 3e11


def is_unix_seconds(moment: float) -> bool:
    """Whether ``moment`` may be a Unix time in seconds: milliseconds of today are none, nor is a NaN."""
    return 0 <= moment < _TOO_LATE


class OAuthToken:
    """A token for OAUTHBEARER: ``value``, which no repr shows, ``expires_at`` in Unix seconds, and SASL extensions.

    ``expires_at`` None: that of the token's own ``exp``, if it is a JWT. If it is none, the end of the token is
    unknown. The extensions go to the broker with the token (KIP-342); names are letters only.
    """

    __slots__ = ("expires_at", "extensions", "value")

    def __init__(
        self, value: str | Secret, expires_at: float | None = None, extensions: Mapping[str, str] | None = None
    ) -> None:
        given: object = value
        kind, token = type(given), Secret(given) if isinstance(given, str | Secret) else None
        self.extensions: Mapping[str, str] = MappingProxyType(dict(extensions)) if extensions else _NO_EXTENSIONS
        value, given, extensions = "", None, None  # before an error is raised: what reports errors may show variables
        if token is None:
            raise TypeError(f"the value of an OAuthToken is a str or a Secret, not {kind.__name__}")
        if expires_at is not None and not is_unix_seconds(expires_at):
            raise ValueError(f"expires_at={expires_at!r} must be in Unix seconds")
        self.value = token
        self.expires_at = expires_at

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OAuthToken):
            return NotImplemented
        return (self.value, self.expires_at, self.extensions) == (other.value, other.expires_at, other.extensions)

    def __hash__(self) -> int:
        return hash((self.value, self.expires_at))

    def __repr__(self) -> str:
        names = ", ".join(self.extensions)
        return f"OAuthToken({self.value!r}, expires_at={self.expires_at!r}, extensions=<{names}>)"


class TokenProvider(Protocol):
    """Where the client gets tokens from: the option ``sasl_oauth_token_provider``. Providers of aiokafka fit, too.

    The client calls ``token`` when it needs a token, and ahead of the end of the present one; never twice at once, and
    once for all clients of an event loop that have the same provider object. So a provider needs no cache. A plain
    function, as kafka-python's providers have it, runs in a thread. A provider may also have a method ``extensions()``,
    plain or async: the SASL extensions of tokens that are a str.
    """

    def token(self) -> Awaitable[str | OAuthToken] | str | OAuthToken:
        """Return the token as an OAuthToken, or as a str. A str that is a JWT says itself when it expires.

        A str that is no JWT does not say it: the client calls again before an authentication, where the last call is
        longer ago than ``sasl_login_refresh_min_period_seconds``.
        """
