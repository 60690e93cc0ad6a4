"""A token in a file that another program replaces."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from aiokc.config import SecurityConfig
from aiokc.errors import AuthenticationFailed, ConfigError
from aiokc.net.credentials import token_login
from aiokc.net.credentials.credentials import Credentials

from .loopback_idp import jwt


def credentials(url: str, **options: Any) -> Credentials:
    return Credentials(
        SecurityConfig(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=url,
            **options,
        )
    )


async def sent(client: Credentials) -> str:
    message = next((await client.login()).conversation())
    assert isinstance(message, bytes)
    return message.decode().removeprefix("n,,\x01auth=Bearer ").rstrip("\x01")


async def test_the_token_is_read_without_white_space(tmp_path: Path) -> None:
    (tmp_path / "a token").write_text("\n first-token \r\n")
    client = credentials((tmp_path / "a token").as_uri(), sasl_oauthbearer_extensions={"a": "b"})
    assert await sent(client) == "first-token\x01a=b"


async def test_a_new_file_serves_the_next_authentication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("first-token")
    monkeypatch.setattr(token_login, "_FILE_SECONDS", 60.0)
    client = credentials(file.as_uri())
    assert await sent(client) == "first-token"
    file.write_text("second-token")
    assert await sent(client) == "first-token"  # it was read a moment ago
    monkeypatch.setattr(token_login, "_FILE_SECONDS", 0.0)
    client = credentials(file.as_uri(), sasl_login_retry_backoff_ms=1, sasl_login_retry_backoff_max_ms=1)
    new = tmp_path / "new"
    for number in range(3):  # as Kubernetes does it: another file takes the place
        new.write_text(jwt(sub="app", exp=time.time() + 600, n=number))
        os.replace(new, file)
        assert await sent(client) == file.read_text()
    kept = file.read_text()
    for half_written in ("", "ä", "a b"):
        file.write_text(half_written)
        assert await sent(client) == kept
    file.unlink()
    assert await sent(client) == kept


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "(No such file or directory)"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff\xfe", "holds characters that no token has"),
        (b"canary" * 200_000, "is longer than 1048576 bytes"),
        (b"canary of two words", "the token has characters"),
    ],
)
async def test_a_file_without_a_token(tmp_path: Path, content: bytes | None, text: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(AuthenticationFailed) as raised:
        await sent(credentials(file.as_uri()))
    assert str(raised.value).startswith(f"the token provider (file {str(file)!r})")
    assert text in str(raised.value)
    assert raised.value.retriable
    assert "canary" not in f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"


async def test_a_file_that_blocks_holds_up_its_own_callers_only(tmp_path: Path) -> None:
    pipe = tmp_path / "token"
    os.mkfifo(pipe)
    client = credentials(pipe.as_uri())
    login = asyncio.create_task(sent(client))
    await asyncio.sleep(0.05)
    assert not login.done()
    await asyncio.to_thread(pipe.write_text, "late-token")
    assert await login == "late-token"


@pytest.mark.parametrize("url", ["file://other/token", "file:", "file:///token?x=y", "file:///token#x", "file://[x"])
def test_urls_that_name_no_file_here(url: str) -> None:
    with pytest.raises(ConfigError, match=r"must be 'file:///' and an absolute path|is no URL"):
        credentials(url)


def test_localhost_is_here() -> None:
    credentials("file://localhost/token")
    credentials("FILE:///token")
