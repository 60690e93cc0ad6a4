"""The SASL dialogue: which requests are sent, in which versions, and what the error says when it fails."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from typing import Any

import pytest

from aiokc.core.sasl.authentication import authenticate
from aiokc.core.sasl.mechanism import Conversation, Mechanism
from aiokc.core.sasl.plain import Plain
from aiokc.core.sasl.scram import Scram, ScramKeys
from aiokc.core.versions import Question, VersionRange
from aiokc.errors import AuthenticationFailed, MalformedResponse, UnsupportedVersion
from aiokc.secret import Secret
from aiokc.wire import encode
from aiokc.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from .scripted_broker import BROKER, ScriptedBroker, refused

OK = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])


def alice(password: str = "wonderland") -> Plain:
    return Plain("alice", Secret(password))


class Endless:
    """A mechanism whose conversation never ends."""

    name = "ENDLESS"
    identity = "nobody"
    secrets = ()
    expires_at = None

    def conversation(self) -> Conversation:
        while True:
            yield b"more"

    def advice(self) -> str:
        return ""


def refusal_of(broker: ScriptedBroker, mechanism: Mechanism | None = None) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as got:
        broker.accept(mechanism or alice())
    return got.value


# PLAIN (RFC 4616)


@pytest.mark.parametrize(
    ("user", "password", "message"),
    [
        ("tim", "tanstaaftanstaaf", b"\0tim\0tanstaaftanstaaf"),  # RFC 4616, section 4
        ("$ConnectionString", "Endpoint=sb://x/;a=b", b"\0$ConnectionString\0Endpoint=sb://x/;a=b"),
        ("Ａ", "ü\n", "\0Ａ\0ü\n".encode()),
    ],
)
def test_plain(user: str, password: str, message: bytes) -> None:
    broker = ScriptedBroker([b"whatever a broker says here"])
    broker.accept(Plain(user, Secret(password)))
    assert broker.asked == [message]
    assert broker.steps == ["SaslHandshake v1 PLAIN", "SaslAuthenticate v2"]


@pytest.mark.parametrize(
    ("user", "password", "message"),
    [
        ("", "x", "the user name is empty"),
        ("alice", "", "the password is empty"),
        ("alice\0bob", "x", "the user name contains a NUL"),
        ("alice", "x\0y", "the password contains a NUL"),
        ("alice", "x\ud800", "the password contains a lone surrogate"),
    ],
)
def test_plain_sends_nothing_that_could_be_read_as_something_else(user: str, password: str, message: str) -> None:
    broker = ScriptedBroker()
    error = refusal_of(broker, Plain(user, Secret(password)))
    assert message in str(error)
    assert error.mechanism == "PLAIN"
    assert broker.steps == []


# Versions


@pytest.mark.parametrize(("highest", "version", "lifetime"), [(0, 0, 0), (1, 1, 7), (2, 2, 7), (9, 2, 7)])
def test_the_highest_version_that_both_sides_speak(highest: int, version: int, lifetime: int) -> None:
    versions = {17: VersionRange(0, 1), 36: VersionRange(0, highest)}
    broker = ScriptedBroker(versions=versions, lifetime_ms=7)
    assert broker.accept(alice()).lifetime_ms == lifetime
    assert broker.steps == ["SaslHandshake v1 PLAIN", f"SaslAuthenticate v{version}"]


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({17: (0, 0), 36: (0, 2)}, "broker 1 (kafka:9092) offers SaslHandshake v0, and v1 is needed"),
        ({17: (2, 3), 36: (0, 2)}, "broker 1 (kafka:9092) offers SaslHandshake v2-3, and v0-1 is needed"),
        ({17: (0, 1)}, "broker 1 (kafka:9092) does not offer SaslAuthenticate"),
        ({17: (0, 1), 36: (3, 4)}, "broker 1 (kafka:9092) offers SaslAuthenticate v3-4, and v0-2 is needed"),
    ],
)
def test_a_broker_that_is_too_old_or_too_new(versions: Mapping[int, tuple[int, int]], message: str) -> None:
    broker = ScriptedBroker(versions={key: VersionRange(*both) for key, both in versions.items()})
    with pytest.raises(UnsupportedVersion, match=re.escape(message)):
        broker.accept(alice())
    assert broker.steps == []


# Refusals


@pytest.mark.parametrize(
    ("mechanism", "advice"),
    [
        (alice(), "user 'alice' (PLAIN): Authentication failed; an unknown user and a wrong password look the same"),
        (
            Scram("SHA-512", "bob", Secret("x"), nonce="n", keys=ScramKeys()),
            "user 'bob' (SCRAM-SHA-512): Authentication failed; an unknown user and a wrong password look the same; "
            "SCRAM users exist per hash",
        ),
    ],
)
def test_wrong_credentials(mechanism: Mechanism, advice: str) -> None:
    error = refusal_of(ScriptedBroker([refused()]), mechanism)
    assert str(error) == f"broker 1 (kafka:9092) refused {advice}"
    assert (error.mechanism, error.code, error.retriable) == (mechanism.name, 58, False)
    again = pickle.loads(pickle.dumps(error))
    assert (again.mechanism, again.code) == (mechanism.name, 58)


def test_the_mechanisms_that_are_enabled_are_named_and_none_of_them_is_tried() -> None:
    broker = ScriptedBroker(refusal=33, mechanisms=["SCRAM-SHA-512", "PLA\x1bIN"])
    error = refusal_of(broker)
    assert (
        str(error)
        == "broker 1 (kafka:9092) does not offer PLAIN on this listener; enabled here: PLA\\x1bIN, SCRAM-SHA-512"
    )
    assert (error.mechanism, error.code, error.retriable) == ("PLAIN", 33, False)
    assert broker.steps == ["SaslHandshake v1 PLAIN"]
    assert "enabled here: none" in str(refusal_of(ScriptedBroker(refusal=33, mechanisms=[])))
    many = str(refusal_of(ScriptedBroker(refusal=33, mechanisms=[f"wonderland-{number}" for number in range(900)])))
    assert len(many) < 300
    assert "wonderland" not in many


def test_a_listener_without_sasl() -> None:
    error = refusal_of(ScriptedBroker(refusal=34, mechanisms=[]))
    assert "has no SASL on this listener, or takes no login just now; security_protocol 'SSL' or" in str(error)
    assert error.code == 34
    error = refusal_of(ScriptedBroker(versions={3: VersionRange(0, 12)}))
    assert "has no SASL on this listener" in str(error)
    assert error.code == 0


@pytest.mark.parametrize(
    ("refusal", "mechanisms", "name"),
    [(34, ["PLAIN"], "ILLEGAL_SASL_STATE"), (35, [], "UNSUPPORTED_VERSION"), (-1, [], "UNKNOWN_SERVER_ERROR")],
)
def test_another_error_of_the_first_request(refusal: int, mechanisms: list[str], name: str) -> None:
    error = refusal_of(ScriptedBroker(refusal=refusal, mechanisms=mechanisms))
    enabled = ", ".join(mechanisms) or "none"
    assert str(error) == f"{BROKER} refused SaslHandshake for PLAIN: {name}; enabled: {enabled}"
    assert (error.code, error.retriable) == (refusal, refusal == -1)


def test_another_error_of_the_second_request_is_named() -> None:
    error = refusal_of(ScriptedBroker([refused(None, 34)]))
    assert "refused user 'alice' (PLAIN): ILLEGAL_SASL_STATE: it gives no reason; an unknown" in str(error)
    assert error.code == 34
    assert "UNKNOWN_ERROR_CODE" not in str(refusal_of(ScriptedBroker([refused("no", 58)])))


def test_what_the_broker_says_is_shown_without_our_secrets_and_on_one_line() -> None:
    said = "no\n\x1b[2J \u202e 'wonderland' d29uZGVybGFuZA== 776f6e6465726c616e64 " + "x" * 5_000
    error = refusal_of(ScriptedBroker([refused(said)]))
    assert "(PLAIN): no\\n\\x1b[2J \\u202e '***' *** *** xxx" in str(error)
    assert len(str(error)) < 400
    assert "wonderland" not in str(error) + repr(error) + repr(vars(error))


# Hostile brokers


def test_endless_rounds_end() -> None:
    broker = ScriptedBroker([b"go on"] * 100)
    error = refusal_of(broker, Endless())
    assert str(error) == f"{BROKER} went on asking after 10 messages"
    assert len(broker.asked) == 10


@pytest.mark.parametrize("length", [65_536, 65_537, 1_000_000])
def test_an_answer_has_64_kib_at_most(length: int) -> None:
    around = (
        len(encode(SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"x" * 60_000), 2)) - 60_000
    )
    broker = ScriptedBroker([b"x" * (length - around)])
    if length == 65_536:
        broker.accept(alice())
    else:
        error = refusal_of(broker)
        assert f"answered SaslAuthenticate with {length} bytes, more than the 65536 that are read" in str(error)


def test_a_list_of_mechanisms_has_64_kib_at_most() -> None:
    error = refusal_of(ScriptedBroker(mechanisms=["x" * 30_000] * 3))
    assert "answered SaslHandshake with 90" in str(error)


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\xff\xff\xff\xff", encode(OK, 1) + b"more"])
@pytest.mark.parametrize("first", [True, False], ids=["SaslHandshake", "SaslAuthenticate"])
def test_a_body_that_is_none_is_malformed(body: bytes, first: bool) -> None:
    dialogue = authenticate(alice(), broker=BROKER, versions=ScriptedBroker().versions, clock=lambda: 0.0)
    next(dialogue)
    name = "SaslHandshake v1" if first else "SaslAuthenticate v2"
    if not first:
        dialogue.send(memoryview(encode(OK, 1)))
    with pytest.raises(MalformedResponse, match=re.escape(f"{BROKER}: {name}: ")):
        dialogue.send(memoryview(body))


@pytest.mark.parametrize("lifetime", [-(2**63), -1, 0, 1, 2**63 - 1])
def test_a_lifetime_is_handed_on_as_it_is(lifetime: int) -> None:
    assert ScriptedBroker(lifetime_ms=lifetime).accept(alice()).lifetime_ms == lifetime


# Time, and the end


def test_the_session_counts_from_just_before_the_last_message() -> None:
    class Twice(Endless):
        def conversation(self) -> Conversation:
            yield b"one"
            yield b"two"

    def answer(message: bytes) -> bytes:
        times.append(next(broker.clock))
        return b""

    times: list[int] = []
    broker = ScriptedBroker([answer, answer])
    session = broker.accept(Twice())
    assert (session.sent_at, times) == (2.0, [1, 3])


@pytest.mark.parametrize("after", range(3))
def test_a_dialogue_that_is_dropped_ends_the_conversation(after: int) -> None:
    class Watched(Endless):
        def conversation(self) -> Conversation:
            kept.append(self.said())
            return kept[0]

        def said(self) -> Conversation:
            try:
                while True:
                    yield b"more"
            finally:
                ended.append(True)

    ended: list[bool] = []
    kept: list[Conversation] = []  # something else may keep it alive, for example a traceback
    broker = ScriptedBroker([b""] * 9)
    dialogue = authenticate(Watched(), broker=BROKER, versions=broker.versions, clock=lambda: 0.0)
    step: Any = next(dialogue)
    for _ in range(after):
        assert isinstance(step, Question)
        step = dialogue.send(memoryview(broker.answer(step)))
    assert ended == []
    dialogue.close()
    assert ended == [True]
