"""PasswordLogin: user and password for PLAIN and SCRAM, from the options or from the application's provider."""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64encode
from collections.abc import Hashable
from typing import Any, Final, Literal, NamedTuple, cast
from weakref import WeakValueDictionary

from ...config import SecurityConfig
from ...core.sasl.mechanism import Mechanism
from ...core.sasl.plain import Plain
from ...core.sasl.scram import Scram, ScramHash, ScramKeys
from ...errors import AuthenticationFailed, ConfigError
from ...secret import Secret
from ..own_thread import OwnThread
from .application_code import call, called

#: How long one call of the provider may take, in seconds.
CALL_SECONDS: Final = 30.0
_NONCE_BYTES: Final = 18
_NAME: Final = "the credentials provider"


# The keys of clients that log in as the same user. They live as long as one of these clients.
_KEYS: Final[WeakValueDictionary[Hashable, ScramKeys]] = WeakValueDictionary()


class _Account(NamedTuple):
    user: str
    password: Secret


class PasswordLogin:
    """Makes the mechanisms PLAIN and SCRAM. ``sasl_credentials_provider`` is called for each authentication.

    So an application can replace user and password while the client runs: new connections, and those that authenticate
    again, use the new ones.
    """

    failure: Final = None  # a call that fails is the end of its login

    def __init__(self, config: SecurityConfig) -> None:
        self._mechanism = cast(Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], config.sasl_mechanism)
        self._tokenauth = config.sasl_tokenauth
        self._provider = config.sasl_credentials_provider
        self._keys = _shared_keys(config)
        self._thread = OwnThread("aiokc credentials provider")
        self._account: _Account | None = None
        self._calls: set[asyncio.Task[_Account]] = set()
        if self._provider is None:
            user, password = config.sasl_plain_username, config.sasl_plain_password
            if user is None or password is None:
                raise ConfigError(f"sasl_mechanism={self._mechanism!r} needs sasl_plain_username and _password")
            self._account = _Account(user, Secret(password))

    async def login(self, host: str) -> Mechanism:
        if self._provider is not None:
            self._account = await self._asked()
        assert self._account is not None
        return self._made(self._account)

    def current(self, host: str) -> Mechanism | None:
        account = self._account
        return None if account is None else self._made(account)

    def refused(self, mechanism: Mechanism) -> None:
        """There is nothing to forget: the provider is called for each authentication."""

    async def run(self) -> None:
        """Wait until cancelled: nothing is due ahead of time."""
        try:
            await asyncio.Event().wait()
        finally:
            self._thread.close()

    async def _asked(self) -> _Account:
        assert self._provider is not None
        known = () if self._account is None else (self._account.password,)
        asking = called(_NAME, self._mechanism, call(self._provider, self._thread, _account), known)
        # In a task of its own: a provider that does not let itself be cancelled must not hold up the end of the client.
        provider = asyncio.get_running_loop().create_task(asking, name=f"aiokc: {_NAME}")
        self._calls.add(provider)
        provider.add_done_callback(self._called)
        try:
            await asyncio.wait((provider,), timeout=CALL_SECONDS)
        finally:
            provider.cancel()
        if provider.done() and not provider.cancelled():
            return provider.result()
        why = "was cancelled" if provider.done() else f"has not returned within {CALL_SECONDS:.3g} s"
        raise AuthenticationFailed(f"{_NAME} {why}", mechanism=self._mechanism, retriable=True)

    def _called(self, provider: asyncio.Task[_Account]) -> None:
        self._calls.discard(provider)
        if not provider.cancelled():
            provider.exception()  # it may come when no caller waits any more, and asyncio would log it

    def _made(self, account: _Account) -> Mechanism:
        if self._mechanism == "PLAIN":
            return Plain(account.user, account.password)
        return Scram(
            cast(ScramHash, self._mechanism.removeprefix("SCRAM-")),
            account.user,
            account.password,
            nonce=b64encode(secrets.token_bytes(_NONCE_BYTES)).decode(),
            token_auth=self._tokenauth,
            keys=self._keys,
        )


def _account(result: Any) -> _Account | AuthenticationFailed:
    """Return the account. The error names types only: what the provider returned may be a password."""
    if isinstance(result, tuple | list) and len(result) == 2:
        user, password = result
        if isinstance(user, str) and isinstance(password, str | Secret):
            return _Account(user, Secret(password))
    return AuthenticationFailed(
        f"{_NAME} must return a user name and a password, (str, str or Secret): it returned {_type_of(result)}"
    )


def _type_of(result: object) -> str:
    if isinstance(result, tuple | list):
        return f"{type(result).__name__} of ({', '.join(type(item).__name__ for item in result[:5])})"
    return f"one of {type(result).__name__}"


def _shared_keys(config: SecurityConfig) -> ScramKeys:
    """Return the keys that clients of this process with the same account have derived: one pays for all of them.

    An account that a provider gives may change, and nothing says whether two providers give the same.
    """
    if config.sasl_credentials_provider is not None:
        return ScramKeys()
    account = (config.sasl_mechanism, config.sasl_plain_username, config.sasl_plain_password)
    return _KEYS.setdefault(account, ScramKeys())
