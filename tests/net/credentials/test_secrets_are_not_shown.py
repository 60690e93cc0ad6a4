"""No secret is in a repr, a log line, an exception, or what asyncio prints in its debug mode."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from aiokc.config import SecurityConfig
from aiokc.errors import AuthenticationFailed
from aiokc.net.credentials.credentials import Credentials
from aiokc.token_provider import OAuthToken

from .tokens.loopback_idp import granted, http, idp

Options: TypeAlias = dict[str, Any]


class Provider:
    def __init__(self, result: Any) -> None:
        self._result = result

    async def token(self) -> Any:
        return self._result


class PlainProvider(Provider):
    def token(self) -> Any:
        return self._result


async def _user() -> tuple[str, str]:
    return "alice", "canary"


async def _bytes() -> Any:
    return "alice", b"canary"


def _plain_user() -> tuple[str, str]:
    return "alice", "canary"


CASES: dict[str, Options] = {
    "PLAIN": {"sasl_mechanism": "PLAIN", "sasl_plain_username": "alice", "sasl_plain_password": "canary"},
    "SCRAM": {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": "alice", "sasl_plain_password": "canary"},
    "user of an async function": {"sasl_mechanism": "PLAIN", "sasl_credentials_provider": _user},
    "user of a plain function": {"sasl_mechanism": "PLAIN", "sasl_credentials_provider": _plain_user},
    "password of a wrong type": {"sasl_mechanism": "PLAIN", "sasl_credentials_provider": _bytes},
    **{
        f"{kind.__name__} of {type(result).__name__} {number}": {"sasl_oauth_token_provider": kind(result)}
        for kind in (Provider, PlainProvider)
        for number, result in enumerate(("canary", OAuthToken("canary"), b"canary", "canary\n", {"canary": 1}))
    },
    "AWS": {"sasl_mechanism": "AWS_MSK_IAM", "sasl_aws_region": "eu-west-1"},
}
ANSWERS: dict[str, bytes] = {
    "granted": granted("canary"),
    "no token": granted("canary canary"),
    "refused": http(400, '{"error": "canary", "error_description": "canary", "x": "canary-x"}', "X: canary"),
    "no JSON": http(200, "canary"),
    "no HTTP": b"canary\r\n\r\n",
    "cut off": b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ncanary",
    "redirect": http(302, "canary", "Location: https://canary"),
}


@asynccontextmanager
async def no_canary(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Callable[[Options], Any]]:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0
    shown: list[str] = []

    async def use(options: Options) -> None:
        config = SecurityConfig(**{"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", **options})
        client = Credentials(config)
        running = asyncio.create_task(client.run())
        login = asyncio.create_task(client.login())
        await asyncio.wait([login])
        shown.extend(repr(each) for each in (config, client, vars(client), vars(client._login), login))
        if isinstance(error := login.exception(), AuthenticationFailed):
            while error is not None:
                shown.extend(map(str, (error, error.args, vars(error), "".join(traceback.format_exception(error)))))
                error = error.__cause__ or error.__context__
        else:
            shown.extend(map(repr, (login.result(), vars(login.result()), client.current())))
        shown.append(repr(asyncio.all_tasks()))
        running.cancel()
        await asyncio.wait([running])

    with caplog.at_level(logging.DEBUG):
        yield use
    assert "took" in caplog.text  # asyncio has printed what it ran
    for text in (*shown, caplog.text):
        assert "canary" not in text


@pytest.mark.parametrize("case", CASES)
async def test_of_all_kinds_of_credentials(
    case: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", "canary")
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    async with no_canary(caplog) as use:
        await use(CASES[case])


@pytest.mark.parametrize("answer", ANSWERS)
async def test_of_an_identity_provider(answer: str, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "assertion").write_text("canary")
    of_client = "sasl_oauthbearer_client_credentials_client_"
    async with idp(ANSWERS[answer]) as server, no_canary(caplog) as use:
        url = {"sasl_oauthbearer_token_endpoint_url": server.url}
        await use({**url, f"{of_client}id": "app", f"{of_client}secret": "canary"})
        await use({**url, "sasl_oauthbearer_assertion_file": tmp_path / "assertion"})


async def test_of_a_file(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async with no_canary(caplog) as use:
        for number, content in enumerate((b"canary", b"canary canary", b"canary\xff", b"canary" * 200_000)):
            file = tmp_path / str(number)
            file.write_bytes(content)
            await use({"sasl_oauthbearer_token_endpoint_url": file.as_uri()})
