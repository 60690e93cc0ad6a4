"""The identity provider on loopback: what it grants, what it refuses, and how it fails on demand."""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from aiokc.testing import Certificates, Cluster, IdP, TokenRules
from aiokc.testing.security.jwt import Claims, InvalidToken, check

from ..wire_client import connected
from .sasl_client import authenticate, oauth

pytestmark = pytest.mark.timeout(30)

SECRET = "its/secret+ü"


@pytest.fixture
def idp() -> Iterator[IdP]:
    with IdP({"my-service": SECRET}) as started:
        yield started


def ask(
    idp: IdP, *, secret: str = SECRET, header: bool = True, encoded: bool = False, **form: str
) -> tuple[int, dict[str, str], bytes]:
    """Ask for a token; return the status, the headers and the body."""
    url = urllib.parse.urlsplit(idp.token_url)
    connection: http.client.HTTPConnection
    if url.scheme == "https":
        assert idp._tls is not None
        connection = http.client.HTTPSConnection(url.netloc, timeout=5, context=idp._tls.client_context())
    else:
        connection = http.client.HTTPConnection(url.netloc, timeout=60)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    form = {"grant_type": "client_credentials", **form}
    if header:
        text = urllib.parse.quote(secret, safe="") if encoded else secret
        headers["Authorization"] = "Basic " + base64.b64encode(f"my-service:{text}".encode()).decode()
    else:
        form |= {"client_id": "my-service", "client_secret": secret}
    try:
        connection.request("POST", url.path, urllib.parse.urlencode(form), headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read(1 << 21)
    finally:
        connection.close()


def valid(token: str, idp: IdP, **rules: Any) -> Claims:
    return check(token, TokenRules(idp=idp, **rules), int(time.time() * 1000))


@pytest.mark.parametrize("how", [{}, {"header": False}, {"encoded": True}], ids=str)
def test_it_grants_a_token(idp: IdP, how: dict[str, bool]) -> None:
    status, _, body = ask(idp, scope="kafka", **how)  # type: ignore[arg-type]
    granted = json.loads(body)
    assert (status, granted["token_type"], granted["scope"]) == (200, "Bearer", "kafka")
    assert granted["expires_in"] == 3600
    claims = valid(granted["access_token"], idp, audience="kafka")
    assert claims.user == "my-service"
    assert 3590 < claims.expires_ms / 1000 - time.time() <= 3600
    (asked,) = idp.asked
    assert (asked.path, asked.form["scope"]) == ("/token", "kafka")


def test_it_refuses(idp: IdP) -> None:
    assert (ask(idp, secret="wrong")[0], json.loads(ask(idp, secret="wrong")[2])["error"]) == (401, "invalid_client")
    assert ask(idp, grant_type="password")[0] == 400


def test_a_token_that_is_not_its_own_or_not_for_us(idp: IdP) -> None:
    with IdP() as other:
        wrong = {
            "the signature is wrong": other.token("alice"),
            "the issuer is another": idp.token("alice", iss="https://elsewhere"),
            "the audience is another": idp.token("alice", aud=["spark"]),
            "the token has ended": idp.token("alice", -1.0),
            "the token has no subject": idp.token("alice", sub=None),
            "three parts": "abc",
            "no base64url": "%.%.%",
        }
    for text, token in wrong.items():
        with pytest.raises(InvalidToken, match=text):
            valid(token, idp, audience="kafka")
    (header, _, signature), (_, claims, _) = idp.token("alice").split("."), idp.token("mallory").split(".")
    with pytest.raises(InvalidToken, match="the signature is wrong"):
        valid(f"{header}.{claims}.{signature}", idp)
    with pytest.raises(InvalidToken, match="not unsecured"):
        check(idp.token("alice"), TokenRules(), int(time.time() * 1000))
    assert valid(idp.token("alice", -10.0), idp, clock_skew=30.0).user == "alice"
    assert valid(idp.token("alice", aud=["kafka", "spark"]), idp, audience="kafka").user == "alice"


async def test_brokers_take_its_tokens(idp: IdP) -> None:
    rules = TokenRules(idp=idp, audience="kafka", clock_skew=30.0)
    async with Cluster(mechanisms=["OAUTHBEARER"], tokens=rules) as cluster:
        async with connected(cluster.bootstrap) as client:
            answer = await oauth(client, idp.token("alice", 60.0))
            assert answer.error_code == 0
            assert 50_000 < answer.session_lifetime_ms <= 60_000
        async with connected(cluster.bootstrap) as client:
            assert b"invalid_token" in bytes((await oauth(client, idp.token("alice", aud="spark"))).auth_bytes)
            assert (await authenticate(client, b"\x01")).error_code == 58


def test_it_fails_on_demand(idp: IdP) -> None:
    idp.fail(503, "try later", times=1)
    idp.redirect("http://127.0.0.1:9/token", times=1)
    idp.slow(0.3, times=1)
    idp.huge(3 << 20, times=1)
    idp.answer({"access_token": "abc", "expires_in": "60"}, times=1)
    idp.answer("no JSON", status=201, times=1)
    status, _, body = ask(idp)
    assert (status, body) == (503, b"try later")
    status, headers, _ = ask(idp)
    assert (status, headers["Location"]) == (302, "http://127.0.0.1:9/token")
    began = time.monotonic()
    assert ask(idp)[0] == 200
    assert time.monotonic() - began >= 0.3
    assert len(ask(idp)[2]) == 1 << 21  # all that the test reads
    assert json.loads(ask(idp)[2]) == {"access_token": "abc", "expires_in": "60"}
    assert ask(idp)[::2] == (201, b"no JSON")
    assert ask(idp)[0] == 200
    idp.fail()
    assert ask(idp)[0] == 500
    idp.heal()
    assert ask(idp)[0] == 200


def test_it_speaks_https() -> None:
    with IdP({"my-service": SECRET}, tls=Certificates()) as idp:
        assert idp.token_url.startswith("https://localhost:")
        assert ask(idp)[0] == 200


def test_its_keys(idp: IdP) -> None:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(idp.jwks_url).netloc, timeout=60)
    connection.request("GET", "/jwks")
    (key,) = json.loads(connection.getresponse().read())["keys"]
    connection.close()
    assert {name: key[name] for name in ("kty", "alg", "e")} == {"kty": "RSA", "alg": "RS256", "e": "AQAB"}
    assert key["kid"] == json.loads(base64.urlsafe_b64decode(idp.token("a").split(".")[0] + "=="))["kid"]


def test_a_slow_answer_does_not_hold_up_the_end() -> None:
    with IdP({"my-service": SECRET}) as idp:
        idp.slow(600.0)
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(idp.token_url).netloc, timeout=60)
        connection.request("POST", "/token", "")
        began = time.monotonic()
    assert time.monotonic() - began < 100
    connection.close()


def test_it_must_be_started() -> None:
    with pytest.raises(RuntimeError, match="the IdP is not started"):
        _ = IdP().token_url
