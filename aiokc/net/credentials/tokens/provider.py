"""ProviderAsker: asks the application's token provider, and reads what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ....errors import AuthenticationFailed, ConfigError
from ....secret import Secret
from ....token_provider import OAuthToken
from ...own_thread import OwnThread
from ..application_code import call, called
from .checked_token import checked

_MECHANISM: Final = "OAUTHBEARER"
_OPTION: Final = "sasl_oauth_token_provider"

T = TypeVar("T")


class ProviderAsker:
    """Asks a TokenProvider; see there for what it may look like."""

    def __init__(self, provider: Any) -> None:
        """Raises ConfigError for what is no provider, without showing it: it may be a token."""
        if isinstance(provider, type):
            raise ConfigError(f"{_OPTION} is the class {provider.__name__}: give an instance of it")
        if not callable(getattr(provider, "token", None)):
            raise ConfigError(
                f"{_OPTION} must be an object with a method token(), not one of {type(provider).__name__}"
            )
        self.name = f"the token provider {type(provider).__name__}"
        self._provider = provider
        self._known: tuple[Secret, ...] = ()  # the last token
        self._thread = _NotedThread("aiokc token provider")

    @property
    def in_thread(self) -> bool:
        """Not while what a plain function has returned is awaited: that can be cancelled."""
        return self._thread.waiting > 0

    async def ask(self) -> OAuthToken:
        token = await called(self.name, _MECHANISM, self._ask(), self._known)
        self._known = (token.value,)
        return token

    def close(self) -> None:
        self._thread.close()

    async def _ask(self) -> OAuthToken:
        token = await call(self._provider.token, self._thread, self._read)
        extensions = getattr(self._provider, "extensions", None)
        if extensions is None or token.extensions:
            return token
        found = await call(extensions, self._thread, self._read_extensions)
        return OAuthToken(token.value, token.expires_at, found)

    def _read(self, result: Any) -> OAuthToken | AuthenticationFailed:
        """Return the token. Errors name types only: what the provider returned may be a token."""
        token = OAuthToken(result) if isinstance(result, str | Secret) else result
        if not isinstance(token, OAuthToken):
            return AuthenticationFailed(
                f"{self.name} returned one of {type(result).__name__}: token() must return a str or an aiokc.OAuthToken"
            )
        return checked(token, self.name, retriable=False)

    def _read_extensions(self, result: Any) -> Mapping[str, str] | AuthenticationFailed:
        if isinstance(result, Mapping) and all(isinstance(text, str) for item in result.items() for text in item):
            return result
        return AuthenticationFailed(f"{self.name}: extensions() must return a dict of str to str")


class _NotedThread(OwnThread):
    """Knows how many callers wait for a function of theirs."""

    waiting = 0

    async def run(self, function: Callable[[], T]) -> T:
        self.waiting += 1
        try:
            return await super().run(function)
        finally:
            self.waiting -= 1
