"""Canaries: secrets that only a test knows, and a search that finds them in any spelling, whole or in part."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Final
from urllib.parse import quote, quote_plus

from cryptography.hazmat.primitives.serialization import load_pem_private_key

from aiokc.testing.security.jwt import unsecured_token

# A piece of this many characters gives a secret away. Python's reprlib, with which asyncio shows arguments, leaves the
# first 12 and the last 13 characters of a long text.
_SHARD: Final = 8
_STEP: Final = 4
_HEX_SHARD: Final = 14  # more, as addresses of objects are in hex, too
_DIGIT_SHARD: Final = 18  # more than a float shows: one of 8 digits is in that of a time, by chance
_AROUND: Final = 120  # characters
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]{6,16}>")


class Canaries:
    """Makes secrets, and searches texts for them."""

    def __init__(self) -> None:
        self._shards: dict[str, str] = {}  # in lower case: the name of the secret

    def password(self, name: str) -> str:
        """Return a new password. Each way to encode it changes it."""
        digest = sha256(name.encode()).hexdigest()
        return self.keep(name, f"Zq/{digest[:12]} +ä:{digest[12:24]}")

    def ascii(self, name: str) -> str:
        """Return a new secret of characters that a bearer token may have."""
        digest = sha256(name.encode()).hexdigest()
        return self.keep(name, f"Zq-{digest[:20]}_{digest[20:32]}")

    def token(self, name: str, user: str = "alice", lifetime: float = 3600.0) -> str:
        """Return an unsecured token of ``user``. Its subject and its times are no secret, its encoding is."""
        token = unsecured_token(user, lifetime, jti=self.ascii(f"{name}: its id"))
        self.keep(name, token.split(".")[1])
        return token

    def pem(self, name: str, text: str) -> str:
        """Treat the private key in a PEM text as a secret."""
        key = load_pem_private_key(text.encode(), None)
        number: int = key.private_numbers().private_value  # type: ignore[union-attr]
        self.keep(name, number.to_bytes(32))
        self._add(name, str(number), _DIGIT_SHARD)
        return text

    def keep(self, name: str, secret: str | bytes) -> str:
        """Search for this secret, too, and return it."""
        if isinstance(secret, str):
            for spelling in _spellings_of_text(secret):
                self._add(name, spelling, _SHARD)
        raw = secret.encode() if isinstance(secret, str) else secret
        wide = secret.encode("utf-16-be") if isinstance(secret, str) else raw
        percent = quote(secret, safe="").encode()
        plus = quote_plus(secret).encode()
        for form in {raw, wide, percent, plus}:
            for spelling in _in_base64(form):
                self._add(name, spelling, _SHARD)
                self._add(name, spelling.replace("+", "-").replace("/", "_"), _SHARD)
            self._add(name, form.hex(), _HEX_SHARD)
            # Escapes such as \\x00 are in the reprs of all kinds of bytes.
            self._add(name, repr(form)[2:-1], _SHARD if form.isascii() and form != wide else 4 * _SHARD)
        return secret if isinstance(secret, str) else ""

    def found(self, text: str) -> Iterator[str]:
        """Yield what was found in ``text``, with the text around."""
        text = _ADDRESS.sub(" at an address>", text)  # its digits may be those of a secret, by chance
        lower = text.lower()
        for shard, name in self._shards.items():
            if (at := lower.find(shard)) >= 0:
                yield f"{name}: {text[max(0, at - _AROUND) : at + len(shard) + _AROUND]!r}"

    def _add(self, name: str, spelling: str, length: int) -> None:
        starts = [*range(0, max(1, len(spelling) - length), _STEP), max(0, len(spelling) - length)]
        self._shards |= {spelling[start : start + length].lower(): name for start in starts}


def _spellings_of_text(text: str) -> set[str]:
    return {text, quote(text, safe=""), quote_plus(text), repr(text)[1:-1], ascii(text)[1:-1], json.dumps(text)[1:-1]}


def _in_base64(raw: bytes) -> Iterator[str]:
    """Yield what base64 shows of ``raw`` amid other bytes. This depends on the place where it begins."""
    for before, cut in ((0, 0), (1, 2), (2, 3)):
        whole = b64encode(bytes(before) + raw).decode()[cut:].rstrip("=")
        yield whole[:-2]  # the last characters depend on what follows
