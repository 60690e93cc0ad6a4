"""Users, ACLs and certificates that change while a cluster runs, and the faults of logins and of TLS handshakes.

``cluster`` in the examples is a `Cluster` with a user "alice", a topic "events" and a group "billing". The faults of
logins hit the next ``times`` logins (None: all, until ``heal`` or ``cancel``); ``hits`` counts them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from ...error_codes import ErrorCode
from ..security.accounts import DelegationToken, Passwords
from ..security.authorizer import CLUSTER_NAME, Acl, Resource, ResourceType
from ..security.login_faults import LoginFault
from .hosting import on_loop
from .running_brokers import RunningBrokers


class SecuredBrokers(RunningBrokers):
    """The brokers, with what a test changes about their security."""

    # Users

    @on_loop
    def set_password(self, user: str, password: Passwords) -> None:
        """Add a user, or change the password, for logins from now on.

        cluster.set_password("alice", "another")  # rotated: my consumer must ask its provider again
        """
        self._state.security.users.set_password(user, password)

    @on_loop
    def remove_user(self, user: str) -> None:
        """Remove a user. Connections that are authenticated go on."""
        self._state.security.users.remove(user)

    @on_loop
    def create_delegation_token(self, owner: str, *, lifetime: float = 86_400.0) -> DelegationToken:
        """Create a delegation token (KIP-48), which ends in ``lifetime`` seconds.

        A client uses ``token_id`` as its user and ``hmac`` as its password, with sasl_tokenauth.
        """
        expires_ms = self._state.now_ms() + int(lifetime * 1000)
        return self._state.security.users.create_token(owner, expires_ms)

    @on_loop
    def expire_delegation_token(self, token_id: str) -> None:
        """Remove a delegation token. Connections that are authenticated go on to the end of their session."""
        self._state.security.users.expire_token(token_id)

    # ACLs

    @on_loop
    def grant(self, acl: Acl) -> None:
        """Add an entry; one that allows something also ends what ``revoke`` took from its user there.

        cluster.grant(Acl("alice", "Read", topic="events"))
        """
        self._state.security.acls.grant(acl)

    @on_loop
    def withdraw(self, acl: Acl) -> None:
        """Remove an entry. Raises LookupError where there is none like it."""
        self._state.security.acls.withdraw(acl)

    @on_loop
    def revoke(
        self,
        user: str,
        topic: str | None = None,
        *,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Take everything on a topic, a group or a transactional id from a user, however it was granted.

        Without any of them it is the cluster. ``grant`` gives it back.

            cluster.revoke("alice", "events")
            with pytest.raises(AuthorizationFailed):
                await consumer.getmany()
        """
        named: list[tuple[ResourceType, str | None]] = [
            ("topic", topic),
            ("group", group),
            ("transactional_id", transactional_id),
        ]
        resources = [Resource(kind, name) for kind, name in named if name is not None]
        for resource in resources or [Resource("cluster", CLUSTER_NAME)]:
            self._state.security.acls.revoke(user, resource)

    # Faults of logins

    @on_loop
    def refuse_login(
        self,
        code: int = ErrorCode.SASL_AUTHENTICATION_FAILED,
        text: str = "the test refuses this login",
        *,
        times: int | None = None,
        user: str | None = None,
    ) -> LoginFault:
        """Refuse logins (of one user) with this error, though their credentials are right.

        cluster.refuse_login(text="the directory is away", times=1)
        """
        return self._state.security.faults.add("refuse_login", (code, text), times, user)

    @on_loop
    def slow_login(self, seconds: float, *, times: int | None = None) -> LoginFault:
        """Answer each SaslAuthenticate ``seconds`` later.

        cluster.slow_login(2.0)  # a directory behind the broker is slow
        """
        return self._state.security.faults.add("slow_login", seconds, times)

    @on_loop
    def close_after_handshake(self, *, times: int | None = None) -> LoginFault:
        """Answer SaslHandshake, and close the connection.

        cluster.close_after_handshake(times=3)
        """
        return self._state.security.faults.add("close_after_handshake", None, times)

    @on_loop
    def wrong_server_signature(self, *, times: int | None = None) -> LoginFault:
        """Prove nothing: the last message of SCRAM has a signature of a broker that does not know the password.

        cluster.wrong_server_signature()  # a client that goes on trusts anybody
        """
        return self._state.security.faults.add("wrong_server_signature", None, times)

    @on_loop
    def iterations(self, iterations: int | str, *, times: int | None = None) -> LoginFault:
        """Announce this number of iterations in SCRAM. Up to 100,000 the login succeeds if the client accepts it.

        cluster.iterations(1)  # so few let a listener guess the password
        cluster.iterations(2**31 - 1)  # so many keep the client busy for an hour
        """
        return self._state.security.faults.add("iterations", iterations, times)

    @on_loop
    def foreign_nonce(
        self, kind: Literal["other", "equal", "shorter"] = "other", *, times: int | None = None
    ) -> LoginFault:
        """Answer in SCRAM with a nonce that does not continue the client's: another, the same, or a shorter one.

        cluster.foreign_nonce()  # the answer to another client, replayed
        """
        return self._state.security.faults.add("foreign_nonce", kind, times)

    @on_loop
    def oauth_error(self, answer: str | Mapping[str, Any], *, times: int | None = None) -> LoginFault:
        """Refuse tokens with this JSON (a text is sent as it is).

        cluster.oauth_error({"status": "insufficient_scope", "scope": "kafka"})
        """
        text = answer if isinstance(answer, str) else json.dumps(dict(answer))
        return self._state.security.faults.add("oauth_error", text, times)

    @on_loop
    def illegal_sasl_state(self, *, times: int | None = None) -> LoginFault:
        """Answer SaslHandshake with ILLEGAL_SASL_STATE; a connection that is authenticated stays usable.

        cluster.illegal_sasl_state(times=1)  # as at a re-authentication less than 1 s after the last one
        """
        return self._state.security.faults.add("illegal_sasl_state", None, times)

    # Sessions

    @on_loop
    def session(self, milliseconds: int) -> None:
        """Give the logins from now on sessions of this length, at all listeners; 0: without an end.

        cluster.session(2000)
        """
        self._state.security.session_ms = milliseconds

    @on_loop
    def expire_sessions(self) -> None:
        """End the sessions of all connections now: the next request but SaslHandshake closes its connection.

        cluster.expire_sessions()  # no record is lost or read twice, and the group does not rebalance
        """
        self.demand_reauth(0.0)

    @on_loop
    def demand_reauth(self, now: float = 0.0) -> None:
        """End the sessions of all connections ``now`` seconds from now, whatever lifetime their clients were told.

        Until then a client may authenticate again, also where its session had no end.

            cluster.demand_reauth(1.0)
        """
        ends = self._state.now() + now
        for broker in self._brokers.values():
            for connection in broker.connections:
                connection.authenticator.expire(ends)

    # TLS

    @on_loop
    def swap_certificate(self, pem: str, *, listener: str | None = None) -> None:
        """Use another certificate (its private key and its chain) for new connections, at one TLS listener or at all.

        Raises ssl.SSLError where ``pem`` is no key and its certificate; the old one then stays.

            cluster.swap_certificate(certificates.expired())
        """
        self._state.security.change_tls(pem, None, listener)

    @on_loop
    def require_client_certificate(self, *, listener: str | None = None) -> None:
        """Require a client certificate from new connections, at one TLS listener or at all.

        cluster.require_client_certificate()  # with TLS 1.3 a client hears of it when it reads for the first time
        """
        self._state.security.change_tls(None, "required", listener)

    @on_loop
    def half_handshake(self, *, times: int | None = None) -> LoginFault:
        """Send half of the first answer of the TLS handshake, and nothing more.

        cluster.half_handshake(times=1)  # a broker dies while it greets
        """
        return self._state.security.faults.add("half_handshake", None, times)

    @on_loop
    def heal(self) -> None:
        """End all faults: those of logins and sessions too. Revoked ACLs, passwords and certificates stay."""
        self._state.security.faults.clear()
        self._state.security.session_ms = None
        super().heal()
