"""What a broker denies in the second half of a token's life is sent again in a new session, and only that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from aiokc import ErrorCode, OAuthToken
from aiokc.client.producer.producer import Producer
from aiokc.errors import RecordRefused
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, refuse_partition
from aiokc.testing.security.jwt import unsecured_token

from ..virtually import virtually

DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
SECONDS: Final = 600.0  # of a token's life
CODES: Final = [
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
]


class Tokens:
    async def token(self) -> OAuthToken:
        return OAuthToken(unsecured_token("alice", SECONDS), time.time() + SECONDS)


class Authorizer:
    """Denies what comes in a session that began before ``grows_old``: a SaslHandshake begins another one."""

    def __init__(self, cluster: Cluster) -> None:
        self._is_old = False
        self.logins = 0
        cluster.intercept(ApiKey.SASL_HANDSHAKE, self._login)

    def grows_old(self) -> None:
        self._is_old, self.logins = True, 0

    def denies(self, _: Exchange) -> bool:
        return self._is_old

    async def _login(self, exchange: Exchange) -> None:
        self._is_old = False
        self.logins += 1
        await exchange.go_on()


@asynccontextmanager
async def late(cluster: Cluster, **options: Any) -> AsyncIterator[tuple[Producer[bytes, bytes], Authorizer]]:
    """A producer whose only connection has lived for more than half of its token's life."""
    authorizer = Authorizer(cluster)
    login: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(),
        "allow_plaintext_credentials": True,
    }
    quiet: dict[str, Any] = {"metadata_max_age_ms": 3_600_000, "connections_max_idle_ms": 3_600_000}
    async with Producer(bootstrap_servers=cluster.bootstrap, **login, **quiet, **options) as producer:
        for partition in range(2):
            if "transactional_id" in options:
                async with producer.transaction():
                    await producer.send("t", b"first", partition=partition)
            else:
                await producer.send_and_wait("t", b"first", partition=partition)
        await asyncio.sleep(0.55 * SECONDS)
        authorizer.grows_old()
        yield producer, authorizer


def stored(cluster: Cluster, partition: int) -> list[bytes | None]:
    return [record.value for record in cluster.records("t", partition)][1:]


def run(story: Any) -> None:
    virtually(story, brokers=1, mechanisms=("OAUTHBEARER",))


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_all_that_is_in_flight_is_denied_and_sent_again(code: ErrorCode) -> None:
    """The denial of the first has the session renewed, which those behind it were not sent in."""

    async def story(cluster: Cluster) -> None:
        async with late(cluster, linger_ms=0) as (producer, authorizer):
            hold = Hold()
            cluster.intercept(ApiKey.PRODUCE, hold, times=1, where=authorizer.denies)
            cluster.intercept(ApiKey.PRODUCE, code, where=authorizer.denies)
            deliveries = []
            for number in range(5):
                deliveries.append(await producer.send("t", b"%d" % number, partition=0))
                await asyncio.sleep(0.1)
            hold.release()
            for delivery in deliveries:
                await delivery
            assert stored(cluster, 0) == [b"0", b"1", b"2", b"3", b"4"]
            assert authorizer.logins == 1

    run(story)


def test_what_was_stored_beside_it_is_not_sent_again() -> None:
    """Without idempotence it would be there twice."""

    async def story(cluster: Cluster) -> None:
        async with late(cluster, linger_ms=100, enable_idempotence=False) as (producer, authorizer):
            cluster.intercept(ApiKey.PRODUCE, refuse_partition("t", 1, DENIED), times=1, where=authorizer.denies)
            deliveries = [await producer.send("t", b"x", partition=partition) for partition in range(2)]
            for delivery in deliveries:
                await delivery
            assert stored(cluster, 0) == stored(cluster, 1) == [b"x"]
            assert authorizer.logins == 1

    run(story)


def test_a_denial_that_stays_is_believed_and_says_that_nothing_is_stored() -> None:
    async def story(cluster: Cluster) -> None:
        async with late(cluster) as (producer, authorizer):
            cluster.intercept(ApiKey.PRODUCE, DENIED)
            for logins in (1, 1):
                with pytest.raises(RecordRefused) as refused:
                    await producer.send_and_wait("t", b"x", partition=0)
                assert refused.value.persisted == "no"
                assert authorizer.logins == logins
            assert stored(cluster, 0) == []

    run(story)


@pytest.mark.parametrize(
    ("api", "level"), [(ApiKey.ADD_PARTITIONS_TO_TXN, 0), (ApiKey.PRODUCE, 0), (ApiKey.PRODUCE, 2)]
)
def test_a_transaction_is_committed(api: ApiKey, level: int) -> None:
    async def story(cluster: Cluster) -> None:
        async with late(cluster, transactional_id="id") as (producer, authorizer):
            cluster.intercept(api, DENIED, where=authorizer.denies)
            async with producer.transaction():
                await producer.send("t", b"x", partition=0)
            assert stored(cluster, 0)[-1:] == [b"x"]

    virtually(story, brokers=1, mechanisms=("OAUTHBEARER",), features={"transaction.version": level})
