"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677, KIP-84): both sides prove that they know the password."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Generator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ...errors import AuthenticationFailed
from ...secret import Secret
from .broker_text import quoted
from .mechanism import Conversation, HiddenBytes, Work, utf8
from .scram_messages import ServerFirst, is_nonce, read_server_final, read_server_first, saslname

ScramHash: TypeAlias = Literal["SHA-256", "SHA-512"]

_ALGORITHMS: Final[dict[ScramHash, str]] = {"SHA-256": "sha256", "SHA-512": "sha512"}
_MOST_KEYS: Final = 8


class _Keys(NamedTuple):
    """What is as good as the password at one broker, or at all with the same salt."""

    client_key: HiddenBytes
    server_key: HiddenBytes


class ScramKeys:
    """The keys that were derived last, so that the connections to all brokers pay for one derivation.

    The event loop and other threads use it together: each change puts a new tuple in the old one's place. Passwords are
    not kept.
    """

    def __init__(self) -> None:
        self._entries: tuple[tuple[object, _Keys], ...] = ()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: object) -> _Keys | None:
        """Return the keys put under ``name``, if they are among the last ones used."""
        for entry in self._entries:
            if entry[0] == name:
                self._put_first(entry)
                return entry[1]
        return None

    def put(self, name: object, keys: _Keys) -> None:
        """Keep ``keys`` under ``name``, and forget those that were not used for longest."""
        self._put_first((name, keys))

    def _put_first(self, first: tuple[object, _Keys]) -> None:
        others = (entry for entry in self._entries if entry[0] != first[0])
        self._entries = (first, *others)[:_MOST_KEYS]


class Scram:
    """The mechanism SCRAM with one of its hashes.

    ``nonce``: printable ASCII without commas, from a source that cannot be guessed, used once. ``token_auth``: the user
    name is the id of a delegation token, and the password is its HMAC in base64 (KIP-48). The password is hashed as it
    is: Kafka applies no SASLprep, so a normalized one would not match.
    """

    expires_at: Final = None

    def __init__(
        self,
        hash_name: ScramHash,
        username: str,
        password: Secret,
        *,
        nonce: str,
        token_auth: bool = False,
        keys: ScramKeys,
    ) -> None:
        self.name = f"SCRAM-{hash_name}"
        self.identity = f"delegation token {username!r}" if token_auth else f"user {username!r}"
        self.secrets: Sequence[Secret] = (password,)
        self._algorithm = _ALGORITHMS[hash_name]
        self._username = username
        self._password = password
        self._nonce = nonce
        self._token_auth = token_auth
        self._keys = keys

    def conversation(self) -> Conversation:
        if not is_nonce(self._nonce):
            raise AuthenticationFailed("the client's nonce is not printable ASCII without commas")
        user, password = utf8(saslname(self._username), "user name"), utf8(self._password, "password")
        extension = b",tokenauth=true" if self._token_auth else b""
        client_first = b"n=" + user + b",r=" + self._nonce.encode() + extension
        # "n,,": no channel binding, and the user itself as the one to act for.
        challenge = read_server_first(bytes((yield b"n,," + client_first)), self._nonce)
        keys = yield from self._derived(password, challenge)
        without_proof = b"c=biws,r=" + challenge.nonce.encode()  # biws: "n,," in base64
        signed = b",".join((client_first, challenge.text, without_proof))
        proof = b64encode(self._proof(keys.client_key, signed))
        final = read_server_final(bytes((yield without_proof + b",p=" + proof)))
        if final.error:
            raise AuthenticationFailed(f"the broker answered {quoted(final.error, self.secrets)}")
        # Without this a server that knows nothing could pass for the broker.
        if not hmac.compare_digest(final.signature, self._hmac(keys.server_key, signed)):
            raise AuthenticationFailed(
                "the broker's signature is wrong: it does not know the password. Is it the broker that you mean?"
            )

    def advice(self) -> str:
        if self._token_auth:
            return "the delegation token may be unknown, expired, or its HMAC wrong"
        return "an unknown user and a wrong password look the same; SCRAM users exist per hash"

    def _derived(self, password: bytes, challenge: ServerFirst) -> Generator[Work, Any, _Keys]:
        salt, iterations, known = challenge.salt, challenge.iterations, self._keys
        # The keys of a rotated password must not be found. The digest costs as much as one of the iterations.
        name = (self.name, self._username, self._hmac(salt, password), salt, iterations)

        def derive() -> _Keys:
            # Connections to several brokers may have waited for the thread together: the first one pays.
            keys = known.get(name)
            if keys is None:
                salted = hashlib.pbkdf2_hmac(self._algorithm, password, salt, iterations)
                client_key, server_key = self._hmac(salted, b"Client Key"), self._hmac(salted, b"Server Key")
                keys = _Keys(HiddenBytes(client_key), HiddenBytes(server_key))
                known.put(name, keys)
            return keys

        keys: _Keys = known.get(name) or (yield Work(derive))
        return keys

    def _proof(self, client_key: bytes, signed: bytes) -> bytes:
        signature = self._hmac(hashlib.new(self._algorithm, client_key).digest(), signed)
        return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._algorithm)
