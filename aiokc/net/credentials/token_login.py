"""TokenLogin: the mechanisms that send a token, with a source of tokens for the options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, NamedTuple

from ...config import SecurityConfig
from ...core.backoff import Chance
from ...core.sasl.mechanism import Mechanism
from ...core.sasl.oauthbearer import OAuthBearer
from ...errors import AuthenticationFailed
from ...token_provider import OAuthToken
from .tokens.refresh_window import RefreshWindow
from .tokens.shared_sources import shared_source
from .tokens.token_source import CALL_SECONDS, Asker, TokenSource

# A file that another program replaces is read before each authentication, though not once for each of many together.
_FILE_SECONDS: Final = 1.0


class _Origin(NamedTuple):
    """Where the tokens come from: equal keys mean the same tokens."""

    key: Hashable
    make: Callable[[], Asker]
    call_seconds: float = CALL_SECONDS
    max_age: float | None = None
    identity: str = ""


class TokenLogin:
    """Makes the mechanism OAUTHBEARER with tokens of the application's provider, of OIDC, of a file, or for AWS."""

    def __init__(self, config: SecurityConfig, *, random: Chance, clock: Callable[[], float]) -> None:
        self._window = RefreshWindow.of(config)
        self._pauses = config.sasl_login_retry_backoff_ms / 1e3, config.sasl_login_retry_backoff_max_ms / 1e3
        self._extensions = dict(config.sasl_oauthbearer_extensions or {})
        self._random = random
        self._clock = clock
        self._origin = _origin(config, clock)
        self._source: TokenSource | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def login(self, host: str) -> Mechanism:
        return self._made(await self._shared().token())

    def current(self, host: str) -> Mechanism | None:
        token = None if self._source is None else self._source.current()
        return None if token is None else self._made(token)

    @property
    def failure(self) -> AuthenticationFailed | None:
        return None if self._source is None else self._source.failure

    def refused(self, mechanism: Mechanism) -> None:
        token = None if self._source is None else self._source.current()
        if self._source is not None and token is not None and token.value in mechanism.secrets:
            self._source.refused(token)

    async def run(self) -> None:
        await self._shared().keep_fresh()

    def _shared(self) -> TokenSource:
        loop = asyncio.get_running_loop()
        if self._source is None or self._loop is not loop:
            key = (self._origin.key, self._window, self._pauses, self._clock)
            self._source, self._loop = shared_source(key, self._new_source), loop
        return self._source

    def _new_source(self) -> TokenSource:
        return TokenSource(
            self._origin.make(),
            window=self._window,
            random=self._random,
            pauses=self._pauses,
            call_seconds=self._origin.call_seconds,
            max_age=self._origin.max_age,
            clock=self._clock,
        )

    def _made(self, token: OAuthToken) -> Mechanism:
        return OAuthBearer(
            token.value,
            {**self._extensions, **token.extensions},
            now=self._clock,
            expires_at=token.expires_at,
            identity=self._origin.identity,
        )


def _origin(config: SecurityConfig, clock: Callable[[], float]) -> _Origin:
    """Return the origin that the options name. Raises ConfigError.

    It imports what this origin needs, and nothing for the others: applications make their clients in the event loop,
    which importing everything would hold for some 10 ms.
    """
    if config.sasl_mechanism == "AWS_MSK_IAM":
        return _aws(config, clock)
    if config.sasl_oauth_token_provider is not None:
        return _provider(config.sasl_oauth_token_provider)
    return _token_file(config) or _oidc(config, clock)


def _aws(config: SecurityConfig, clock: Callable[[], float]) -> _Origin:
    from .tokens.aws_credentials import AwsAsker, AwsOptions

    options = AwsOptions.of(config)
    return _Origin(options, partial(AwsAsker, options, clock), identity=options.identity)


def _provider(provider: object) -> _Origin:
    from .tokens.provider import ProviderAsker

    ProviderAsker(provider)  # now, not when the first token is needed: it raises ConfigError
    return _Origin(("provider", id(provider)), partial(ProviderAsker, provider))


def _token_file(config: SecurityConfig) -> _Origin | None:
    from .tokens.token_file import TokenFileAsker, token_file_path

    path = token_file_path(config)
    return None if path is None else _Origin(("file", path), partial(TokenFileAsker, path), max_age=_FILE_SECONDS)


def _oidc(config: SecurityConfig, clock: Callable[[], float]) -> _Origin:
    from .tokens.oidc import OidcAsker, OidcOptions

    options = OidcOptions.of(config)
    return _Origin(options, partial(OidcAsker, options, clock), call_seconds=options.call_seconds)
