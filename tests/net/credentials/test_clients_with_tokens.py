"""Whole consumers with token providers that work, fail, hang or refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.errors import AuthenticationFailed, KafkaError
from aiokc.testing import Cluster
from aiokc.testing.security.jwt import unsecured_token
from tests.client.virtually import virtually


class Provider:
    """Tokens for alice, or what ``answer`` does at the nth call."""

    def __init__(self, answer: Callable[[int], Any] = lambda call: None) -> None:
        self.calls: list[float] = []
        self._answer = answer

    async def token(self) -> str:
        self.calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.05)
        await asyncio.sleep(self._answer(len(self.calls)) or 0)
        return unsecured_token("alice")


def fails(error: Exception, *, times: float = float("inf")) -> Callable[[int], None]:
    def answer(call: int) -> None:
        if call <= times:
            raise error

    return answer


def consumer(cluster: Cluster, provider: Provider, **options: Any) -> Consumer[bytes, bytes]:
    return Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        allow_plaintext_credentials=True,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
        auto_offset_reset="earliest",
        **options,
    )


def with_tokens(story: Callable[[Cluster], Any]) -> None:
    virtually(story, brokers=1, topics={"t": 1}, mechanisms=("OAUTHBEARER",))


async def failure(starting: Consumer[bytes, bytes]) -> tuple[KafkaError, float]:
    """Return what start() raises, and after how many seconds."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(KafkaError) as raised:
        async with starting:
            raise AssertionError("it has started")
    return raised.value, loop.time() - begun


def test_a_hundred_consumers_start_with_one_call() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        provider = Provider()

        async def read() -> None:
            async with consumer(cluster, provider) as found:
                assert (await found.getone()).value == b"v"

        await asyncio.gather(*(read() for _ in range(100)))
        assert len(provider.calls) == 1

    with_tokens(story)


def test_a_provider_that_recovers_lets_start_succeed() -> None:
    async def story(cluster: Cluster) -> None:
        provider = Provider(fails(OSError("the vault is sealed"), times=5))
        async with consumer(cluster, provider):
            pass
        pauses = [later - sooner for sooner, later in zip(provider.calls, provider.calls[1:], strict=False)]
        assert len(provider.calls) == 6
        assert all(0.08 * 2**n <= pause <= 0.4 * 2**n + 3 for n, pause in enumerate(pauses))

    with_tokens(story)


def test_a_provider_that_stays_down_is_named_by_start() -> None:
    async def story(cluster: Cluster) -> None:
        provider = Provider(fails(OSError("the vault is sealed")))
        error, seconds = await failure(consumer(cluster, provider, default_api_timeout_ms=20_000))
        assert "the token provider Provider raised OSError: the vault is sealed" in str(error)
        assert error.retriable
        assert 5 <= seconds <= 21
        assert len(provider.calls) < 15

    with_tokens(story)


def test_a_provider_that_hangs_is_named_by_start() -> None:
    async def story(cluster: Cluster) -> None:
        provider = Provider(lambda call: 10_000)
        error, seconds = await failure(consumer(cluster, provider))
        assert "the token provider Provider has not returned within 30 s" in str(error)
        assert seconds <= 61
        assert len(provider.calls) <= 2

    with_tokens(story)


def test_a_provider_that_hangs_is_named_by_a_start_that_waits_less_than_it() -> None:
    async def story(cluster: Cluster) -> None:
        provider = Provider(lambda call: 10_000)
        error, seconds = await failure(consumer(cluster, provider, default_api_timeout_ms=1_000))
        assert "what provides the credentials for OAUTHBEARER has not answered yet" in str(error)
        assert isinstance(error, AuthenticationFailed)
        assert error.retriable
        assert seconds <= 2

    with_tokens(story)


def test_a_provider_that_refuses_ends_start_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        provider = Provider(fails(AuthenticationFailed("the account is closed")))
        error, seconds = await failure(consumer(cluster, provider))
        assert isinstance(error, AuthenticationFailed)
        assert "the account is closed" in str(error)
        assert not error.retriable
        assert seconds < 1
        assert len(provider.calls) == 1

    with_tokens(story)


def test_an_expired_token_is_never_sent() -> None:
    async def story(cluster: Cluster) -> None:
        class Late(Provider):
            async def token(self) -> str:
                self.calls.append(0.0)
                return unsecured_token("alice", lifetime=-5.0)

        provider = Late()
        error, _ = await failure(consumer(cluster, provider, default_api_timeout_ms=5_000))
        assert "returned a token that expired" in str(error)
        assert "by this computer's clock" in str(error)

    with_tokens(story)
