"""SCRAM users and delegation tokens: AlterUserScramCredentials (KIP-554) and CreateDelegationToken (KIP-48)."""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from dataclasses import dataclass, field
from typing import Final

from aiokc.error_codes import ErrorCode
from aiokc.errors import broker_error

from ..exchange import Exchange, compact, compact_length
from . import login

_CREATE_TOKEN: Final = (38, 1)  # api key, version
_ALTER_SCRAM: Final = (51, 0)
_SCRAM_CODES: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_SECONDS: Final = 30.0


@dataclass(frozen=True)
class DelegationToken:
    """What a client logs in with by SCRAM and ``sasl_tokenauth``: `id` is the user name, `hmac` the password."""

    id: str
    hmac: str = field(repr=False)


def set_scram_password(address: str, mechanism: str, user: str, password: str, iterations: int = 4096) -> None:
    """Create the user, or change its password, for one mechanism. The brokers know it a moment later."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac(login.HASHES[mechanism], password.encode(), salt, iterations)
    entry = compact(user.encode()) + struct.pack(">bi", _SCRAM_CODES[mechanism], iterations)
    _alter_scram(address, compact_length(0) + compact_length(1) + entry + compact(salt) + compact(salted) + b"\0")


def delete_scram_user(address: str, mechanism: str, user: str) -> None:
    """Delete the user of one mechanism. The brokers refuse it a moment later."""
    entry = compact(user.encode()) + struct.pack(">b", _SCRAM_CODES[mechanism]) + b"\0"
    _alter_scram(address, compact_length(1) + entry + compact_length(0))


def _alter_scram(address: str, body: bytes) -> None:
    with Exchange(address, timeout=_SECONDS) as exchange:
        answer = exchange.ask(*_ALTER_SCRAM, body + b"\0", flexible=True)
    answer.int32()  # throttle time
    for _ in range(answer.compact_length()):
        user, code, message = answer.compact_string(), answer.int16(), answer.compact_string()
        if code != ErrorCode.NONE:
            raise broker_error(code, f"SCRAM user {user}: {message}")
        answer.int8()  # no tagged fields


def knows_scram(address: str, mechanism: str, user: str, password: str, *, token: bool = False) -> bool:
    """Return whether the SASL listener at `address` takes this password, or delegation token, now."""
    with Exchange(address, timeout=_SECONDS) as exchange:
        try:
            login.scram(exchange, mechanism, user, password, token=token)
        except login.LoginRefused:
            return False
    return True


def create_token(address: str, user: str, password: str, lifetime_ms: int) -> DelegationToken:
    """Log in at the SASL listener with PLAIN, and create a delegation token of that user (-1: the longest lifetime).

    The brokers know it a moment later.
    """
    with Exchange(address, timeout=_SECONDS) as exchange:
        login.plain(exchange, user, password)
        answer = exchange.ask(*_CREATE_TOKEN, struct.pack(">iq", 0, lifetime_ms))
    code, _kind, _name = answer.int16(), answer.string(), answer.string()
    if code != ErrorCode.NONE:
        raise broker_error(code, f"CreateDelegationToken for {user}")
    _issued, _expires, _latest = answer.int64(), answer.int64(), answer.int64()
    token = answer.string() or ""
    return DelegationToken(token, base64.b64encode(answer.data()).decode())
