"""``SecurityState``: what all brokers of a cluster share about security: users, ACLs, rules for tokens, faults."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from random import Random

from .accounts import Passwords, Users
from .authorizer import Acl, Acls
from .certificate_authority import Certificates
from .jwt import TokenRules
from .listener import Listener
from .login_faults import LoginFaults


class SecurityState:
    """The security of one cluster. ``session_ms`` is None, or replaces that of all listeners."""

    def __init__(
        self,
        listeners: Mapping[str, Listener],
        *,
        certificates: Certificates | None,
        passwords: Mapping[str, Passwords],
        token_rules: TokenRules,
        acls: Iterable[Acl] | None,
        super_users: Collection[str],
        random: Random,
        now_ms: Callable[[], int],
    ) -> None:
        self.listeners = dict(listeners)
        self.users = Users(passwords, random)
        self.token_rules = token_rules
        self.acls = Acls(acls, super_users)
        self.faults = LoginFaults()
        self.session_ms: int | None = None
        self.random = random
        self.now_ms = now_ms
        self._certificates = certificates
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self, listener: str) -> ssl.SSLContext:
        """Return the TLS context of a listener for the next connection."""
        if listener not in self._contexts:
            assert self._certificates is not None  # `listeners_of` has checked it
            one = self.listeners[listener]
            self._contexts[listener] = self._certificates.server_context(one.certificate, one.client_auth)
        return self._contexts[listener]

    def change_tls(self, pem: str | None, client_auth: str | None, listener: str | None) -> None:
        """Change the certificate, or who needs one, for new connections to one TLS listener (None: to all).

        Raises ValueError where there is no such listener, ssl.SSLError where ``pem`` is no key and its certificate.
        """
        names = [name for name, one in self.listeners.items() if one.uses_tls and listener in (None, name)]
        if not names or self._certificates is None:
            raise ValueError(f"the cluster has no TLS listener{f' {listener!r}' if listener else ''}")
        for name in names:
            one = self.listeners[name]
            changed = replace(
                one,
                certificate=pem or one.certificate,
                client_auth=client_auth or one.client_auth,  # type: ignore[arg-type]
            )
            self._contexts[name] = self._certificates.server_context(changed.certificate, changed.client_auth)
            self.listeners[name] = changed
