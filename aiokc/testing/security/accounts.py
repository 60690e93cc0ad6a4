"""``Users``: passwords, SCRAM credentials and delegation tokens, which tests can change while the cluster runs."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from .listener import MECHANISMS

#: A password for all mechanisms, or one for each of some: SCRAM users exist per hash.
Passwords: TypeAlias = str | Mapping[str, str]

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS: Final = 4096
#: Announced iterations above this are never computed: a client that answers them is refused.
_MOST_ITERATIONS: Final = 100_000
_SALT_BYTES: Final = 24


@dataclass(frozen=True)
class ScramCredential:
    """What a broker keeps of a password (RFC 5802)."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True)
class DelegationToken:
    """A delegation token (KIP-48): a client gives ``token_id`` as its user and ``hmac`` as its password, by SCRAM."""

    token_id: str
    hmac: str = field(repr=False)
    owner: str
    expires_ms: int


class Users:
    """The users of a cluster by name. ``random`` draws salts and tokens."""

    def __init__(self, passwords: Mapping[str, Passwords], random: Random) -> None:
        self._passwords: dict[str, dict[str, str]] = {}
        self._random = random
        self._tokens: dict[str, DelegationToken] = {}
        self._salts: dict[tuple[str, str], bytes] = {}
        self._credentials: dict[tuple[str, str, str, int], ScramCredential] = {}
        for user, password in passwords.items():
            self.set_password(user, password)

    def set_password(self, user: str, password: Passwords) -> None:
        """Add a user, or change the password."""
        if isinstance(password, str):
            self._passwords[user] = dict.fromkeys(MECHANISMS, password)
            return
        unknown = [mechanism for mechanism in password if mechanism not in MECHANISMS]
        if unknown:
            raise ValueError(f"user {user!r} has a password for {unknown[0]!r}: there are {', '.join(MECHANISMS)}")
        self._passwords[user] = dict(password)

    def remove(self, user: str) -> None:
        """Remove a user; no error if there is none."""
        self._passwords.pop(user, None)

    def has_password(self, user: str, password: str) -> bool:
        """Return whether this is the user's password for PLAIN."""
        known = self._passwords.get(user, {}).get("PLAIN")
        return known is not None and hmac.compare_digest(known.encode(), password.encode())

    # SCRAM

    def scram(self, mechanism: str, user: str, iterations: int = ITERATIONS) -> ScramCredential | None:
        """Return the credential of a user for this mechanism, None if there is none."""
        password = self._passwords.get(user, {}).get(mechanism)
        return None if password is None else self._credential(mechanism, user, password, iterations)

    def scram_of_token(self, mechanism: str, token: DelegationToken, iterations: int = ITERATIONS) -> ScramCredential:
        """Return the credential of a delegation token."""
        return self._credential(mechanism, token.token_id, token.hmac, iterations)

    def _credential(self, mechanism: str, user: str, password: str, iterations: int) -> ScramCredential:
        iterations = iterations if 0 < iterations <= _MOST_ITERATIONS else ITERATIONS
        key = (mechanism, user, password, iterations)
        if key not in self._credentials:
            salt = self._salts.setdefault((mechanism, user), self._random.randbytes(_SALT_BYTES))
            name = HASHES[mechanism]
            salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
            client_key = hmac.digest(salted, b"Client Key", name)
            self._credentials[key] = ScramCredential(
                salt, iterations, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name)
            )
        return self._credentials[key]

    # Delegation tokens

    def create_token(self, owner: str, expires_ms: int) -> DelegationToken:
        """Create a delegation token of a user, which ends at ``expires_ms`` (ms since the epoch)."""
        token_id = base64.urlsafe_b64encode(self._random.randbytes(16)).rstrip(b"=").decode()
        secret = base64.b64encode(self._random.randbytes(64)).decode()
        self._tokens[token_id] = DelegationToken(token_id, secret, owner, expires_ms)
        return self._tokens[token_id]

    def expire_token(self, token_id: str) -> None:
        """Remove a delegation token; no error if there is none."""
        self._tokens.pop(token_id, None)

    def token(self, token_id: str, now_ms: int) -> DelegationToken | None:
        """Return a delegation token that has not ended."""
        token = self._tokens.get(token_id)
        return token if token is not None and token.expires_ms > now_ms else None
