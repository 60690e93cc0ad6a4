"""The messages of SCRAM (RFC 5802), read strictly: a server that deviates is broken or hostile."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

from ...errors import AuthenticationFailed

#: Fewer make a stolen message cheap to guess from (RFC 7677). Kafka stores no fewer.
FEWEST_ITERATIONS: Final = 4096
#: More would let a hostile broker occupy the client's thread for as long as it likes. Kafka stores at most 16384.
MOST_ITERATIONS: Final = 1_000_000

_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS: Final = r"(?:,[A-Za-z]=[^,\0]+)*"
_SERVER_FIRST: Final = re.compile(rf"r=({_NONCE}),s=({_BASE64}),i=([0-9]+){_EXTENSIONS}")
_SERVER_FINAL: Final = re.compile(rf"v=({_BASE64}){_EXTENSIONS}")
_SERVER_ERROR: Final = re.compile(r"e=([^,\0]+)(?:,.*)?", re.DOTALL)
_OUR_NONCE: Final = re.compile(_NONCE)


class ServerFirst(NamedTuple):
    """The server's challenge. ``text`` is the message as it came, which the proofs of both sides cover."""

    text: bytes
    nonce: str
    salt: bytes
    iterations: int


class ServerFinal(NamedTuple):
    """The server's last word: its signature, or the name of an error."""

    signature: bytes
    error: str


def saslname(username: str) -> str:
    """Return a user name as it stands in a message: "=" and "," would end it, or begin another attribute."""
    return username.replace("=", "=3D").replace(",", "=2C")


def is_nonce(text: str) -> bool:
    """Whether ``text`` can be a nonce: printable ASCII without commas."""
    return _OUR_NONCE.fullmatch(text) is not None


def read_server_first(message: bytes, nonce: str) -> ServerFirst:
    """Return the challenge that answers our ``nonce``. Raises AuthenticationFailed."""
    text = _text(message)
    if text.startswith("e="):
        raise AuthenticationFailed("the broker answered with an error instead of a challenge")
    if text.startswith("m="):
        raise AuthenticationFailed("the broker demands an extension of SCRAM that this client does not know (m=)")
    found = _SERVER_FIRST.fullmatch(text)
    if found is None:
        raise AuthenticationFailed("the broker's challenge is not of the form r=...,s=...,i=...")
    combined, salt, digits = found.groups()
    # The server's own part keeps it from being replayed. One that adds nothing may send the same challenge for ever.
    if not combined.startswith(nonce) or len(combined) == len(nonce):
        raise AuthenticationFailed("the broker's nonce does not begin with ours and go on with its own")
    return ServerFirst(message, combined, from_base64(salt, "salt"), _iterations(digits))


def read_server_final(message: bytes) -> ServerFinal:
    """Return the server's signature or error. Raises AuthenticationFailed for anything else."""
    text = _text(message)
    if (error := _SERVER_ERROR.fullmatch(text)) is not None:
        return ServerFinal(b"", error[1])
    found = _SERVER_FINAL.fullmatch(text)
    if found is None:
        raise AuthenticationFailed("the broker did not prove that it knows the password: no signature (v=)")
    return ServerFinal(from_base64(found[1], "signature"), "")


def from_base64(text: str, what: str) -> bytes:
    """Return what ``text`` encodes, if it is the one canonical encoding. Raises AuthenticationFailed."""
    try:
        decoded = b64decode(text)  # skips what is no base64, which then lacks in the text that it is compared with
    except ValueError:
        decoded = b""
    if b64encode(decoded).decode() != text:
        raise AuthenticationFailed(f"the broker's {what} is not valid base64")
    return decoded


def _iterations(digits: str) -> int:
    # Python refuses to convert very many digits, and that is one exception more.
    iterations = int(digits) if len(digits) <= len(str(MOST_ITERATIONS)) else MOST_ITERATIONS + 1
    if digits.startswith("0") or iterations < FEWEST_ITERATIONS:
        raise AuthenticationFailed(f"the broker asks for fewer than {FEWEST_ITERATIONS} iterations, which is not safe")
    if iterations > MOST_ITERATIONS:
        raise AuthenticationFailed(f"the broker asks for more than {MOST_ITERATIONS} iterations")
    return iterations


def _text(message: bytes) -> str:
    text = message.decode("utf-8", "replace")
    if "\ufffd" in text:
        raise AuthenticationFailed("the broker's message is not UTF-8")
    return text
