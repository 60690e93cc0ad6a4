"""What a client does at the end of a SASL session, and of a token: on asyncio, on uvloop, and on the watchdog's
blocking socket. The broker is one of the cluster in Python.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.errors import AuthenticationFailed, ConnectionFailed, KafkaError, RequestTimedOut
from aiokc.testing import Cluster, TokenRules
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.security.jwt import CLOCK_SKEW, unsecured_token
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.offsets import ListOffsetsRequest
from aiokc.wire.messages.sasl import SaslAuthenticateRequest

from ...client.virtually import Asked, virtually
from ..actors.held import Held
from ..actors.members import read
from ..actors.watchdog import ask, of_the_watchdog

pytestmark = pytest.mark.timeout(30)

ZERO = TopicPartition("t", 0)
# A second attempt comes at once, as is right here, or after the test's timeout.
PAUSES = ("retry_backoff_ms", "retry_backoff_max_ms", "reconnect_backoff_ms", "reconnect_backoff_max_ms")
AT_ONCE = dict.fromkeys(PAUSES, 60_000)
ALICE = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "alice", "sasl_plain_password": "secret"}


def options(cluster: Cluster, **given: Any) -> dict[str, Any]:
    listener = {"security_protocol": "SASL_PLAINTEXT", "allow_plaintext_credentials": True}
    return {"bootstrap_servers": cluster.bootstrap, **listener, **given}


@pytest.mark.any_loop(uvloop="long")
async def test_a_request_behind_a_parked_one_at_the_end_of_a_session(caplog: pytest.LogCaptureFixture) -> None:
    """The broker answers the parked one. At the next one it closes the connection, and that is no failure."""
    caplog.set_level(logging.INFO, logger="aiokc.net")
    try:
        with Held() as held:
            async with asyncio.timeout(6):
                return await ask_behind_a_parked_one(caplog, session_ms=2_000)
    except (AssertionError, KafkaError, TimeoutError):
        if held.longest < 0.2:
            raise  # no busy machine was too late for the short session
    await ask_behind_a_parked_one(caplog, session_ms=12_000)


async def ask_behind_a_parked_one(caplog: pytest.LogCaptureFixture, *, session_ms: int) -> None:
    async def park(exchange: Exchange) -> None:
        await asyncio.sleep(session_ms / 1e3 + 0.1)
        await exchange.go_on()

    async with (
        Cluster(brokers=1, topics={"t": 1}, sasl={"alice": "secret"}, session_ms=session_ms) as cluster,
        Consumer(**options(cluster, **ALICE, **AT_ONCE)) as consumer,
    ):
        caplog.clear()  # of the warning about PLAIN over SASL_PLAINTEXT
        cluster.append("t", b"1", b"2")
        parked = cluster.intercept(ListOffsetsRequest, park, times=1)
        end = asyncio.ensure_future(consumer.end_offsets([ZERO]))
        await parked.caught()
        assert await consumer.beginning_offsets([ZERO]) == {ZERO: 0}
        assert await end == {ZERO: 2}
    ends = [one for one in caplog.records if "closed the connection at the end of its SASL session" in one.message]
    assert [one.levelname for one in ends] == ["INFO"]
    assert len(caplog.records) == 1


async def test_a_request_of_the_watchdog_after_the_end_of_its_session() -> None:
    """The broker ends the session sooner than it said. The connection is lost, and a new one is served."""
    async with (
        Cluster(brokers=1, sasl={"alice": "secret"}, session_ms=60_000) as cluster,
        of_the_watchdog(**options(cluster, **ALICE)) as connect,
    ):
        connection = await connect()
        assert await ask(connection) == 1
        assert not connection.is_over
        cluster.expire_sessions()
        with pytest.raises(ConnectionFailed, match=r"closed the connection$"):
            await ask(connection)
        again = await connect()
        assert await ask(again) == 1
        again.close()


def test_sessions_that_are_shorter_than_a_broker_lets_them_be_renewed() -> None:
    """A broker lets nobody authenticate again within a second: requests wait for that, and no connection is lost."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        asked = Asked(cluster, loop)
        given = {**ALICE, "group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 300}
        async with Consumer("t", **options(cluster, **given)) as consumer:
            cluster.append("t", b"0")
            assert await read(consumer, 1) == [b"0"]
            await consumer.commit()
            began = loop.time()
            for number in range(1, 40):
                await asyncio.sleep(0.25)
                cluster.append("t", b"%d" % number)
                assert await read(consumer, 1) == [b"%d" % number]
            assert loop.time() - began < 40
            assert asked.since(began)["connect"] == 0
            assert consumer.metrics().failed_fetches == consumer.metrics().failed_heartbeats == 0

    virtually(story, brokers=1, topics={"t": 1}, sasl={"alice": "secret"}, session_ms=500)


class Provider:
    """Gives tokens of this lifetime in seconds, and keeps those that are expired."""

    def __init__(self, lifetime: float) -> None:
        self.lifetime = lifetime
        self.expired: list[bytes] = []

    async def token(self) -> str:
        token = unsecured_token("alice", self.lifetime)
        if self.lifetime < 0:
            self.expired.append(token.encode())
        return token

    @property
    def options(self) -> dict[str, Any]:
        return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": self}


def with_tokens() -> Cluster:
    """A cluster that takes tokens which are over by less than CLOCK_SKEW, and then closes at the first request."""
    return Cluster(brokers=1, topics={"t": 1}, mechanisms=["OAUTHBEARER"], tokens=TokenRules(clock_skew=CLOCK_SKEW))


@pytest.mark.any_loop(uvloop="long")
async def test_a_provider_that_gives_an_expired_token_at_the_renewal_of_a_session() -> None:
    """It is not sent. What waits for a connection is told why, and goes on with the next token."""
    provider, sent = Provider(2.0), list[bytes]()

    async def look(exchange: Exchange) -> None:
        assert isinstance(exchange.request, SaslAuthenticateRequest)
        sent.append(exchange.request.auth_bytes)
        await exchange.go_on()

    given = {**provider.options, "group_id": "g", "auto_offset_reset": "earliest"}
    async with with_tokens() as cluster, Consumer("t", **options(cluster, **given)) as consumer:
        cluster.intercept(SaslAuthenticateRequest, look)
        cluster.append("t", b"1")
        assert await read(consumer, 1) == [b"1"]
        provider.lifetime = -5.0
        told: RequestTimedOut | None = None
        async with asyncio.timeout(20):
            while "Provider returned" not in str(told):  # a busy machine may be late with an answer, too
                try:
                    await consumer.end_offsets([ZERO], timeout_ms=500)
                    await asyncio.sleep(0.02)
                except RequestTimedOut as error:
                    told = error
        assert told is not None
        before, provider.lifetime = len(sent), 3600.0
        cluster.append("t", b"2")
        assert await read(consumer, 1) == [b"2"]
        assert consumer.metrics().rebalances.count == 1
    assert len(sent) > before
    assert provider.expired
    assert not [token for token in provider.expired if any(token in each for each in sent)]
    assert re.search(r"Provider returned a token that expired \d+ s ago by this computer's clock", str(told))
    assert isinstance(told.__cause__, AuthenticationFailed)
    assert told.__cause__.retriable
