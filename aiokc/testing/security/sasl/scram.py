"""The server's half of SCRAM (RFC 5802, KIP-84, delegation tokens of KIP-48), as Kafka's ScramSaslServer."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

from ..accounts import HASHES, ITERATIONS, ScramCredential, Users
from ..login_faults import LoginFaults
from .refused_login import LoginRefused, WrongCredentials

# Kafka takes user names in ASCII only.
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]*)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramServer:
    """One login by SCRAM. ``nonce`` is the server's own; ``now_ms`` tells whether a delegation token has ended."""

    def __init__(
        self, mechanism: str, users: Users, faults: LoginFaults, nonce: str, now_ms: Callable[[], int]
    ) -> None:
        self.user: str | None = None
        self.is_complete = False
        self.expires_ms: int | None = None
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._users = users
        self._faults = faults
        self._nonce = nonce
        self._now_ms = now_ms
        self._credential: ScramCredential | None = None
        self._header = self._first = self._whole_nonce = ""

    def respond(self, message: bytes) -> bytes:
        """Answer the client's first message, then its final one. Raises LoginRefused."""
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            raise WrongCredentials("a SCRAM message is UTF-8") from error
        return self._answer_first(text) if self._credential is None else self._answer_final(text)

    def _answer_first(self, text: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            raise WrongCredentials("this is no first message of SCRAM")
        user = found["user"].replace("=2C", ",").replace("=3D", "=")
        fault = self._faults.take("iterations", user)
        announced = ITERATIONS if fault is None else fault.value
        iterations = announced if isinstance(announced, int) else ITERATIONS
        extensions = dict(one.split("=", 1) for one in found["extensions"].split(",")[1:])
        credential = self._find(user, iterations, is_token=extensions.get("tokenauth", "").lower() == "true")
        if found["authzid"] and found["authzid"] != found["user"]:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        foreign = self._faults.take("foreign_nonce", user)
        self._whole_nonce = found["nonce"] + self._nonce
        if foreign is not None:
            self._whole_nonce = _foreign(foreign.value, found["nonce"], self._nonce)
        self._credential, self._header = credential, found["header"]
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._whole_nonce},s={salt},i={announced}"
        self._first = f"{found['bare']},{answer}"
        return answer.encode()

    def _find(self, user: str, iterations: int, *, is_token: bool) -> ScramCredential:
        """Find the user or the delegation token, and know from now on which user logs in."""
        if is_token:
            token = self._users.token(user, self._now_ms())
            if token is None:
                raise WrongCredentials(f"Token Authentication failed: Invalid tokenId : {user}")
            self.user, self.expires_ms = token.owner, token.expires_ms
            return self._users.scram_of_token(self._mechanism, token, iterations)
        credential = self._users.scram(self._mechanism, user, iterations)
        if credential is None:
            raise WrongCredentials("Authentication failed: Invalid user credentials")
        self.user = user
        return credential

    def _answer_final(self, text: str) -> bytes:
        assert self._credential is not None
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            raise WrongCredentials("this is no final message of SCRAM")
        if found["nonce"] != self._whole_nonce:
            raise WrongCredentials("Invalid client nonce in the final client message.")
        if found["binding"] != base64.b64encode(self._header.encode()).decode():
            raise WrongCredentials("the channel binding is not that of the first message")
        signed = f"{self._first},{found['without_proof']}".encode()
        signature = hmac.digest(self._credential.stored_key, signed, self._hash)
        proof = _decoded(found["proof"])
        client_key = bytes(ours ^ theirs for ours, theirs in zip(signature, proof, strict=False))
        if len(proof) != len(signature) or not hmac.compare_digest(
            hashlib.new(self._hash, client_key).digest(), self._credential.stored_key
        ):
            raise WrongCredentials("Invalid client credentials")
        server_signature = hmac.digest(self._credential.server_key, signed, self._hash)
        if self._faults.take("wrong_server_signature", self.user) is not None:
            server_signature = bytes(byte ^ 0xFF for byte in server_signature)
        self.is_complete = True
        return b"v=" + base64.b64encode(server_signature)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise WrongCredentials("the proof is no base64") from error


def _foreign(kind: str, client: str, server: str) -> str:
    """Return a nonce that is another's, or only the client's own, or a part of that."""
    return {"other": server + server, "equal": client, "shorter": client[:-1]}[kind]
