"""Logs an `Exchange` in: PLAIN, and SCRAM just far enough to see that a broker knows a password already."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
from typing import Final

from aiokc.error_codes import ErrorCode

from ..exchange import Exchange, string
from ..jars import LocalKafkaError

_HANDSHAKE: Final = (17, 1)  # api key, version
_AUTHENTICATE: Final = (36, 0)
#: The name of each SCRAM mechanism's hash.
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class LoginRefused(LocalKafkaError):
    """The broker refused a mechanism, or what was given for it."""


def plain(exchange: Exchange, user: str, password: str) -> None:
    """Log in with PLAIN. Raises LoginRefused."""
    _choose(exchange, "PLAIN")
    _send(exchange, f"\0{user}\0{password}".encode())


def scram(exchange: Exchange, mechanism: str, user: str, password: str, *, token: bool = False) -> None:
    """Log in with SCRAM; a `token` is a delegation token's id and HMAC. Raises LoginRefused.

    The broker's own proof is not checked: this asks whether it knows the password.
    """
    _choose(exchange, mechanism)
    first = f"n={user},r={secrets.token_hex(16)}" + (",tokenauth=true" if token else "")
    challenge = _send(exchange, f"n,,{first}".encode()).decode()
    fields = dict(field.split("=", 1) for field in challenge.split(","))
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    final = f"c=biws,r={fields['r']}"
    signature = hmac.digest(hashlib.new(name, client_key).digest(), f"{first},{challenge},{final}".encode(), name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    _send(exchange, f"{final},p={base64.b64encode(proof).decode()}".encode())


def _choose(exchange: Exchange, mechanism: str) -> None:
    code = exchange.ask(*_HANDSHAKE, string(mechanism)).int16()
    if code != ErrorCode.NONE:
        raise LoginRefused(f"SaslHandshake with {mechanism}: error {code}")


def _send(exchange: Exchange, token: bytes) -> bytes:
    answer = exchange.ask(*_AUTHENTICATE, struct.pack(">i", len(token)) + token)
    code, message = answer.int16(), answer.string()
    if code != ErrorCode.NONE:
        raise LoginRefused(f"SaslAuthenticate: error {code}, {message}")
    return answer.data()
