"""Token providers that fail, on a real broker: what start() raises, and what goes on as long as a token lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.errors import AuthenticationFailed, KafkaError
from aiokc.testing.kafka import SecureKafka
from tests.producing import produce

from .actors.counting_proxy import CountingProxy
from .actors.members import read

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


def options(kafka: SecureKafka, provider: Scripted) -> dict[str, Any]:
    return {
        **kafka.options_of("OIDC"),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
        "auto_offset_reset": "earliest",
    }


def down() -> str:
    raise OSError("the directory is down")


async def test_a_provider_that_raises(secure_kafka: SecureKafka) -> None:
    """start() tries until its deadline. Its error then names the provider, and the provider's error."""
    provider = Scripted(down)
    consumer = Consumer(**options(secure_kafka, provider))
    with pytest.raises(KafkaError, match="token provider") as raised:
        await consumer.start(timeout_ms=800)
    assert "the directory is down" in str(raised.value)
    assert provider.made > 1
    await consumer.stop()


async def test_a_provider_that_raises_twice(secure_kafka: SecureKafka, topic_name: str) -> None:
    secure_kafka.create_topic(topic_name)
    produce(secure_kafka.bootstrap, topic_name, [b"0"])
    provider = Scripted(down, down, lambda: secure_kafka.tokens.signed("alice"))
    async with Consumer(topic_name, group_id=topic_name, **options(secure_kafka, provider)) as consumer:
        assert await read(consumer, 1) == [b"0"]
    assert provider.made == 3


@pytest.mark.long
async def test_a_provider_that_hangs(secure_kafka: SecureKafka) -> None:
    """Each call has 30 s."""
    provider = Scripted(lambda: asyncio.sleep(3600))
    consumer = Consumer(**options(secure_kafka, provider))
    with pytest.raises(AuthenticationFailed, match=r"token provider .* has not returned within 30 s"):
        await consumer.start(timeout_ms=31_000)
    await consumer.stop()


@pytest.mark.parametrize("lifetime", [-2.0, -600.0])
async def test_a_token_that_has_expired_is_not_sent(secure_kafka: SecureKafka, lifetime: float) -> None:
    """Not within the broker's clock skew either: the broker would take the token, and close at the first request."""
    provider = Scripted(lambda: secure_kafka.tokens.signed("alice", lifetime=lifetime))
    consumer = Consumer(**options(secure_kafka, provider))
    with pytest.raises(AuthenticationFailed, match=r"returned a token that expired \d+ s ago by this computer's clock"):
        await consumer.start(timeout_ms=800)
    await consumer.stop()


@pytest.mark.long
@pytest.mark.parametrize("failure", ["it is down", "it gives an expired token"])
async def test_tokens_that_are_short_and_a_provider_that_fails_in_between(
    secure_kafka: SecureKafka, topic_name: str, failure: str
) -> None:
    """A token of 8 s bounds the session. The provider fails at the first renewal: the old token serves meanwhile."""
    secure_kafka.create_topic(topic_name)

    def short() -> str:
        return secure_kafka.tokens.signed("alice", lifetime=8)

    def expired() -> str:
        return secure_kafka.tokens.signed("alice", lifetime=-5)

    provider = Scripted(short, down if failure == "it is down" else expired, short)
    with CountingProxy(secure_kafka.bootstrap_of("OIDC")) as proxy:
        async with Consumer(
            topic_name, group_id=topic_name, resolve=proxy.resolve, **options(secure_kafka, provider)
        ) as consumer:
            await _one_more(secure_kafka, topic_name, consumer)
            await consumer.commit()
            opened = proxy.opened
            for _ in range(12):
                await _one_more(secure_kafka, topic_name, consumer)
                await asyncio.sleep(1)
            assert proxy.opened == opened
            assert consumer.metrics().rebalances.count == 1
    assert provider.made >= 3


async def _one_more(kafka: SecureKafka, topic: str, consumer: Consumer[Any, Any]) -> None:
    await asyncio.to_thread(produce, kafka.bootstrap, topic, [b"x"])
    assert await read(consumer, 1) == [b"x"]
