"""Credentials: what a client authenticates with, as a fresh snapshot for each authentication."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Protocol

from ...config import SecurityConfig
from ...core.backoff import Chance
from ...core.sasl.mechanism import Mechanism
from ...errors import AuthenticationFailed, ConfigError
from .kerberos_tickets import KerberosLogin
from .passwords import PasswordLogin
from .token_login import TokenLogin


class _Login(Protocol):
    """The credentials of one mechanism. ``failure``: why a ``login`` that waits for the next call has to wait."""

    @property
    def failure(self) -> AuthenticationFailed | None: ...
    async def login(self, host: str) -> Mechanism: ...
    def current(self, host: str) -> Mechanism | None: ...
    def refused(self, mechanism: Mechanism) -> None: ...
    async def run(self) -> None: ...


class Credentials:
    """The credentials of one client, for the ``sasl_mechanism`` of its options.

    The client must run ``run`` in a task, as long as it lives: it asks for tokens ahead of time. Tokens are shared by
    the clients of an event loop that get them from the same place.
    """

    def __init__(
        self, config: SecurityConfig, *, random: Chance | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """``clock`` returns the Unix time in seconds. Raises ConfigError for options that name no credentials."""
        self._login = _login(config, random or Random(), clock)
        self._mechanism = config.sasl_mechanism or ""
        self._waiting = 0

    async def login(self, host: str = "") -> Mechanism:
        """Return a snapshot for one authentication with the broker that advertises ``host`` (Kerberos needs its name).

        The application's ``sasl_credentials_provider`` is called each time; a token is asked for if there is no valid
        one. Raises AuthenticationFailed where there are no credentials: a retriable one if the provider has failed in
        a way that may pass. A cancelled caller cancels no other call.
        """
        self._waiting += 1
        try:
            return await self._login.login(host)
        finally:
            self._waiting -= 1

    def unanswered(self, broker: str) -> AuthenticationFailed | None:
        """Return the error of a request whose time is over while a ``login`` waits for the source of the credentials.

        None where no ``login`` waits.
        """
        if not self._waiting:
            return None
        why = self._login.failure or f"what provides the credentials for {self._mechanism} has not answered yet"
        error = AuthenticationFailed(f"{broker}: not connected: {why}", mechanism=self._mechanism, retriable=True)
        error.__cause__ = self._login.failure
        return error

    def current(self, host: str = "") -> Mechanism | None:
        """Return a snapshot of what ``login`` had last, without any wait; any thread may call this.

        None: nothing was asked for yet, or the token's time is over.
        """
        return self._login.current(host)

    def refused(self, mechanism: Mechanism) -> None:
        """Note that a broker has refused what ``login`` returned: the next ``login`` asks for another token.

        The provider may have revoked the token, or changed its keys.
        """
        self._login.refused(mechanism)

    async def run(self) -> None:
        """Ask for tokens ahead of the end of the present one, until cancelled."""
        await self._login.run()

    @staticmethod
    def is_same_principal(before: Mechanism, now: Mechanism) -> bool:
        """Whether a connection that authenticated with ``before`` may authenticate again with ``now``.

        A broker closes a connection whose principal or mechanism changes (KIP-368); it must be replaced instead.
        """
        return (before.name, before.identity) == (now.name, now.identity)


def _login(config: SecurityConfig, random: Chance, clock: Callable[[], float]) -> _Login:
    mechanism = config.sasl_mechanism
    if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        return PasswordLogin(config)
    if mechanism in ("OAUTHBEARER", "AWS_MSK_IAM"):
        return TokenLogin(config, random=random, clock=clock)
    if mechanism == "GSSAPI":
        return KerberosLogin(config)
    raise ConfigError(f"sasl_mechanism={mechanism!r}: there are no credentials for it")
