"""OAUTHBEARER: the message, the refusal that looks like an answer, and the claims in a token."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.sasl.jwt_claims import Claims, json_object, read_claims, utc
from aiokc.core.sasl.oauthbearer import OAuthBearer
from aiokc.errors import AuthenticationFailed
from aiokc.secret import Secret

from .scripted_broker import ScriptedBroker, refused

NOW = 1_800_000_000.0
# RFC 7519, section 3.1
EXAMPLE = (
    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
    ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
    ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
)


def part(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(text).decode().rstrip("=")


def jwt(claims: object, signature: str = "signature-of-the-token") -> str:
    return f"{part({'alg': 'RS256', 'kid': 'k'})}.{part(claims)}.{signature}"


def bearer(token: str = "opaque-token", extensions: dict[str, str] | None = None, **given: Any) -> OAuthBearer:
    return OAuthBearer(Secret(token), extensions, **{"now": lambda: NOW, **given})


FULL = jwt({"sub": "alice", "iss": "https://idp", "aud": ["kafka", "other"], "exp": NOW + 90, "iat": NOW - 10})


# The message (RFC 7628, section 3.1; KIP-342)


def test_the_message() -> None:
    broker = ScriptedBroker(lifetime_ms=3_600)
    session = broker.accept(bearer("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="))
    assert broker.asked == [b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"]
    assert broker.steps == ["SaslHandshake v1 OAUTHBEARER", "SaslAuthenticate v2"]
    assert session.lifetime_ms == 3_600


def test_extensions_follow_the_token() -> None:
    broker = ScriptedBroker()
    broker.accept(bearer("t", {"logicalCluster": "lkc-1", "identityPoolId": "pool 2,=\r\n\t~"}))
    assert broker.asked == [b"n,,\x01auth=Bearer t\x01logicalCluster=lkc-1\x01identityPoolId=pool 2,=\r\n\t~\x01\x01"]


@pytest.mark.parametrize(
    "token",
    ["", "a b", "a\x01host=x", "a\x01", "a\n", "a=b", "=", "tökén", "a,b", "Bearer t", '"t"', "t\0", "t\udc80"],
)
def test_a_token_of_other_characters_is_not_sent(token: str) -> None:
    broker = ScriptedBroker()
    with pytest.raises(AuthenticationFailed, match="characters that no bearer token may have") as got:
        broker.accept(bearer(token))
    assert broker.steps == []
    assert len(token) < 3 or token not in str(got.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auth", "Bearer other"),
        ("", "x"),
        ("a1", "x"),
        ("a=b", "x"),
        ("ä", "x"),
        ("a\n", "x"),
        ("a", ""),
        ("a", "x\x01auth=Bearer other"),
        ("a", "\x7f"),
        ("a", "ü"),
        ("a", "x\0"),
    ],
)
def test_an_extension_that_could_be_read_as_something_else_is_not_sent(key: str, value: str) -> None:
    broker = ScriptedBroker()
    with pytest.raises(AuthenticationFailed, match="SASL extension") as got:
        broker.accept(bearer("t", {"fine": "x", key: value}))
    assert broker.steps == []
    assert "other" not in str(got.value)


@given(
    token=st.from_regex(r"[-._~+/A-Za-z0-9]+=*", fullmatch=True),
    extensions=st.dictionaries(
        st.from_regex(r"[A-Za-z]+", fullmatch=True).filter(lambda key: key != "auth"),
        st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1),
    ),
)
def test_a_server_reads_what_was_meant(token: str, extensions: dict[str, str]) -> None:
    """As RFC 7628 has it: gs2-header, then pairs, each with a ^A behind, then one more ^A."""
    broker = ScriptedBroker()
    broker.accept(bearer(token, extensions))
    header, *pairs, nothing, end = broker.asked[0].decode().split("\x01")
    assert (header, nothing, end) == ("n,,", "", "")
    assert dict(pair.split("=", 1) for pair in pairs) == {"auth": f"Bearer {token}", **extensions}


# The refusal (RFC 7628, section 3.2.3)


def test_the_refusal_comes_as_an_answer_and_is_answered_with_one_byte() -> None:
    broker = ScriptedBroker([b'{"status":"invalid_token"}', refused('{"status":"invalid_token"}')])
    with pytest.raises(AuthenticationFailed) as got:
        broker.accept(bearer(FULL))
    assert broker.asked[1] == b"\x01"
    assert str(got.value) == (
        'broker 1 (kafka:9092) refused token of subject \'alice\' (OAUTHBEARER): {"status":"invalid_token"}; '
        "it says 'invalid_token'; the token itself says, unverified: it expires in 90 s, at 2027-01-15T08:01:30Z, "
        "iss 'https://idp', aud 'kafka, other', sub 'alice'"
    )
    assert (got.value.mechanism, got.value.code) == ("OAUTHBEARER", 58)


def test_a_scope_that_the_broker_wants_is_named() -> None:
    """The example of RFC 7628, section 4.3."""
    said = (
        b'{"status":"insufficient_scope","scope":"example_scope",'
        b'"openid-configuration":"https://example.com/.well-known/openid-configuration"}'
    )
    with pytest.raises(AuthenticationFailed, match=r"no; it says 'insufficient_scope' \(scope 'example_scope'\); the"):
        ScriptedBroker([said, refused("no")]).accept(bearer())


def test_a_broker_that_goes_on_after_its_refusal_is_not_believed() -> None:
    with pytest.raises(AuthenticationFailed, match="answered the token with 'invalid_token'; ") as got:
        ScriptedBroker([b'{"status":"invalid_token"}', b""], lifetime_ms=5).accept(bearer())
    assert got.value.code == 0


@pytest.mark.parametrize(
    "said",
    [
        b"\0",
        b"{}",
        b'{"status":7}',
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b"9" * 60_000,
        b'{"status":"' + b"x" * 60_000 + b'"}',
        b"\xff\xfe",
        b'{"status":"\\ud800"}',
        b"NaN",
    ],
)
def test_any_other_answer_is_a_refusal_too(said: bytes) -> None:
    broker = ScriptedBroker([said, refused("no")])
    with pytest.raises(AuthenticationFailed, match="refused token") as got:
        broker.accept(bearer())
    assert broker.asked[1] == b"\x01"
    assert str(got.value).isprintable()
    assert len(str(got.value)) < 600


def test_no_part_of_the_token_is_shown() -> None:
    header, payload, signature = FULL.split(".")
    said = json.dumps({"status": f"bad {FULL}", "scope": f"{payload} {signature}"}).encode()
    with pytest.raises(AuthenticationFailed) as got:
        ScriptedBroker([said, refused(f"{FULL} {header} {signature}")]).accept(bearer(FULL))
    text = str(got.value) + repr(got.value) + repr(vars(got.value))
    assert not any(piece in text for piece in (FULL, header, payload, signature))
    assert "bad ***" in text


def test_short_parts_of_a_token_mask_no_words() -> None:
    token = "no.such.token"
    with pytest.raises(AuthenticationFailed, match=r"no such token: '\*\*\*'; the"):
        ScriptedBroker([refused(f"no such token: '{token}'")]).accept(bearer(token))


def test_advice_of_an_opaque_token() -> None:
    with pytest.raises(AuthenticationFailed, match=r"refused token .*: no; the token is no JWT, so nothing is known"):
        ScriptedBroker([refused("no")]).accept(bearer())
    with pytest.raises(AuthenticationFailed, match="refused the AWS key 'AK'"):
        ScriptedBroker([refused("no")]).accept(bearer(identity="the AWS key 'AK'"))
    with pytest.raises(AuthenticationFailed, match="unverified: no exp, no iss, no aud, no sub"):
        ScriptedBroker([refused("no")]).accept(bearer(jwt({})))


# Expiry


@pytest.mark.parametrize(
    ("claims", "given", "end"),
    [
        ({"exp": NOW + 5}, None, NOW + 5),
        ({"exp": NOW + 5}, NOW + 9, NOW + 5),
        ({"exp": NOW + 5}, NOW + 2, NOW + 2),
        ({}, NOW + 2, NOW + 2),
        ({}, None, None),
        ({"exp": "soon"}, None, None),
    ],
)
def test_the_earlier_end_counts(claims: dict[str, object], given: float | None, end: float | None) -> None:
    assert bearer(jwt(claims), expires_at=given).expires_at == end


@pytest.mark.parametrize(
    ("late", "told"),
    [
        (-1.0, r"expires in 1 s, at"),
        (-0.001, r"expires in 0 s, at"),
        (0.0, r"expired 0 s ago by this clock, at"),
        (3.0, r"expired 3 s ago by this clock, at"),
        (3_600.0, r"expired 3600 s ago by this clock, at"),
    ],
)
def test_a_token_that_is_over_when_the_broker_reads_it_is_not_sent(late: float, told: str) -> None:
    """The broker would accept it within its clock skew, and close the connection at the first request."""
    broker = ScriptedBroker()
    message = rf"the token {told} 2027-01-15T0[78]:.*: too late to be sent"
    with pytest.raises(AuthenticationFailed, match=message) as got:
        broker.accept(bearer(jwt({"exp": NOW - late})))
    assert broker.steps == []
    assert got.value.retriable
    with pytest.raises(AuthenticationFailed, match=message):
        broker.accept(bearer(expires_at=NOW - late))


def test_the_clock_is_asked_when_the_token_is_used() -> None:
    clock = [NOW]
    mechanism = bearer(expires_at=NOW + 10, now=lambda: clock[0])
    ScriptedBroker().accept(mechanism)
    clock[0] = NOW + 8.9
    ScriptedBroker().accept(mechanism)
    clock[0] = NOW + 10
    with pytest.raises(AuthenticationFailed, match="expired 0 s ago"):
        ScriptedBroker().accept(mechanism)


# The claims in a token


def test_the_example_of_rfc_7519() -> None:
    assert read_claims(EXAMPLE) == Claims(1_300_819_380.0, "joe", "", ())


@pytest.mark.parametrize(
    ("claims", "read"),
    [
        ({"aud": "kafka"}, Claims(None, "", "", ("kafka",))),
        ({"aud": ["a", 1, "", "b"]}, Claims(None, "", "", ("a", "b"))),
        ({"exp": 2.5}, Claims(2.5, "", "", ())),
        ({"exp": True, "iss": 1, "sub": None, "aud": {}}, Claims(None, "", "", ())),
        ({"exp": float("inf")}, Claims(None, "", "", ())),
        ({"exp": float("nan")}, Claims(None, "", "", ())),
        ({"exp": 10**400}, Claims(None, "", "", ())),
        ({"exp": -(10**30)}, Claims(-1e30, "", "", ())),
    ],
)
def test_claims(claims: object, read: Claims) -> None:
    assert read_claims(jwt(claims)) == read


def test_an_unsecured_token_may_have_an_empty_signature() -> None:
    assert read_claims(jwt({"sub": "a"}, "")) == Claims(None, "", "a", ())


@pytest.mark.parametrize(
    "token",
    [
        "",
        "opaque",
        "a.b",
        "a.b.c",
        "a.b.c.d.e",
        ".".join(("x" * 70_000, "y", "z")),
        f"{part([])}.{part({})}.x",
        f"{part({})}.{part([])}.x",
        f"{part({})}.{part(b'{')}.x",
        f"{part({})}.{part(b'[' * 40_000)}.x",
        f"{part({})}.ä.x",
        f"{part({})}.a.x",
    ],
)
def test_an_opaque_token_says_nothing(token: str) -> None:
    assert read_claims(token) is None


def test_a_token_has_64_kib_at_most() -> None:
    longest = jwt({}, "x" * (65_536 - len(jwt({}, ""))))
    assert read_claims(longest) is not None
    assert read_claims(longest + "x") is None


@given(st.one_of(st.text(), st.lists(st.binary().map(part), min_size=3, max_size=3).map(".".join)))
def test_no_token_raises(token: str) -> None:
    read_claims(token)


@given(st.binary())
def test_no_json_raises(text: bytes) -> None:
    found = json_object(text)
    assert found is None or isinstance(found, dict)


def test_a_time_beyond_all_calendars() -> None:
    assert utc(1e30).endswith(" s after 1970")
    assert utc(0) == "1970-01-01T00:00:00Z"
    with pytest.raises(
        AuthenticationFailed, match=r"the token expired 1\d+ s ago by this clock, at -1\d+ s after 1970"
    ):
        ScriptedBroker().accept(bearer(jwt({"exp": -(10**30)})))
