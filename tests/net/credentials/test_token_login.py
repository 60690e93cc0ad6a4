"""Token providers of the application, async or plain: shared by clients, their tokens checked, and shown nowhere."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from aiokc import OAuthToken
from aiokc.config import SecurityConfig
from aiokc.core.sasl.mechanism import Mechanism
from aiokc.errors import AuthenticationFailed, ConfigError
from aiokc.net.credentials.credentials import Credentials
from aiokc.net.credentials.tokens.provider import ProviderAsker
from aiokc.secret import Secret

from .tokens.loopback_idp import granted, idp, jwt
from .tokens.scripted import run_virtually

HOUR = 3600.0


def credentials(provider: object = None, **options: Any) -> Credentials:
    if provider is not None:
        options["sasl_oauth_token_provider"] = provider
    return Credentials(SecurityConfig(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", **options))


def first_message(mechanism: Mechanism | None) -> str:
    assert mechanism is not None
    message = next(mechanism.conversation())
    assert isinstance(message, bytes)
    return message.decode()


class Counting:
    """A provider of tokens that last for an hour."""

    def __init__(self, result: Callable[[], Any] | None = None) -> None:
        self.calls = 0
        self._result = result or (lambda: OAuthToken(f"token-{self.calls}", time.time() + HOUR))

    async def token(self) -> Any:
        self.calls += 1
        await asyncio.sleep(0.01)
        return self._result()


class Plain:
    """A provider with plain functions, which block."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def token(self) -> str:
        self.threads.append(threading.current_thread())
        return "canary-token"

    def extensions(self) -> dict[str, str]:
        self.threads.append(threading.current_thread())
        return {"a": "b"}


async def test_plain_functions_run_in_a_thread_that_ends_with_the_client() -> None:
    provider = Plain()
    client = credentials(provider)
    running = asyncio.create_task(client.run())
    mechanism = await client.login()
    assert first_message(mechanism) == "n,,\x01auth=Bearer canary-token\x01a=b\x01\x01"
    assert mechanism.expires_at is None
    running.cancel()
    await asyncio.wait([running])
    (thread,) = set(provider.threads)
    assert thread is not threading.main_thread()
    thread.join(5)
    assert not thread.is_alive()


async def test_a_plain_function_may_return_an_awaitable() -> None:
    class Odd:
        def token(self) -> Any:
            return self._token()

        async def _token(self) -> Secret:
            return Secret("odd-token")

        async def extensions(self) -> dict[str, str]:
            return {"a": "b"}

    assert first_message(await credentials(Odd()).login()) == "n,,\x01auth=Bearer odd-token\x01a=b\x01\x01"


async def test_a_call_is_in_a_thread_while_a_plain_function_runs() -> None:
    loop, began, goes_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    class Blocking:
        def token(self) -> str:
            loop.call_soon_threadsafe(began.set)
            assert goes_on.wait(10)
            return "token"

    asker = ProviderAsker(Blocking())
    asking = asyncio.create_task(asker.ask())
    await began.wait()
    seen = [asker.in_thread]
    goes_on.set()
    await asking
    assert [*seen, asker.in_thread] == [True, False]
    asker.close()


@pytest.mark.parametrize("what", ["token", "extensions"])
def test_an_awaitable_that_hangs_is_given_up_and_the_provider_called_again(what: str) -> None:
    """A plain function can't be cancelled in its thread. What it has returned is awaited in the loop, and can be."""
    asked = Counter[str]()

    class Odd:
        def token(self) -> Any:
            return self._answer("token", "odd-token")

        def extensions(self) -> Any:
            return self._answer("extensions", {"a": "b"})

        async def _answer(self, of: str, answer: Any) -> Any:
            asked[of] += 1
            if of == what and asked[of] == 1:
                await asyncio.Event().wait()
            return answer

    async def story() -> None:
        loop = asyncio.get_running_loop()
        client, began = credentials(Odd()), loop.time()
        with pytest.raises(AuthenticationFailed, match="the token provider Odd has not returned within 30 s"):
            await client.login()
        assert first_message(await client.login()) == "n,,\x01auth=Bearer odd-token\x01a=b\x01\x01"
        assert loop.time() == pytest.approx(began + 30.1, abs=0.1)

    run_virtually(story)


async def test_extensions_of_the_token_the_provider_and_the_option() -> None:
    class Own(Counting):
        def extensions(self) -> dict[str, str]:
            return {"of": "provider"}

    async def sent(result: Any) -> str:
        found = credentials(Own(lambda: result), sasl_oauthbearer_extensions={"of": "option", "pool": "p"})
        return first_message(await found.login()).partition("token")[2]

    assert await sent("token") == "\x01of=provider\x01pool=p\x01\x01"
    assert await sent(OAuthToken("token", None, {"of": "token"})) == "\x01of=token\x01pool=p\x01\x01"


async def test_the_earlier_one_of_both_ends_counts() -> None:
    now = time.time()
    for expires_at, end in ((now + 50, 50.0), (now + 900, 100.0), (None, 100.0)):
        provider = Counting(partial(OAuthToken, jwt(exp=now + 100), expires_at))
        mechanism = await credentials(provider).login()
        assert mechanism.expires_at == pytest.approx(now + end)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (None, "Counting returned one of NoneType: token() must return a str or an aiokc.OAuthToken"),
        (b"canary", "returned one of bytes"),
        (("canary", 5), "returned one of tuple"),
        ("", "the token has characters that no bearer token may have (RFC 6750), or is empty"),
        ("canary\x01admin=yes", "the token has characters"),
        ("canary\n", "the token has characters"),
        (OAuthToken("canary", None, {"auth": "x"}), "the name of the SASL extension 'auth'"),
        (OAuthToken("canary", None, {"a": "canary\x01b=c"}), "the value of the SASL extension 'a'"),
        (jwt(sub="canary", exp=1_000_000_000), "returned a token that expired"),
        (jwt(sub="canary", exp=1.8e12), "the token ends at 1800000000000, which is no Unix time in seconds"),
    ],
)
async def test_what_is_no_token_is_an_error_that_does_not_show_it(result: Any, text: str) -> None:
    with pytest.raises(AuthenticationFailed) as raised:
        await credentials(Counting(lambda: result)).login()
    assert str(raised.value).startswith("the token provider Counting")
    assert text in str(raised.value)
    assert "canary" not in f"{raised.value!r} {raised.value.__cause__!r}"
    assert raised.value.retriable is ("expired" in text)


@pytest.mark.parametrize("result", [None, ["a"], {"a": 1}, {1: "a"}])
async def test_extensions_that_are_none(result: Any) -> None:
    class Odd(Counting):
        def extensions(self) -> Any:
            return result

    with pytest.raises(AuthenticationFailed, match=r"the token provider Odd: extensions\(\) must return a dict"):
        await credentials(Odd()).login()


async def test_what_the_provider_raises_is_kept_as_the_cause() -> None:
    def broken() -> str:
        raise LookupError("no vault")

    with pytest.raises(AuthenticationFailed) as raised:
        await credentials(Counting(broken)).login()
    assert str(raised.value) == "the token provider Counting raised LookupError: no vault"
    assert isinstance(raised.value.__cause__, LookupError)
    assert raised.value.retriable
    assert raised.value.mechanism == "OAUTHBEARER"


@pytest.mark.any_loop
async def test_a_hundred_clients_with_one_provider_start_with_one_call() -> None:
    provider = Counting()
    clients = [credentials(provider) for _ in range(100)]
    found = await asyncio.gather(*(client.login() for client in clients))
    assert provider.calls == 1
    assert len({id(mechanism) for mechanism in found}) == 100
    assert {first_message(mechanism) for mechanism in found} == {"n,,\x01auth=Bearer token-1\x01\x01"}
    assert all(first_message(client.current()) == first_message(found[0]) for client in clients)
    assert (await credentials(Counting()).login()).secrets != found[1].secrets or provider.calls == 1


async def test_a_hundred_clients_with_equal_options_of_oidc_start_with_one_call() -> None:
    async with idp(granted(expires_in=3600)) as server:

        def client(secret: str) -> Credentials:
            return credentials(
                sasl_oauthbearer_token_endpoint_url=server.url,
                sasl_oauthbearer_client_credentials_client_id="app",
                sasl_oauthbearer_client_credentials_client_secret=secret,
            )

        clients = [client("one") for _ in range(100)]
        await asyncio.gather(*(each.login() for each in clients))
        assert len(server.asked) == 1
        await client("other").login()
        assert len(server.asked) == 2


async def test_other_times_of_refreshing_are_another_source() -> None:
    provider = Counting()
    first, second = credentials(provider), credentials(provider, sasl_login_refresh_window_factor=0.6)
    await first.login()
    await second.login()
    assert provider.calls == 2


async def test_a_source_goes_with_its_last_client() -> None:
    provider = Counting()
    client = credentials(provider)
    await client.login()
    source = weakref.ref(client._login._source)  # type: ignore[attr-defined]
    alive = weakref.ref(provider)
    del client, provider
    gc.collect()
    assert source() is None
    assert alive() is None


def test_each_loop_has_its_own_source_and_nothing_keeps_a_closed_one() -> None:
    provider = Counting()
    clients, loops = [credentials(provider)], []

    async def once() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await clients[0].login()

    asyncio.run(once())
    asyncio.run(once())
    assert provider.calls == 2
    clients.clear()
    gc.collect()
    assert [loop() for loop in loops] == [None, None]


async def test_current_is_what_another_thread_may_use() -> None:
    provider = Counting()
    client = credentials(provider)
    assert client.current() is None
    await client.login()
    found = await asyncio.to_thread(client.current)
    assert first_message(found) == "n,,\x01auth=Bearer token-1\x01\x01"


async def test_current_is_none_once_the_time_is_over() -> None:
    now = [1_800_000_000.0]
    client = Credentials(
        SecurityConfig(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Counting(lambda: OAuthToken("token", now[0] + 100)),
        ),
        clock=lambda: now[0],
    )
    mechanism = await client.login()
    now[0] += 98.5
    assert client.current() is not None
    now[0] += 1
    assert client.current() is None
    now[0] += 1
    with pytest.raises(AuthenticationFailed, match="the token expired"):
        first_message(mechanism)


async def test_a_refused_token_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokc.net.credentials.tokens.token_source._FRESH_SECONDS", -1.0)
    provider = Counting()
    client = credentials(provider)
    first = await client.login()
    client.refused(first)
    second = await client.login()
    assert first_message(second) == "n,,\x01auth=Bearer token-2\x01\x01"
    client.refused(first)
    assert first_message(await client.login()) == first_message(second)
    assert provider.calls == 2


async def test_a_login_that_waits_for_the_next_call_says_why_the_last_one_failed() -> None:
    def seal() -> str:
        raise OSError("the vault is sealed")

    client = credentials(Counting(seal))
    assert client.unanswered("broker 1") is None
    with pytest.raises(AuthenticationFailed, match="the vault is sealed"):
        await client.login()
    waiting = asyncio.ensure_future(client.login())
    await asyncio.sleep(0)
    error = client.unanswered("broker 1")
    waiting.cancel()
    assert str(error).startswith("broker 1: not connected: the token provider Counting raised OSError: the vault is")
    assert error is not None
    assert error.retriable


async def test_another_subject_is_another_principal() -> None:
    async def mechanism(result: str) -> Mechanism:
        return await credentials(Counting(lambda: result)).login()

    alice, again = await mechanism(jwt(sub="alice", n=1)), await mechanism(jwt(sub="alice", n=2))
    bob = await mechanism(jwt(sub="bob", n=3))
    assert Credentials.is_same_principal(alice, again)
    assert not Credentials.is_same_principal(alice, bob)
    assert Credentials.is_same_principal(await mechanism("one"), await mechanism("two"))


async def test_no_debug_output_of_asyncio_shows_a_token(caplog: pytest.LogCaptureFixture) -> None:
    """In debug mode asyncio shows results of tasks, and arguments of callbacks, that take long."""
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0

    with caplog.at_level(logging.DEBUG):
        for provider in (Plain(), Counting(lambda: "canary-token")):
            client = credentials(provider)
            running = asyncio.create_task(client.run())
            mechanism = await client.login()
            assert "canary" not in f"{mechanism!r} {vars(client)!r} {vars(client._login)!r} {asyncio.all_tasks()!r}"
            running.cancel()
            await asyncio.wait([running])
    assert "took" in caplog.text
    assert "canary" not in caplog.text


def test_a_token_shows_nothing_and_takes_seconds_only() -> None:
    token = OAuthToken("canary", 5.0, {"a": "canary"})
    assert repr(token) == "OAuthToken(***, expires_at=5.0, extensions=<a>)"
    assert token == OAuthToken(Secret("canary"), 5.0, {"a": "canary"})
    assert token != OAuthToken("canary", 6.0, {"a": "canary"})
    assert token != "canary"
    assert hash(token) == hash(OAuthToken("canary", 5.0, {"a": "canary"}))
    OAuthToken("canary", 253_402_300_799)  # the last second of the year 9999, which some write for "never"
    with pytest.raises(ValueError, match="Unix seconds"):
        OAuthToken("canary", time.time() * 1000)
    with pytest.raises(TypeError, match=r"a str or a Secret, not bytes"):
        OAuthToken(cast(str, b"canary"))
    with pytest.raises(TypeError):
        token.extensions["b"] = "c"  # type: ignore[index]


async def test_names_in_messages_are_of_the_providers_class() -> None:
    assert ProviderAsker(Plain()).name == "the token provider Plain"


@pytest.mark.parametrize("provider", ["canary", b"canary", lambda: "canary", {"token": "canary"}, Counting])
def test_what_is_no_provider_is_refused_at_once(provider: object) -> None:
    with pytest.raises(ConfigError, match="sasl_oauth_token_provider") as raised:
        credentials(provider)
    assert "canary" not in str(raised.value)
