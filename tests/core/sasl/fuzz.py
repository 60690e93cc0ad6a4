"""Look for input from a broker that the SASL parsers mishandle: the second half of `make fuzz`.

python -m tests.core.sasl.fuzz [INPUTS [SEED]]

Each input is a sound message of one parser, changed in a few places. A parser either refuses it with the error that it
documents, or has read it right; a check that shares no code with the parser decides that. What is found is printed,
with the input.
"""

from __future__ import annotations

import os
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import NamedTuple

from aiokc.core.sasl.broker_text import broker_text
from aiokc.core.sasl.jwt_claims import json_object, read_claims
from aiokc.core.sasl.oauthbearer import OAuthBearer
from aiokc.core.sasl.plain import Plain
from aiokc.core.sasl.scram import Scram, ScramKeys
from aiokc.core.sasl.scram_messages import read_server_final, read_server_first
from aiokc.core.sasl.session import Session, due_at
from aiokc.errors import AuthenticationFailed, MalformedResponse
from aiokc.secret import Secret
from aiokc.wire import encode
from aiokc.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from .scram_server import ScramServer
from .scripted_broker import ScriptedBroker

INPUTS = 10_000_000
_AT_ONCE = 50_000
_NONCE = "rOprNGfwEbeRWgbNEkqO"
_SECRET = "hunter2-hunter2"
_PIECES = (
    *(b",", b"=", b"==", b"\0", b"\n", b"\xff", b"\xc3\xbc", b"\xd9\xa0", b"\xe2\x80\xae", b"r=", b"s=", b"i=", b"v="),
    *(b"e=", b"m=", b",x=y", b"0", b"4095", b"4096", b"1000001", b"2147483648", b"1e9", b"9" * 50, b"-1", b'"', b"{"),
    *(b"}", b"[" * 9, b".", b"NaN", b"1e999", b"\\ud800", b"true", b"null", _SECRET.encode(), b"hunter2", b"***"),
    *(b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\x3a", b"\xff\xff", b"\x01", b"status", b"exp"),
)


class Parser(NamedTuple):
    """``read`` takes one input. It raises AssertionError where the input was read wrongly, and any other error too.

    ``share``: how many inputs it gets for each one of the others; a whole dialogue takes longer than one parser.
    """

    name: str
    seeds: Sequence[bytes]
    read: Callable[[bytes], None]
    share: int = 1


def _server_first(message: bytes) -> None:
    try:
        found = read_server_first(message, _NONCE)
    except AuthenticationFailed:
        return
    head = f"r={found.nonce},s={b64encode(found.salt).decode()},i={found.iterations}".encode()
    assert message == head or message.startswith(head + b",")
    assert found.nonce.startswith(_NONCE)
    assert len(found.nonce) > len(_NONCE)
    assert 4096 <= found.iterations <= 1_000_000
    assert found.text == message


def _server_final(message: bytes) -> None:
    try:
        found = read_server_final(message)
    except AuthenticationFailed:
        return
    if message.startswith(b"e="):
        assert found.error
        assert not found.signature
        return
    signature = message.removeprefix(b"v=").split(b",")[0]
    assert b64encode(found.signature) == signature
    assert not found.error


def _claims(message: bytes) -> None:
    found = read_claims(message.decode("utf-8", "surrogateescape"))
    if found is not None:
        assert message.count(b".") == 2
        assert found.expires_at is None or abs(found.expires_at) < float("inf")
        assert all(isinstance(text, str) for text in (found.issuer, found.subject, *found.audience))


def _json(message: bytes) -> None:
    found = json_object(message)
    assert found is None or isinstance(found, dict)


def _text(message: bytes) -> None:
    shown = broker_text(message.decode("utf-8", "replace"), [Secret(_SECRET)])
    assert shown.isprintable()
    assert len(shown) <= 203
    assert _SECRET not in shown


def _scram() -> tuple[list[bytes], Callable[[bytes], None]]:
    """The whole dialogue, at whose end only one signature is right. Keys are derived for the first input only."""
    server, keys = ScramServer("sha256", {"user": _SECRET}), ScramKeys()
    right: list[bytes] = []

    def mechanism() -> Scram:
        return Scram("SHA-256", "user", Secret(_SECRET), nonce=_NONCE, keys=keys)

    def prove(message: bytes) -> bytes:
        right.append(server.final(message))
        return right[0]

    ScriptedBroker([server.first, prove]).accept(mechanism())
    signature = right[0].removeprefix(b"v=")

    def read(message: bytes) -> None:
        try:
            ScriptedBroker([server.first, message]).accept(mechanism())
        except AuthenticationFailed as error:
            _shown(error)
        else:
            assert message.startswith(b"v=")
            assert message[2:].split(b",")[0] == signature

    return right, read


def _challenge(message: bytes) -> None:
    mechanism = OAuthBearer(Secret(_SECRET), now=lambda: 0.0)
    try:
        ScriptedBroker([message, b""]).accept(mechanism)
    except AuthenticationFailed as error:
        _shown(error)
    else:
        assert not message


def _bodies(body: bytes) -> None:
    """As the answer to the first request and to the second one."""
    for bodies in ((body, _FINE), (_CHOSEN, body)):
        broker = ScriptedBroker(bodies=bodies)
        try:
            session = broker.accept(Plain("user", Secret(_SECRET)))
        except (AuthenticationFailed, MalformedResponse) as error:
            _shown(error)
        else:
            _session(session)


def _shown(error: Exception) -> None:
    text = str(error)
    assert _SECRET not in text
    assert text.isprintable()
    assert len(text) < 1_000


def _session(session: Session) -> None:
    due = due_at(session, Random(0))
    assert due is None or 0.08 <= due - session.sent_at <= 365 * 86_400


_CHOSEN = encode(SaslHandshakeResponse(error_code=0, mechanisms=[]), 1)
_FINE = encode(SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"x", session_lifetime_ms=1), 2)
_JSON = b'{"status":"invalid_token","scope":"s","n":[1,2.5e3,{"a":null}],"exp":1700000000,"aud":["a","b"],"iss":"i"}'


def parsers() -> list[Parser]:
    """Every place where bytes of a broker, or of a token, are read."""
    first = f"r={_NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    final = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    token = b".".join((b64encode(b'{"alg":"RS256"}'), b64encode(_JSON), b"c2lnbmF0dXJl"))
    refusal = SaslAuthenticateResponse(
        error_code=58, error_message=f"no {_SECRET}", auth_bytes=b"", session_lifetime_ms=-1
    )
    listed = SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN", "SCRAM-SHA-256"])
    scram_seeds, scram = _scram()
    return [
        Parser("server-first", [first, first + b",x=y"], _server_first, 4),
        Parser("server-final", [final, final + b",x=y", b"e=invalid-proof"], _server_final, 4),
        Parser(
            "claims", [token, b64decode(token.split(b".")[1]), b".".join([b64encode(b"{}")] * 2 + [b""])], _claims, 4
        ),
        Parser("json", [_JSON, b"{}"], _json, 4),
        Parser("text", [f"no {_SECRET}, {_SECRET}".encode(), "Ünïcode\x1b[2J".encode()], _text, 4),
        Parser("scram", scram_seeds, scram),
        Parser("challenge", [_JSON, b""], _challenge),
        Parser("bodies", [_FINE, encode(refusal, 2), encode(listed, 1), encode(listed, 0)], _bodies),
    ]


def changed(message: bytes, random: Random) -> bytes:
    """Return the message, changed in up to four places, or as it is."""
    for _ in range(int(random.random() * 5)):
        at = int(random.random() * (len(message) + 1))
        what = random.random()
        if what < 0.25:
            message = message[:at] + bytes((int(random.random() * 256),)) + message[at + 1 :]
        elif what < 0.6:
            message = message[:at] + _PIECES[int(random.random() * len(_PIECES))] + message[at + (what < 0.45) :]
        elif what < 0.8:
            message = message[:at] + message[at + 1 + int(random.random() * 8) :]
        else:
            message = message[:at] + message[int(random.random() * (at + 1)) :]
    return message


def failures(count: int, seed: object) -> Iterator[str]:
    """Feed ``count`` inputs to the parsers, each to one. Yield what was found; the same seed finds the same."""
    random, everything = Random(f"{seed}"), [parser for parser in parsers() for _ in range(parser.share)]
    for number in range(count):
        parser = everything[number % len(everything)]
        message = changed(parser.seeds[int(random.random() * len(parser.seeds))], random)
        try:
            parser.read(message)
        except Exception as error:
            yield f"{parser.name}: {type(error).__name__}: {error}, with {message!r}"


def _some(count: int, seed: str) -> list[str]:
    return list(failures(count, seed))


def main() -> None:
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else INPUTS
    seed = sys.argv[2] if len(sys.argv) > 2 else str(time.time_ns() % 1_000_000)
    begin = time.monotonic()
    counts = [min(_AT_ONCE, inputs - done) for done in range(0, inputs, _AT_ONCE)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = [
            one
            for some in pool.map(_some, counts, [f"{seed}/{number}" for number in range(len(counts))])
            for one in some
        ]
    for one in found[:20]:
        print(one)
    if found:
        sys.exit(f"{len(found)} of {inputs} inputs, with seed {seed}")
    print(f"{inputs} inputs to the parsers of SASL in {time.monotonic() - begin:.0f} s: nothing found (seed {seed})")


if __name__ == "__main__":
    main()
