"""SCRAM: the vectors of the RFCs, an independent server, and servers that cheat."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.sasl import scram
from aiokc.core.sasl.mechanism import Work
from aiokc.core.sasl.scram import Scram, ScramHash, ScramKeys
from aiokc.core.sasl.scram_messages import read_server_final, read_server_first
from aiokc.errors import AuthenticationFailed
from aiokc.secret import Secret

from .scram_server import ScramServer
from .scripted_broker import ScriptedBroker, refused, talk

NONCE = "rOprNGfwEbeRWgbNEkqO"
HASHES: list[ScramHash] = ["SHA-256", "SHA-512"]


def scram_of(
    hash_name: ScramHash = "SHA-256",
    user: str = "user",
    password: str = "pencil",
    *,
    nonce: str = NONCE,
    token_auth: bool = False,
    keys: ScramKeys | None = None,
) -> Scram:
    keys = keys if keys is not None else ScramKeys()
    return Scram(hash_name, user, Secret(password), nonce=nonce, token_auth=token_auth, keys=keys)


def server_of(hash_name: ScramHash = "SHA-256", **given: object) -> ScramServer:
    users = {"user": "pencil"}
    return ScramServer(hash_name.replace("-", "").lower(), **{"users": users, "iterations": 4096, **given})  # type: ignore[arg-type]


# RFC 7677, section 3; RFC 5802, section 5; the example of SCRAM-SHA-512 that XMPP servers share


def test_the_example_of_rfc_7677() -> None:
    said = talk(
        scram_of().conversation(),
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    )
    assert said == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


def test_the_example_of_rfc_5802(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is about SHA-1, which Kafka does not have; everything else is the same."""
    monkeypatch.setitem(scram._ALGORITHMS, "SHA-1", "sha1")  # type: ignore[misc]
    said = talk(
        scram_of("SHA-1", nonce="fyko+d2lbbFgONRv9qkxdawL").conversation(),  # type: ignore[arg-type]
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    )
    assert said == [
        b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    ]


def test_the_usual_example_of_sha_512() -> None:
    said = talk(
        scram_of("SHA-512").conversation(),
        b"r=rOprNGfwEbeRWgbNEkqO02431b08-2f89-4bad-a4e6-80c0564ec865,"
        b"s=Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=,i=4096",
        b"v=BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw==",
    )
    assert said[1] == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO02431b08-2f89-4bad-a4e6-80c0564ec865,"
        b"p=Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A=="
    )


# An independent server


@pytest.mark.parametrize("hash_name", HASHES)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C", ",=", "ünï \x01"])
def test_a_server_of_its_own_accepts_every_user(hash_name: ScramHash, user: str) -> None:
    server = server_of(hash_name, users={user: "pa,ss=wörd Ａ"})
    broker = ScriptedBroker([server.first, server.final], lifetime_ms=5)
    session = broker.accept(scram_of(hash_name, user, "pa,ss=wörd Ａ"))
    assert (session.lifetime_ms, server.user) == (5, user)
    assert broker.steps == [
        f"SaslHandshake v1 SCRAM-{hash_name}",
        "SaslAuthenticate v2",
        "work",
        "SaslAuthenticate v2",
    ]


@given(
    user=st.text(min_size=1).filter(lambda text: "\0" not in text),
    password=st.text(min_size=1),
    salt=st.binary(min_size=1),
)
def test_any_name_and_password(user: str, password: str, salt: bytes) -> None:
    server = server_of(users={user: password}, salt=salt)
    mechanism = scram_of(user=user, password=password)
    if "\0" in password:
        with pytest.raises(AuthenticationFailed, match="the password contains a NUL"):
            ScriptedBroker([server.first, server.final]).accept(mechanism)
    else:
        ScriptedBroker([server.first, server.final]).accept(mechanism)
        assert server.user == user


def test_a_password_is_not_normalized() -> None:
    """Kafka has no SASLprep: U+FF21 is not A."""
    server = server_of(users={"user": "A"})
    with pytest.raises(PermissionError):
        ScriptedBroker([server.first, server.final]).accept(scram_of(password="Ａ"))


def test_a_delegation_token() -> None:
    server = server_of("SHA-512", users={"tok-en": "aG1hYw=="}, tokens=True)
    mechanism = scram_of("SHA-512", "tok-en", "aG1hYw==", token_auth=True)
    ScriptedBroker([server.first, server.final]).accept(mechanism)
    assert mechanism.identity == "delegation token 'tok-en'"
    with pytest.raises(
        AuthenticationFailed, match=r"refused delegation token 'tok-en' .*no such; the delegation token"
    ):
        ScriptedBroker([server.first, refused("no such")]).accept(mechanism)


# Servers that cheat


def challenge(nonce: str = f"{NONCE}more", salt: str = "c2FsdA==", iterations: str = "4096", end: str = "") -> bytes:
    return f"r={nonce},s={salt},i={iterations}{end}".encode()


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (challenge(iterations="0"), "fewer than 4096 iterations"),
        (challenge(iterations="1"), "fewer than 4096 iterations"),
        (challenge(iterations="4095"), "fewer than 4096 iterations"),
        (challenge(iterations="04096"), "fewer than 4096 iterations"),
        (challenge(iterations="1000001"), "more than 1000000 iterations"),
        (challenge(iterations="2147483648"), "more than 1000000 iterations"),
        (challenge(iterations="9" * 60_000), "more than 1000000 iterations"),
        (challenge(iterations="-4096"), "not of the form"),
        (challenge(iterations="+4096"), "not of the form"),
        (challenge(iterations="1e9"), "not of the form"),
        (challenge(iterations="4_096"), "not of the form"),
        (challenge(iterations=" 4096"), "not of the form"),
        (challenge(iterations="٤٠٩٦"), "not of the form"),
        (challenge(iterations="４０９６"), "not of the form"),
        (challenge(iterations=""), "not of the form"),
        (challenge(nonce=NONCE), "nonce does not begin with ours and go on"),
        (challenge(nonce=NONCE[:-1]), "nonce does not begin with ours"),
        (challenge(nonce="x" + NONCE[1:] + "more"), "nonce does not begin with ours"),
        (challenge(nonce="another"), "nonce does not begin with ours"),
        (challenge(nonce=NONCE + "ü"), "not of the form"),
        (challenge(nonce=NONCE + " "), "not of the form"),
        (challenge(salt=""), "not of the form"),
        (challenge(salt="c2Fsd"), "salt is not valid base64"),
        (challenge(salt="c2FsdA="), "salt is not valid base64"),
        (challenge(salt="c2FsdB=="), "salt is not valid base64"),
        (challenge(salt="c2Fs dA=="), "not of the form"),
        (challenge(salt="c2Fs\ndA=="), "not of the form"),
        (challenge(salt="c2_-"), "not of the form"),
        (challenge(end=","), "not of the form"),
        (challenge(end=",x"), "not of the form"),
        (challenge(end="\n"), "not of the form"),
        (b"m=must," + challenge(), "an extension of SCRAM"),
        (f"s=c2FsdA==,r={NONCE}more,i=4096".encode(), "not of the form"),
        (f"r={NONCE}more,i=4096,s=c2FsdA==".encode(), "not of the form"),
        (f"r={NONCE}more,s=c2FsdA==".encode(), "not of the form"),
        (b"e=other-error", "an error instead of a challenge"),
        (b"", "not of the form"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_no_challenge_but_a_proper_one_is_answered(first: bytes, message: str) -> None:
    broker = ScriptedBroker([first])
    with pytest.raises(AuthenticationFailed, match=message) as got:
        broker.accept(scram_of())
    assert (got.value.mechanism, got.value.code, got.value.retriable) == ("SCRAM-SHA-256", 0, False)
    assert str(got.value).startswith("broker 1 (kafka:9092): SCRAM-SHA-256 (user 'user'): ")
    assert "work" not in broker.steps


@pytest.mark.parametrize("iterations", [4096, 5000, 999_999, 1_000_000])
def test_the_iterations_between_floor_and_cap(iterations: int) -> None:
    conversation = scram_of().conversation()
    next(conversation)
    assert isinstance(conversation.send(challenge(iterations=str(iterations))), Work)


def test_an_optional_extension_is_left_alone() -> None:
    """It is part of what both sides sign."""
    server = server_of()

    def first(message: bytes) -> bytes:
        extended = server.first(message) + b",x=more"
        server.said[1] = extended.decode()
        return extended

    ScriptedBroker([first, lambda message: server.final(message) + b",y=z"]).accept(scram_of())


@pytest.mark.parametrize(
    ("final", "message"),
    [
        (lambda right: b"", "did not prove that it knows the password"),
        (lambda right: b"v=", "did not prove"),
        (lambda right: right[2:], "did not prove"),
        (lambda right: right + b"\n", "did not prove"),
        (lambda right: b"x=y," + right, "did not prove"),
        (lambda right: b"v=AAAA", "signature is wrong"),
        (lambda right: b"v=" + b64encode(bytes(32)), "signature is wrong"),
        (lambda right: right[:2] + b64encode(b"x") + right[6:], "did not prove"),
        (lambda right: right[:-1], "signature is not valid base64"),
        (lambda right: right + b"=", "signature is not valid base64"),
        (lambda right: b"e=invalid-proof", "the broker answered 'invalid-proof'"),
        (lambda right: b"e=pencil\nERROR all is lost", r"the broker answered '\*\*\*\\nERROR all is lost'"),
        (lambda right: b"e=other," + right, "the broker answered 'other'"),
        (lambda right: b"\xc3", "not UTF-8"),
    ],
)
def test_no_success_without_the_servers_signature(final: Callable[[bytes], bytes], message: str) -> None:
    server = server_of()
    broker = ScriptedBroker([server.first, lambda proof: final(server.final(proof))], lifetime_ms=9)
    with pytest.raises(AuthenticationFailed, match=message) as got:
        broker.accept(scram_of())
    assert got.value.mechanism == "SCRAM-SHA-256"


def test_a_server_that_does_not_know_the_password_is_no_broker() -> None:
    """It accepts every client, to learn what they send. It may even know the salt."""
    server, impostor = server_of(), server_of(users={"user": "a guess"})

    def first(message: bytes) -> bytes:
        impostor.first(message)
        return server.first(message)

    def final(message: bytes) -> bytes:
        right = impostor.said
        with pytest.raises(PermissionError):
            impostor.final(message)
        without_proof = message.decode().rpartition(",p=")[0]
        signed = ",".join([*right, without_proof]).encode()
        salted = impostor._hi(b"a guess")
        return b"v=" + b64encode(impostor._hmac(impostor._hmac(salted, b"Server Key"), signed))

    with pytest.raises(AuthenticationFailed, match="does not know the password"):
        ScriptedBroker([first, final]).accept(scram_of())


def test_an_endless_salt_takes_no_time() -> None:
    begin = time.process_time()
    with pytest.raises(AuthenticationFailed, match=r"answered SaslAuthenticate with 13\d+ bytes, more than the 65536"):
        ScriptedBroker([challenge(salt=b64encode(bytes(1_000_000)).decode())]).accept(scram_of())
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    "message",
    [
        challenge(end=",a=b" * 12_000 + "\0"),
        challenge(nonce=NONCE + "=" * 50_000, salt="="),
        challenge(salt="A" * 60_000 + "===", iterations="9" * 60_000),
        b"v=" + b"A" * 60_000 + b"===",
        b"v=AAAA" + b",a=b" * 12_000 + b"\n\0",
        b"e=" + b"," * 60_000 + b"\0",
    ],
)
def test_no_message_makes_a_parser_search_for_long(message: bytes) -> None:
    begin = time.process_time()
    for read in (read_server_final, lambda message: read_server_first(message, NONCE)):
        with pytest.raises(AuthenticationFailed):
            read(message)
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("nonce", ["", "a,b", "a b", "ü", "a\n"])
def test_a_nonce_of_ours_is_checked(nonce: str) -> None:
    broker = ScriptedBroker()
    with pytest.raises(AuthenticationFailed, match="the client's nonce"):
        broker.accept(scram_of(nonce=nonce))
    assert broker.steps == []


@pytest.mark.parametrize(
    ("user", "password", "message"),
    [
        ("", "p", "the user name is empty"),
        ("u", "", "the password is empty"),
        ("a\0b", "p", "the user name contains a NUL"),
        ("u", "p\0", "the password contains a NUL"),
        ("u", "p\udc80", "the password contains a lone surrogate"),
    ],
)
def test_credentials_that_cannot_be_sent(user: str, password: str, message: str) -> None:
    broker = ScriptedBroker()
    with pytest.raises(AuthenticationFailed, match=message) as got:
        broker.accept(scram_of(user=user, password=password))
    assert broker.steps == []
    assert got.value.__cause__ is None


# The cache of keys


def log_in(keys: ScramKeys, hash_name: ScramHash = "SHA-256", salt: bytes = b"s", password: str = "pencil") -> bool:
    """Log in. Return whether keys were derived."""
    server = server_of(hash_name, salt=salt, users={"user": password})
    broker = ScriptedBroker([server.first, server.final])
    broker.accept(scram_of(hash_name, password=password, keys=keys))
    return "work" in broker.steps


def test_keys_are_derived_once() -> None:
    keys = ScramKeys()
    assert log_in(keys)
    assert not log_in(keys)
    assert len(keys) == 1


def test_keys_of_something_else_are_not_taken() -> None:
    keys = ScramKeys()
    assert log_in(keys)
    assert log_in(keys, salt=b"t")
    assert log_in(keys, password="rotated")
    assert log_in(keys, "SHA-512")
    assert len(keys) == 4
    server = server_of(salt=b"s", iterations=4097)
    broker = ScriptedBroker([server.first, server.final])
    broker.accept(scram_of(keys=keys))
    assert "work" in broker.steps


def test_the_eight_that_were_used_last_are_kept() -> None:
    keys = ScramKeys()
    for number in range(8):
        assert log_in(keys, salt=bytes([number]))
    assert not log_in(keys, salt=b"\0")  # used again: now the second is the oldest
    assert log_in(keys, salt=b"\x08")
    assert len(keys) == 8
    assert not log_in(keys, salt=b"\0")
    assert log_in(keys, salt=b"\x01")


def test_connections_that_wait_for_the_thread_together_pay_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, works = ScramKeys(), []
    for _ in range(3):
        conversation = scram_of(keys=keys).conversation()
        next(conversation)
        work = conversation.send(challenge())
        assert isinstance(work, Work)
        works.append(work)
    first = works[0].function()
    monkeypatch.setattr("hashlib.pbkdf2_hmac", lambda *given: pytest.fail("derived again"))
    assert [work.function() for work in works[1:]] == [first, first]


def test_nothing_that_is_kept_or_shown_holds_the_password() -> None:
    keys = ScramKeys()
    mechanism = scram_of(keys=keys)
    conversation = mechanism.conversation()
    next(conversation)
    work = conversation.send(challenge())
    assert isinstance(work, Work)
    work.function()
    everything = repr((vars(mechanism), vars(keys), work, conversation))
    assert "pencil" not in everything
