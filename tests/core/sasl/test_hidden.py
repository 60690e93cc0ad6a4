"""No failure shows a secret, not even with the local variables of its traceback, which some tools report."""

from __future__ import annotations

import pickle
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import aiokc.core.sasl
from aiokc.core.sasl.aws_msk_iam import AwsCredentials, msk_token
from aiokc.core.sasl.mechanism import HiddenBytes, Mechanism
from aiokc.core.sasl.oauthbearer import OAuthBearer
from aiokc.core.sasl.plain import Plain
from aiokc.core.sasl.scram import Scram, ScramKeys
from aiokc.errors import AuthenticationFailed, MalformedResponse
from aiokc.secret import Secret

from .scram_server import ScramServer
from .scripted_broker import ScriptedBroker, refused

CANARY = "canary-7f3a9d-canary"
SASL = str(Path(aiokc.core.sasl.__file__).parent)
SPELLINGS = (CANARY, b64encode(CANARY.encode()).decode(), CANARY.encode().hex())


def plain(password: str = CANARY) -> Plain:
    return Plain("alice", Secret(password))


def scram(password: str = CANARY) -> Scram:
    return Scram("SHA-256", "alice", Secret(password), nonce="nonce", keys=ScramKeys())


def bearer(token: str = CANARY, **extensions: str) -> OAuthBearer:
    return OAuthBearer(Secret(token), extensions, now=lambda: 5.0)


def expired() -> OAuthBearer:
    return OAuthBearer(Secret(CANARY), now=lambda: 5.0, expires_at=4.0)


def server() -> ScramServer:
    return ScramServer("sha256", {"alice": CANARY})


ECHO = refused(f"no {CANARY} {b64encode(CANARY.encode()).decode()}")
Attempt = tuple[Callable[[], Mechanism], Callable[[], ScriptedBroker]]
ATTEMPTS: dict[str, Attempt] = {
    "PLAIN is refused": (plain, lambda: ScriptedBroker([ECHO])),
    "PLAIN goes to no SASL": (plain, lambda: ScriptedBroker(refusal=34, mechanisms=[])),
    "PLAIN is not enabled": (plain, lambda: ScriptedBroker(refusal=33, mechanisms=[CANARY])),
    "PLAIN gets too long an answer": (plain, lambda: ScriptedBroker([b"x" * 99_999])),
    "PLAIN gets garbage": (plain, lambda: ScriptedBroker(bodies=[b"\0\0\0\0\0\0", b"\xff"])),
    "PLAIN with NUL": (lambda: plain(CANARY + "\0"), ScriptedBroker),
    "PLAIN with a surrogate": (lambda: plain(CANARY + "\ud800"), ScriptedBroker),
    "SCRAM is refused": (scram, lambda: ScriptedBroker([ECHO])),
    "SCRAM gets garbage": (scram, lambda: ScriptedBroker([CANARY.encode()])),
    "SCRAM gets no signature": (scram, lambda: ScriptedBroker([server().first, CANARY.encode()])),
    "SCRAM gets an error": (scram, lambda: ScriptedBroker([server().first, f"e={CANARY}".encode()])),
    "SCRAM gets a wrong signature": (scram, lambda: ScriptedBroker([server().first, b"v=AAAA"])),
    "SCRAM is refused late": (scram, lambda: ScriptedBroker([server().first, ECHO])),
    "SCRAM with NUL": (lambda: scram(CANARY + "\0"), ScriptedBroker),
    "OAUTHBEARER is refused": (bearer, lambda: ScriptedBroker([f'{{"status":"{CANARY}"}}'.encode(), ECHO])),
    "OAUTHBEARER is refused and accepted": (bearer, lambda: ScriptedBroker([CANARY.encode(), b""])),
    "OAUTHBEARER with an extension that may be a secret": (
        lambda: bearer("token", key=CANARY),
        lambda: ScriptedBroker([f'{{"status":"{CANARY}"}}'.encode(), ECHO]),
    ),
    "OAUTHBEARER with a token that is none": (lambda: bearer(CANARY + "\x01"), ScriptedBroker),
    "OAUTHBEARER with an extension that is none": (lambda: bearer(auth="x"), ScriptedBroker),
    "OAUTHBEARER with an expired token": (expired, ScriptedBroker),
}


def chain(error: BaseException) -> Iterator[BaseException]:
    while True:
        yield error
        following = error.__cause__ or error.__context__
        if following is None:
            return
        error = following


def shown(error: BaseException) -> str:
    """Return all that is kept of an error, with the local variables of all frames of aiokc.core.sasl."""
    everything = []
    for one in chain(error):
        everything += [str(one), repr(one), repr(vars(one)), repr(one.args)]
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if frame.f_code.co_filename.startswith(SASL):
                everything += [
                    f"{frame.f_code.co_qualname}: {name}={value!r}" for name, value in frame.f_locals.items()
                ]
    return "\n".join(everything)


@pytest.mark.parametrize(("mechanism", "broker"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_a_failure_shows_no_secret(mechanism: Callable[[], Mechanism], broker: Callable[[], ScriptedBroker]) -> None:
    with pytest.raises((AuthenticationFailed, MalformedResponse)) as got:
        broker().accept(mechanism())
    text = shown(got.value)
    assert [spelling for spelling in SPELLINGS if spelling in text] == []
    assert CANARY.encode() not in pickle.dumps(got.value)


def test_the_keys_of_scram_are_as_good_as_the_password() -> None:
    keys = ScramKeys()
    mechanism = Scram("SHA-256", "alice", Secret(CANARY), nonce="nonce", keys=keys)
    with pytest.raises(AuthenticationFailed) as got:
        ScriptedBroker([server().first, b"v=AAAA"]).accept(mechanism)
    assert len(keys) == 1
    (_, derived), *_ = keys._entries
    text = shown(got.value)
    assert repr(bytes(derived.client_key)) not in text
    assert repr(bytes(derived.server_key)) not in text
    assert "client_key" not in text
    assert repr(derived) == "_Keys(client_key=b'***', server_key=b'***')"


def test_the_secret_key_of_aws() -> None:
    credentials = AwsCredentials("AK", Secret(CANARY + "\0"))
    with pytest.raises(AuthenticationFailed) as got:
        msk_token(credentials, "eu-central-1", now=0)
    assert CANARY not in shown(got.value)


def test_the_messages_on_their_way() -> None:
    """A driver has them in its local variables while it waits for the broker."""
    seen = []

    class Watching(ScriptedBroker):
        def answer(self, question: object) -> bytes:
            seen.append(repr(question))
            return super().answer(question)  # type: ignore[arg-type]

    Watching([b""]).accept(plain())
    Watching([b""]).accept(bearer())
    assert len(seen) == 4
    assert CANARY not in "".join(seen)


def test_hidden_bytes_are_bytes() -> None:
    hidden = HiddenBytes(b"abc")
    assert hidden == b"abc"
    assert f"{hidden} {hidden!r} {[hidden]} {hidden!s}" == "b'***' b'***' [b'***'] b'***'"
