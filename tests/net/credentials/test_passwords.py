"""User names and passwords: from the options, or from a provider, which is called for each authentication."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aiokc.config import SecurityConfig
from aiokc.core.sasl.mechanism import Mechanism
from aiokc.errors import AuthenticationFailed
from aiokc.net.credentials import passwords
from aiokc.net.credentials.credentials import Credentials
from aiokc.secret import Secret


def credentials(mechanism: str = "PLAIN", **options: Any) -> Credentials:
    return Credentials(SecurityConfig(security_protocol="SASL_SSL", sasl_mechanism=mechanism, **options))


def first_message(mechanism: Mechanism | None) -> bytes:
    assert mechanism is not None
    message = next(mechanism.conversation())
    assert isinstance(message, bytes)
    return message


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_options_make_a_snapshot_for_each_authentication(mechanism: str) -> None:
    found = credentials(mechanism, sasl_plain_username="alice", sasl_plain_password="canary")
    first, second, third = await found.login(), await found.login(), found.current()
    assert first.name == mechanism
    assert first.identity == "user 'alice'"
    messages = {first_message(each) for each in (first, second, third)}
    if mechanism == "PLAIN":
        assert messages == {b"\0alice\0canary"}
    else:  # a nonce is used once
        assert len(messages) == 3
        assert all(message.startswith(b"n,,n=alice,r=") and len(message) == 13 + 24 for message in messages)


async def test_a_delegation_token_says_that_it_is_one() -> None:
    found = credentials("SCRAM-SHA-512", sasl_plain_username="id", sasl_plain_password="aG1hYw==", sasl_tokenauth=True)
    mechanism = await found.login()
    assert first_message(mechanism).endswith(b",tokenauth=true")
    assert mechanism.identity == "delegation token 'id'"


async def test_keys_of_scram_are_derived_once_for_all_connections() -> None:
    found = credentials("SCRAM-SHA-256", sasl_plain_username="alice", sasl_plain_password="canary")
    first, second = await found.login(), await found.login()
    assert first._keys is second._keys  # type: ignore[attr-defined]


async def test_clients_that_log_in_as_the_same_user_share_the_keys_of_scram() -> None:
    """A hundred consumers of one process derive them once. A provider's account may be another one each time."""

    async def provider() -> tuple[str, str]:
        return "alice", "canary"

    alice = {"sasl_plain_username": "alice", "sasl_plain_password": "canary"}
    clients = [
        credentials("SCRAM-SHA-256", **alice),
        credentials("SCRAM-SHA-256", **alice),
        credentials("SCRAM-SHA-512", **alice),
        credentials("SCRAM-SHA-256", **alice | {"sasl_plain_password": "another"}),
        credentials("SCRAM-SHA-256", **alice | {"sasl_plain_username": "bob"}),
        credentials("SCRAM-SHA-256", sasl_credentials_provider=provider),
        credentials("SCRAM-SHA-256", sasl_credentials_provider=provider),
    ]
    first, *others = [(await client.login())._keys for client in clients]  # type: ignore[attr-defined]
    assert [keys is first for keys in others] == [True, False, False, False, False, False]
    assert others[4] is not others[5]


async def test_the_provider_is_called_for_each_authentication() -> None:
    users: Iterator[tuple[str, str | Secret]] = iter([("alice", "one"), ("alice", Secret("two")), ("bob", "three")])

    async def provider() -> tuple[str, str | Secret]:
        return next(users)

    found = credentials(sasl_credentials_provider=provider)
    assert found.current() is None
    first = await found.login()
    assert first_message(first) == first_message(found.current()) == b"\0alice\0one"
    second = await found.login()
    assert first_message(second) == first_message(found.current()) == b"\0alice\0two"
    assert found.is_same_principal(first, second)
    third = await found.login()
    assert not found.is_same_principal(second, third)
    found.refused(third)


async def test_a_plain_function_runs_in_a_thread() -> None:
    threads = []

    def provider() -> tuple[str, str]:
        threads.append(threading.current_thread())
        return "alice", "one"

    found = credentials(sasl_credentials_provider=provider)
    running = asyncio.create_task(found.run())
    assert first_message(await found.login()) == b"\0alice\0one"
    assert threads[0] is not threading.main_thread()
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    threads[0].join(5)
    assert not threads[0].is_alive()


@pytest.mark.parametrize(
    "returned", [None, "canary", ("canary",), ("alice", b"canary"), {"canary": 1}, ("a", "canary", 1), (1, "canary")]
)
async def test_what_is_no_user_with_a_password_is_an_error_that_shows_no_value(returned: Any) -> None:
    async def provider() -> Any:
        return returned

    with pytest.raises(AuthenticationFailed, match=r"the credentials provider must return a user name and") as raised:
        await credentials(sasl_credentials_provider=provider).login()
    assert "canary" not in f"{raised.value!r} {raised.value.__cause__!r}"
    assert not raised.value.retriable
    assert raised.value.mechanism == "PLAIN"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("vault is sealed"), "the credentials provider raised OSError: vault is sealed"),
        (TimeoutError("slow"), "the credentials provider raised TimeoutError: slow"),
        (Unprintable(), "the credentials provider raised Unprintable"),
        (asyncio.CancelledError(), "the credentials provider ended by a CancelledError that nobody"),
        (StopAsyncIteration(), "raised StopAsyncIteration"),
        (ValueError("a\nb" * 200), r"raised ValueError: a\nba\nb"),
    ],
)
async def test_what_the_provider_raises_is_a_failure_that_may_pass(error: BaseException, text: str) -> None:
    async def provider() -> tuple[str, str]:
        raise error

    with pytest.raises(AuthenticationFailed) as raised:
        await credentials(sasl_credentials_provider=provider).login()
    assert text in str(raised.value)
    assert len(str(raised.value)) < 300
    assert raised.value.retriable
    assert raised.value.__cause__ is error


async def test_the_provider_can_say_that_its_failure_is_final() -> None:
    async def provider() -> tuple[str, str]:
        raise AuthenticationFailed("the account is closed")

    with pytest.raises(AuthenticationFailed, match=r"^the account is closed$") as raised:
        await credentials(sasl_credentials_provider=provider).login()
    assert not raised.value.retriable


async def test_a_provider_that_hangs_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "CALL_SECONDS", 0.05)

    async def provider() -> tuple[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(AuthenticationFailed, match=r"has not returned within 0.05 s") as raised:
        await credentials(sasl_credentials_provider=provider).login()
    assert raised.value.retriable


async def test_a_cancelled_login_is_cancelled() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def provider() -> tuple[str, str]:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    login = asyncio.create_task(credentials(sasl_credentials_provider=provider).login())
    await begun.wait()
    login.cancel()
    with pytest.raises(asyncio.CancelledError):
        await login
    await ended.wait()


@pytest.mark.parametrize("by", ["time", "cancellation"])
async def test_a_provider_that_ignores_cancellation_holds_up_no_login(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "CALL_SECONDS", 0.05 if by == "time" else 30.0)
    begun, may_end, refused_to_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def provider() -> tuple[str, str]:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            refused_to_end.set()
        await may_end.wait()
        raise ValueError("nobody waits for this")

    found = credentials(sasl_credentials_provider=provider)
    login = asyncio.create_task(found.login())
    await begun.wait()
    if by == "time":
        with pytest.raises(AuthenticationFailed, match=r"has not returned within 0.05 s"):
            await login
    else:
        login.cancel()
        with pytest.raises(asyncio.CancelledError):
            await login
    await refused_to_end.wait()
    may_end.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})


async def test_a_provider_that_others_cancel_has_failed_and_the_client_goes_on() -> None:
    answers = [True, False]

    async def provider() -> tuple[str, str]:
        if answers.pop(0):
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return "alice", "secret"

    found = credentials(sasl_credentials_provider=provider)
    with pytest.raises(AuthenticationFailed, match=r"was cancelled") as raised:
        await found.login()
    assert raised.value.retriable
    assert (await found.login()).identity == "user 'alice'"


async def test_a_provider_that_nobody_waits_for_is_not_to_blame_for_a_request_without_an_answer() -> None:
    may_end = asyncio.Event()

    async def provider() -> tuple[str, str]:
        await may_end.wait()
        return "alice", "secret"

    found = credentials(sasl_credentials_provider=provider)
    assert found.unanswered("broker 1") is None
    logins = [asyncio.create_task(found.login()) for _ in range(2)]
    await asyncio.sleep(0)
    logins.pop().cancel()
    await asyncio.sleep(0)
    late = found.unanswered("broker 1")
    assert late is not None
    assert str(late) == "broker 1: not connected: what provides the credentials for PLAIN has not answered yet"
    assert (late.mechanism, late.retriable, late.__cause__) == ("PLAIN", True, None)
    may_end.set()
    await logins[0]
    assert found.unanswered("broker 1") is None
