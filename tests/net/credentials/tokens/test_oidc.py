"""Tokens from an OpenID provider on loopback: requests, responses, and which failures may pass."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64decode
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from aiokc.config import SecurityConfig
from aiokc.errors import AuthenticationFailed, ConfigError
from aiokc.net.credentials.tokens.https_post import MOST_ANSWER_BYTES
from aiokc.net.credentials.tokens.oidc import OidcAsker, OidcOptions
from aiokc.token_provider import OAuthToken

from .loopback_idp import LoopbackIdp, granted, http, idp, jwt

SECRET = "canary:/+ ä"
BOMB = b"[" * 1_000_000


def options(url: str, **more: Any) -> OidcOptions:
    of_client = {
        "sasl_oauthbearer_client_credentials_client_id": "app id",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
    }
    return OidcOptions.of(
        SecurityConfig(
            **{
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": url,
                **of_client,
                **more,
            }
        )
    )


async def ask(provider: LoopbackIdp, **more: Any) -> OAuthToken:
    asker = OidcAsker(options(provider.url, **more), time.time)
    try:
        return await asker.ask()
    finally:
        asker.close()


async def failure(provider: LoopbackIdp, **more: Any) -> AuthenticationFailed:
    """Return the error of a call, after checking that neither it nor its causes show a secret."""
    with pytest.raises(AuthenticationFailed) as raised:
        await ask(provider, **more)
    error: BaseException | None = raised.value
    while error is not None:
        assert "canary" not in f"{error!r} {error} {error.args}"
        error = error.__cause__ or error.__context__
    assert str(raised.value).startswith(f"the token provider {provider.url}")
    assert raised.value.mechanism == "OAUTHBEARER"
    return raised.value


async def test_the_client_shows_its_secret_and_gets_a_token() -> None:
    async with idp(granted(expires_in=3600)) as provider:
        before = time.time()
        token = await ask(provider, sasl_oauthbearer_scope="kafka.read https://x/.default")
        assert token.value.reveal() == "opaque-token"
        assert token.expires_at is not None
        assert before + 3600 <= token.expires_at <= time.time() + 3600
        first, headers, body = provider.asked[0]
    assert first == "POST /token HTTP/1.1"
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert body == "grant_type=client_credentials&scope=kafka.read%20https%3A%2F%2Fx%2F.default"
    assert b64decode(headers["authorization"].removeprefix("Basic ")).decode() == f"app id:{SECRET}"


async def test_what_an_application_debugs_its_own_requests_with_prints_none_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(HTTPConnection, "debuglevel", 1)
    async with idp(granted()) as provider:
        await ask(provider)
    assert capsys.readouterr() == ("", "")


async def test_the_header_is_percent_encoded_where_told() -> None:
    async with idp(granted()) as provider:
        await ask(provider, sasl_oauthbearer_header_urlencode=True)
        _, headers, body = provider.asked[0]
    assert b64decode(headers["authorization"].removeprefix("Basic ")).decode() == "app+id:canary%3A%2F%2B+%C3%A4"
    assert body == "grant_type=client_credentials"


async def test_the_query_of_the_url_is_sent_and_not_shown() -> None:
    async with idp(granted(), http(500, "")) as provider:
        asker = OidcAsker(options(provider.url + "?tenant=canary"), time.time)
        await asker.ask()
        assert provider.asked[0][0] == "POST /token?tenant=canary HTTP/1.1"
        with pytest.raises(AuthenticationFailed) as raised:
            await asker.ask()
        assert "canary" not in str(raised.value)
        asker.close()


@pytest.mark.parametrize("with_id", [True, False])
async def test_an_assertion_in_a_file(tmp_path: Path, with_id: bool) -> None:
    file = tmp_path / "assertion"
    async with idp(granted()) as provider:
        more: dict[str, Any] = {
            "sasl_oauthbearer_assertion_file": file,
            "sasl_oauthbearer_client_credentials_client_secret": None,
            "sasl_oauthbearer_scope": "s",
        }
        if not with_id:
            more["sasl_oauthbearer_client_credentials_client_id"] = None
        for text in ("first.canary.assertion\n", "second.canary.assertion"):  # it is read anew for each call
            file.write_text(text)
            await ask(provider, **more)
            form = provider.form()
            assert "authorization" not in provider.asked[-1][1]
            if with_id:  # KIP-1258
                assert form == {
                    "grant_type": "client_credentials",
                    "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                    "client_assertion": text.strip(),
                    "client_id": "app id",
                    "scope": "s",
                }
            else:  # KIP-1139
                assert form == {
                    "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                    "assertion": text.strip(),
                    "scope": "s",
                }
        provider.answers = [http(400, json.dumps({"error": "invalid_grant", "error_description": text}))]
        found = await failure(provider, **more)
        assert str(found).endswith("answered 400: invalid_grant: ***")
        file.unlink()
        found = await failure(provider, **more)
        assert found.retriable
        assert f"can't read {str(file)!r} (No such file or directory)" in str(found)


@pytest.mark.parametrize(
    ("fields", "life"),
    [
        ({"expires_in": 60}, 60.0),
        ({"expires_in": "60"}, 60.0),
        ({"expires_in": 60.5}, 60.5),
        ({}, None),
        ({"expires_in": None}, None),
        ({"expires_in": "soon"}, None),
        ({"expires_in": True}, None),
        ({"expires_in": [60]}, None),
        ({"expires_in": "inf"}, None),
        ({"expires_in": 10**400}, None),
        ({"expires_in": 2**63 - 1}, None),  # of what never ends
        ({"expires_in": 1.8e12}, None),  # when it ends, in ms
    ],
)
async def test_the_life_of_a_token(fields: dict[str, Any], life: float | None) -> None:
    async with idp(granted(**fields)) as provider:
        now = time.time()
        token = await ask(provider)
        if life is None:
            assert token.expires_at is None
        else:
            assert token.expires_at == pytest.approx(now + life, abs=5)


@pytest.mark.parametrize(("fields", "end"), [({}, 50), ({"expires_in": 900}, 50), ({"expires_in": 20}, 20)])
async def test_the_earlier_end_counts(fields: dict[str, Any], end: int) -> None:
    now = time.time()
    async with idp(granted(jwt(exp=now + 50), **fields)) as provider:
        assert (await ask(provider)).expires_at == pytest.approx(now + end, abs=5)


async def test_the_exp_counts_where_expires_in_says_for_ever() -> None:
    end = time.time() + 50
    async with idp(granted(jwt(exp=end), expires_in=2**63 - 1)) as provider:
        assert (await ask(provider)).expires_at == end


@pytest.mark.parametrize(
    ("status", "retriable"),
    [(400, False), (401, False), (403, False), (404, False), (408, True), (429, True), (500, True), (503, True)],
)
async def test_refusals_show_only_the_error_and_a_masked_description(status: int, retriable: bool) -> None:
    said = {
        "error": "invalid_client",
        "error_description": f"no such app: {SECRET}\r\n{'x' * 500}",
        "error_uri": "https://canary",
        "access_token": "canary-token",
    }
    async with idp(http(status, json.dumps(said), "X-Debug: canary")) as provider:
        found = await failure(provider)
        assert found.retriable is retriable
        assert f"answered {status}: invalid_client: no such app: ***\\r\\nxxx" in str(found)
        assert len(str(found)) < 400
        provider.answers = [http(status, "<html>canary</html>")]
        assert str(await failure(provider)).endswith(f"answered {status}")
        assert len(provider.asked) == 2


async def test_a_token_that_the_provider_repeats_in_an_error_is_masked() -> None:
    said = {"error": "odd", "error_description": "your canary-token", "access_token": "canary-token"}
    async with idp(http(400, json.dumps(said))) as provider:
        assert str(await failure(provider)).endswith("answered 400: odd: your ***")


async def test_an_error_beside_something_long_in_the_place_of_a_token_is_told_soon() -> None:
    token = ".".join(f"{number:016}" for number in range(28_000))
    said = {"error": "odd", "error_description": f"your {token[:16]} {'z' * 500_000}", "access_token": token}
    began = time.process_time()
    async with idp(http(400, json.dumps(said))) as provider:
        assert f"answered 400: odd: your *** {'z' * 191}..." in str(await failure(provider))
    assert time.process_time() - began < 10  # it takes 0.2 s; with each part of the token a minute


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with idp(granted()) as other, idp(http(status, "", f"Location: {other.url}?canary")) as provider:
        found = await failure(provider)
        assert f"answered {status}, a redirect" in str(found)
        assert not found.retriable
        assert other.asked == []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (http(200, "canary"), "answered 200, and no JSON object"),
        (http(200, b"\xff\xfe"), "and no JSON object"),
        (http(200, "[1]"), "and no JSON object"),
        (http(200, BOMB), "and no JSON object"),
        (http(200, b'{"a":' * 200_000), "and no JSON object"),
        (http(200, b'{"expires_in": ' + b"9" * 10_000 + b"}"), "and no JSON object"),
        (http(200, "{}"), "answered 200 without an access_token"),
        (http(201, '{"access_token": 5}'), "answered 201 without an access_token"),
        (http(200, '{"access_token": ""}'), "answered 200 without an access_token"),
        (http(204, ""), "answered 204"),
        (granted("canary" * 11_000), "the token has 66,000 characters, more than 65,536"),
        (granted("canary token"), "the token has characters that no bearer token may have"),
        (granted("canary\x01evil=1"), "the token has characters"),
        (granted(jwt(exp=1.8e12)), "the token ends at 1800000000000, which is no Unix time in seconds (milliseconds?)"),
        (granted(jwt(exp=-1)), "the token ends at -1, which is no Unix time in seconds"),
        (http(200, b"x" * (MOST_ANSWER_BYTES + 1)), f"the answer is longer than {MOST_ANSWER_BYTES} bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MOST_ANSWER_BYTES * 2), "the answer is longer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ncanar", "no proper HTTP: IncompleteRead"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"access_token": "canary"}', "in the middle of the answer"),
        (b"canary is no HTTP\r\n\r\n", "no proper HTTP: BadStatusLine"),
        (b"", "no proper HTTP: RemoteDisconnected"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: canary\r\n" * 1000 + b"\r\n", "no proper HTTP: HTTPException"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"canary" * 20_000 + b"\r\n\r\n", "no proper HTTP: LineTooLong"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + granted("canary token"), "the token has characters"),
    ],
)
async def test_answers_that_are_none(answer: bytes, text: str) -> None:
    async with idp(answer) as provider:
        found = await failure(provider)
        assert text in str(found)
        assert found.retriable


async def test_a_chunked_answer_is_read() -> None:
    body = b'{"access_token": "chunked-token"}'
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:])) + b"0\r\n\r\n"
    async with idp(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks) as provider:
        assert (await ask(provider)).value.reveal() == "chunked-token"


async def test_a_server_that_drips_or_says_nothing_ends_by_the_timeout() -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def dripping(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    for answer in (silent, dripping):
        async with idp(answer) as provider:
            start = time.monotonic()
            found = await failure(provider, sasl_login_read_timeout_ms=300)
            assert 0.29 <= time.monotonic() - start < 100
            assert "did not answer within" in str(found)
            assert "sasl_login_read_timeout_ms=300" in str(found)
            assert found.retriable


async def test_a_server_that_is_not_there() -> None:
    async with idp(granted()) as provider:
        pass
    found = await failure(provider)
    assert "can't be reached (Connection refused)" in str(found)
    assert found.retriable
    assert isinstance(found.__cause__, OSError)


async def test_the_loop_is_free_while_the_provider_thinks() -> None:
    asked, thought = asyncio.Event(), asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await thought.wait()
        writer.write(granted())

    async with idp(slow) as provider:
        asking = asyncio.create_task(ask(provider))
        await asked.wait()
        assert not asking.done()
        thought.set()
        assert (await asking).value.reveal() == "opaque-token"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://idp.example/token", "would send the client's secret as plain text"),
        ("http://127.0.0.1.example/", "as plain text"),
        ("http://10.0.0.1/token", "as plain text"),
        ("http://[::2]/token", "as plain text"),
        ("http://localhost.example/", "as plain text"),
        ("https:///token", "must be 'https://host/path'"),
        ("https://host:0/token", "must be 'https://host/path'"),
        ("https://host:99999/token", "is no URL"),
        ("https://a..b/token", "is no URL"),
        (f"https://{'a' * 64}.example/token", "is no URL"),
        ("https://ho st/token", "must be 'https://host/path'"),
        ("https://host/token#part", "must be 'https://host/path'"),
        ("https://host/\r\nX: y", "must be 'https://host/path'"),
        ("https://app:canary@host/token", "must hold no user and no password"),
    ],
)
def test_urls_that_are_refused(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match="sasl_oauthbearer_token_endpoint_url") as raised:
        options(url)
    assert text in str(raised.value)
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_plain_http_is_for_this_computer(host: str) -> None:
    assert options(f"http://{host}:8080/token").url == f"http://{host}:8080/token"


def test_an_assertion_and_a_secret_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="replaces sasl_oauthbearer_client_credentials_client_secret"):
        options("https://idp/token", sasl_oauthbearer_assertion_file="/a")


def test_a_call_has_the_time_that_its_timeouts_need() -> None:
    assert options("https://idp/").call_seconds == 30
    slow = options("https://idp/", sasl_login_connect_timeout_ms=20_000, sasl_login_read_timeout_ms=40_000)
    assert slow.call_seconds == 65


def test_equal_options_are_equal_and_show_nothing() -> None:
    assert options("https://idp/") == options("https://idp/")
    assert hash(options("https://idp/")) == hash(options("https://idp/"))
    other = options("https://idp/", sasl_oauthbearer_client_credentials_client_secret="other")
    assert options("https://idp/") != other
    assert "canary" not in repr(options("https://idp/"))
