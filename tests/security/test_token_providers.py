"""Token providers and OpenID providers that fail: what start() raises, and what goes on as long as a token lasts.

The brokers are a real one, and those of the cluster in Python. refused/test_by_the_watchdog.py has the watchdog's
blocking socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.errors import AuthenticationFailed, KafkaError
from aiokc.testing import IdP

from .actors.counting_proxy import CountingProxy
from .actors.members import read
from .actors.starts import raised_by_start
from .secure_cluster import brokers, certificates, tokens
from .ways import Brokers, write

__all__ = ["brokers", "certificates", "tokens"]

pytestmark = [pytest.mark.every_kafka(since="3.1"), pytest.mark.any_loop(uvloop="long"), pytest.mark.timeout(60)]


class Scripted:
    """Calls one function after the other, the last one again and again."""

    def __init__(self, *calls: Callable[[], Any]) -> None:
        self._calls = list(calls)
        self.made = 0

    async def token(self) -> str:
        call = self._calls[min(self.made, len(self._calls) - 1)]
        self.made += 1
        found = call()
        return await found if asyncio.iscoroutine(found) else found  # type: ignore[no-any-return]


def options(brokers: Brokers, provider: Scripted) -> dict[str, Any]:
    return {
        **brokers.options_of("OIDC"),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
        "auto_offset_reset": "earliest",
    }


def options_of_oidc(brokers: Brokers, idp: IdP) -> dict[str, Any]:
    return {
        **brokers.options_of("OIDC"),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": idp.token_url,
        "sasl_oauthbearer_client_credentials_client_id": "billing",
        "sasl_oauthbearer_client_credentials_client_secret": "secret",
        "auto_offset_reset": "earliest",
    }


def down() -> str:
    raise OSError("the directory is down")


async def test_a_provider_that_raises(brokers: Brokers) -> None:
    """start() tries until its deadline. Its error then names the provider, and the provider's error."""
    provider = Scripted(down)

    def make() -> Consumer[Any, Any]:
        provider.made = 0
        return Consumer(**options(brokers, provider))

    await raised_by_start(
        make,
        KafkaError,
        "token provider .*the directory is down",
        until=lambda: provider.made > 1,
    )


async def test_a_provider_that_raises_twice(brokers: Brokers, topic_name: str) -> None:
    brokers.create_topic(topic_name)
    write(brokers, topic_name, b"0")
    provider = Scripted(down, down, lambda: brokers.tokens.signed("alice"))
    async with Consumer(topic_name, group_id=topic_name, **options(brokers, provider)) as consumer:
        assert await read(consumer, 1) == [b"0"]
    assert provider.made == 3


@pytest.mark.parametrize("failure", ["answers 500", "is not there"])
async def test_an_openid_provider_that_is_down(brokers: Brokers, failure: str) -> None:
    """As a provider that raises."""
    with IdP({"billing": "secret"}) as idp:
        options = options_of_oidc(brokers, idp)
        idp.fail(500)
        if failure == "is not there":
            idp.stop()
        text = r"token provider .*answered 500" if failure == "answers 500" else r"token provider .*can't be reached"

        def make() -> Consumer[Any, Any]:
            idp.asked.clear()
            return Consumer(**options)

        raised = await raised_by_start(
            make,
            KafkaError,
            text,
            until=lambda: failure == "is not there" or len(idp.asked) > 1,
        )
        assert raised.retriable


async def test_an_openid_provider_that_fails_twice(brokers: Brokers, topic_name: str) -> None:
    brokers.create_topic(topic_name)
    write(brokers, topic_name, b"0")
    with IdP({"billing": "secret"}) as idp:
        idp.fail(503, times=2)
        idp.answer({"access_token": brokers.tokens.signed("alice"), "expires_in": 3600})
        async with Consumer(topic_name, group_id=topic_name, **options_of_oidc(brokers, idp)) as consumer:
            assert await read(consumer, 1) == [b"0"]
    assert len(idp.asked) == 3


@pytest.mark.long
async def test_a_provider_that_hangs(brokers: Brokers) -> None:
    """Each call has 30 s."""
    provider = Scripted(lambda: asyncio.sleep(3600))
    consumer = Consumer(**options(brokers, provider))
    with pytest.raises(AuthenticationFailed, match=r"token provider .* has not returned within 30 s"):
        await consumer.start(timeout_ms=31_000)
    await consumer.stop()


@pytest.mark.parametrize("lifetime", [-2.0, -600.0])
async def test_a_token_that_has_expired_is_not_sent(brokers: Brokers, lifetime: float) -> None:
    """Not within the broker's clock skew either: the broker would take the token, and close at the first request."""
    provider = Scripted(lambda: brokers.tokens.signed("alice", lifetime=lifetime))
    await raised_by_start(
        lambda: Consumer(**options(brokers, provider)),
        AuthenticationFailed,
        r"returned a token that expired \d+ s ago by this computer's clock",
    )


@pytest.mark.long
@pytest.mark.parametrize("failure", ["it is down", "it gives an expired token"])
async def test_tokens_that_are_short_and_a_provider_that_fails_in_between(
    brokers: Brokers, topic_name: str, failure: str
) -> None:
    """A token of 8 s bounds the session. The provider fails at the first renewal: the old token serves meanwhile."""
    brokers.create_topic(topic_name)

    def short() -> str:
        return brokers.tokens.signed("alice", lifetime=8)

    def expired() -> str:
        return brokers.tokens.signed("alice", lifetime=-5)

    provider = Scripted(short, down if failure == "it is down" else expired, short)
    with CountingProxy(brokers.bootstrap_of("OIDC")) as proxy:
        async with Consumer(
            topic_name, group_id=topic_name, resolve=proxy.resolve, **options(brokers, provider)
        ) as consumer:
            await _one_more(brokers, topic_name, consumer)
            await consumer.commit()
            opened = proxy.opened
            for _ in range(12):
                await _one_more(brokers, topic_name, consumer)
                await asyncio.sleep(1)
            assert proxy.opened == opened
            assert consumer.metrics().rebalances.count == 1
    assert provider.made >= 3


async def _one_more(brokers: Brokers, topic: str, consumer: Consumer[Any, Any]) -> None:
    await asyncio.to_thread(write, brokers, topic, b"x")
    assert await read(consumer, 1) == [b"x"]
