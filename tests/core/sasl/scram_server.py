"""A SCRAM server as RFC 5802 describes it, to the letter and slowly. It shares no code with the client."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field


@dataclass
class ScramServer:
    """``digest``: hashlib's name. ``users``: passwords by user name, or HMACs by the id of a delegation token."""

    digest: str
    users: dict[str, str]
    salt: bytes = b"\x00salt\xff"
    iterations: int = 4096
    own_nonce: str = "server%nonce"
    tokens: bool = False
    said: list[str] = field(default_factory=list)
    client_nonce: str = ""

    def first(self, message: bytes) -> bytes:
        """Read the client's first message, and return the challenge."""
        text = message.decode()
        assert text.startswith("n,,"), text
        bare = text[3:]
        attributes = bare.split(",")
        assert attributes[0][:2] == "n=", text
        assert attributes[1][:2] == "r=", text
        assert attributes[2:] == (["tokenauth=true"] if self.tokens else []), text
        name = attributes[0][2:]
        assert "=" not in name.replace("=2C", "").replace("=3D", ""), text
        self.user = name.replace("=2C", ",").replace("=3D", "=")
        self.client_nonce = attributes[1][2:]
        self.nonce = self.client_nonce + self.own_nonce
        challenge = f"r={self.nonce},s={base64.b64encode(self.salt).decode()},i={self.iterations}"
        self.said = [bare, challenge]
        return challenge.encode()

    def final(self, message: bytes) -> bytes:
        """Read the client's proof, and return the server's. Raises PermissionError if the client proves nothing."""
        text = message.decode()
        without_proof, _, proof = text.rpartition(",p=")
        assert without_proof == f"c={base64.b64encode(b'n,,').decode()},r={self.nonce}", text
        signed = ",".join([*self.said, without_proof]).encode()
        salted = self._hi(self.users[self.user].encode())
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self.digest, client_key).digest(), signed)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if base64.b64decode(proof) != expected:
            raise PermissionError(self.user)
        return b"v=" + base64.b64encode(self._hmac(self._hmac(salted, b"Server Key"), signed))

    def _hi(self, password: bytes) -> bytes:
        block = self._hmac(password, self.salt + b"\0\0\0\1")
        result = int.from_bytes(block, "big")
        for _ in range(self.iterations - 1):
            block = self._hmac(password, block)
            result ^= int.from_bytes(block, "big")
        return result.to_bytes(len(block), "big")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.digest).digest()
