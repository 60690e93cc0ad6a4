"""What a broker lets through before, during and after authentication, and the end of a session (KIP-152, KIP-368)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster, TokenRules
from aiokc.testing.security.jwt import unsecured_token
from aiokc.wire.messages.discovery import ApiVersionsRequest, MetadataRequest
from aiokc.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokc.wire.messages.group import HeartbeatRequest
from aiokc.wire.messages.sasl import SaslHandshakeRequest
from tests.client.virtually import virtually

from ..wire_client import WireClient, connected
from .sasl_client import authenticate, handshake, is_closed, logged_in, oauth, plain, scram, versions

pytestmark = pytest.mark.timeout(20)


def now() -> float:
    return asyncio.get_running_loop().time()


def story(tell: Callable[[Cluster], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run ``tell`` in virtual time, with a cluster of one broker and the users alice and bob."""
    virtually(tell, **{"brokers": 1, "sasl": {"alice": "secret", "bob": "secret"}, "clock": now, **options})


async def serves(client: WireClient) -> bool:
    """Return whether the broker answers a request; False where it closes the connection instead."""
    client.send(MetadataRequest(topics=[]))
    try:
        return len((await client.receive()).brokers) == 1
    except (EOFError, ConnectionError):
        return False


# Before and during authentication


def test_versions_may_be_asked_once_before_authentication_and_again_after_it() -> None:
    async def tell(cluster: Cluster) -> None:
        async with connected(cluster.bootstrap) as client:
            await versions(client)
            await plain(client, "alice", "secret")
            assert (await versions(client)).error_code == 0
            assert (await versions(client)).error_code == 0
        async with connected(cluster.bootstrap) as client:
            await versions(client)
            began = now()
            client.send(ApiVersionsRequest(), 0)
            assert await is_closed(client)
            assert now() - began < 0.05  # an IllegalStateException in the broker: at once

    story(tell)


def test_versions_that_are_refused_may_be_asked_again() -> None:
    async def tell(cluster: Cluster) -> None:
        async with connected(cluster.bootstrap) as client:
            client.write(bytes.fromhex("00000010 0012 7fff 00000001 0005") + b"tests\0")
            answer = await client.frame()
            assert int.from_bytes(answer[4:6]) == ErrorCode.UNSUPPORTED_VERSION
            wrong = ApiVersionsRequest(client_software_name="", client_software_version="")
            assert (await client.ask(wrong, 3)).error_code == ErrorCode.INVALID_REQUEST
            assert (await versions(client)).error_code == 0
            assert (await plain(client, "alice", "secret")).error_code == 0

    story(tell)


def test_a_request_before_authentication_closes_the_connection_without_an_answer() -> None:
    async def tell(cluster: Cluster) -> None:
        for first in (True, False):
            async with connected(cluster.bootstrap) as client:
                if not first:
                    await versions(client)
                began = now()
                assert not await serves(client)
                assert 0.1 <= now() - began < 0.2  # KIP-306

    story(tell)


def test_another_request_instead_of_authenticate_gets_its_own_layout_and_the_connection_is_closed() -> None:
    async def tell(cluster: Cluster) -> None:
        for request, version in (
            (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
            (FetchRequest(topics=[], max_wait_ms=0, min_bytes=0), 12),
        ):
            async with connected(cluster.bootstrap) as client:
                await handshake(client, "PLAIN")
                answer: Any = await client.ask(request, version)
                assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
                assert await is_closed(client)
        async with connected(cluster.bootstrap) as client:
            await handshake(client, "PLAIN")
            client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert (await client.receive()).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await is_closed(client)

    story(tell)


def test_a_listener_without_sasl_says_so_and_goes_on() -> None:
    async def tell(cluster: Cluster) -> None:
        async with connected(cluster.bootstrap) as client:
            answer = await handshake(client, "PLAIN")
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
            assert (await authenticate(client, b"\0alice\0secret")).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await serves(client)

    virtually(tell, brokers=1)


def test_a_refusal_comes_late() -> None:
    async def tell(cluster: Cluster) -> None:
        for mechanism, seconds in (("PLAIN", 0.5), ("NONE-SUCH", 0.5)):
            async with connected(cluster.bootstrap) as client:
                began = now()
                if mechanism == "PLAIN":
                    await plain(client, "alice", "wrong")
                else:
                    await handshake(client, mechanism)
                assert seconds <= now() - began < seconds + 0.1

    story(tell, connection_failed_authentication_delay_ms=500)


# Sessions


def test_a_session_has_no_end_by_default() -> None:
    async def tell(cluster: Cluster) -> None:
        async with logged_in(cluster.bootstrap) as client:
            await asyncio.sleep(10_000)
            assert await serves(client)
            answer = await handshake(client, "PLAIN")
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
            assert await serves(client)

    story(tell)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_next_request_after_the_end_of_a_session_closes_the_connection(version: int) -> None:
    async def tell(cluster: Cluster) -> None:
        async with connected(cluster.bootstrap) as client:
            await handshake(client, "PLAIN")
            answer = await authenticate(client, b"\0alice\0secret", version)
            assert answer.session_lifetime_ms == (4000 if version else 0)  # 0 is cut untold
            await asyncio.sleep(3.9)
            assert await serves(client)
            await asyncio.sleep(0.2)
            began = now()
            assert not await serves(client)
            assert now() - began < 0.05

    story(tell, session_ms=4000)


def test_a_connection_authenticates_again_even_after_the_end_of_its_session() -> None:
    async def tell(cluster: Cluster) -> None:
        async with logged_in(cluster.bootstrap) as client:
            for pause in (3.0, 7.0, 3.0):
                await asyncio.sleep(pause)
                answer = await plain(client, "alice", "secret")
                assert (answer.error_code, answer.session_lifetime_ms) == (0, 4000)
                assert await serves(client)

    story(tell, session_ms=4000)


def test_a_request_that_is_parked_over_the_end_of_a_session_is_answered() -> None:
    async def tell(cluster: Cluster) -> None:
        async with logged_in(cluster.bootstrap) as client:
            began = now()
            await asyncio.sleep(3.5)
            topics = [
                FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)])
            ]
            answer = await client.ask(FetchRequest(topics=topics, max_wait_ms=2000, min_bytes=1, session_epoch=-1), 12)
            assert now() - began > 5.4
            assert answer.responses[0].partitions[0].error_code == 0
            assert not await serves(client)

    story(tell, session_ms=4000)


def test_a_handshake_that_is_read_after_the_end_of_a_session_behind_a_parked_request() -> None:
    async def tell(cluster: Cluster) -> None:
        cluster.slow_link(1, latency=2.0)  # the answer before takes as long as a Fetch that is parked
        async with connected(cluster.bootstrap) as client:
            await plain(client, "alice", "secret")
            await asyncio.sleep(0.5)
            client.send(MetadataRequest(topics=[]))
            client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert (await client.receive()).brokers
            assert (await client.receive()).error_code == 0
            assert (await authenticate(client, b"\0alice\0secret")).error_code == 0

    story(tell, session_ms=2600)


def test_a_second_time_within_a_second_is_refused_and_the_connection_stays_usable() -> None:
    async def tell(cluster: Cluster) -> None:
        async with logged_in(cluster.bootstrap) as client:
            assert (await plain(client, "alice", "secret")).error_code == 0  # the first time may be at once
            answer = await handshake(client, "PLAIN")
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
            assert await serves(client)
            await asyncio.sleep(1.0)
            assert (await plain(client, "alice", "secret")).error_code == 0

    story(tell, session_ms=4000)


def test_a_connection_cannot_change_its_user() -> None:
    async def tell(cluster: Cluster) -> None:
        async with logged_in(cluster.bootstrap) as client:
            answer = await plain(client, "bob", "secret")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            text = "Cannot change principals during re-authentication from User.alice: User.bob"
            assert answer.error_message == text
            assert await is_closed(client)

    story(tell, session_ms=4000)


def test_a_connection_cannot_change_its_mechanism() -> None:
    async def tell(cluster: Cluster) -> None:
        async with logged_in(cluster.bootstrap) as client:
            assert (await handshake(client, "SCRAM-SHA-256")).error_code == 0  # and yet:
            client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert await is_closed(client)

    story(tell, session_ms=4000)


def test_wrong_credentials_the_second_time() -> None:
    async def tell(cluster: Cluster) -> None:
        async with logged_in(cluster.bootstrap) as client:
            cluster.set_password("alice", "another")
            assert (await plain(client, "alice", "secret")).error_message == (
                "Authentication failed: Invalid username or password"
            )
            assert await is_closed(client)
        async with connected(cluster.bootstrap) as client:
            await scram(client, "SCRAM-SHA-256", "alice", "another")
            answer, _ = await scram(client, "SCRAM-SHA-256", "alice", "wrong")
            assert answer.error_message == (
                "Authentication failed during re-authentication due to invalid credentials with SASL mechanism"
                " SCRAM-SHA-256"
            )

    story(tell, session_ms=4000)


@pytest.mark.parametrize(("session_ms", "expected"), [(0, 30_000), (4000, 4000), (60_000, 30_000)])
def test_a_session_is_no_longer_than_its_token(session_ms: int, expected: int) -> None:
    async def tell(cluster: Cluster) -> None:
        async with connected(cluster.bootstrap) as client:
            answer = await oauth(client, unsecured_token("alice", 30.0, now=now))
            assert expected - 10 <= answer.session_lifetime_ms <= expected
            await asyncio.sleep(expected / 1000 - 0.1)
            assert await serves(client)
            await asyncio.sleep(0.2)
            assert not await serves(client)

    story(tell, session_ms=session_ms)


def test_a_token_that_has_ended_within_the_clock_skew_logs_in_for_nothing() -> None:
    async def tell(cluster: Cluster) -> None:
        for age, is_accepted in ((10.0, True), (31.0, False)):
            async with connected(cluster.bootstrap) as client:
                answer = await oauth(client, unsecured_token("alice", -age, now=now))
                assert (answer.auth_bytes == b"") is is_accepted
                if is_accepted:
                    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
                    assert not await serves(client)

    story(tell, tokens=TokenRules(clock_skew=30.0))


# Faults of sessions


def test_sessions_expire_and_are_demanded_to_renew() -> None:
    async def tell(cluster: Cluster) -> None:
        async with logged_in(cluster.bootstrap) as one, logged_in(cluster.bootstrap) as two:
            await asyncio.sleep(5)
            cluster.expire_sessions()
            assert not await serves(one)
            assert (await plain(two, "alice", "secret")).session_lifetime_ms == 0
            assert await serves(two)
            cluster.demand_reauth(2.0)
            await asyncio.sleep(1.9)
            assert await serves(two)
            await asyncio.sleep(0.2)
            assert not await serves(two)

    story(tell)


def test_the_length_of_sessions_changes() -> None:
    async def tell(cluster: Cluster) -> None:
        lifetimes = []
        for milliseconds in (None, 2000, 0, -1):
            if milliseconds == -1:
                cluster.heal()
            elif milliseconds is not None:
                cluster.session(milliseconds)
            async with connected(cluster.bootstrap) as client:
                lifetimes.append((await plain(client, "alice", "secret")).session_lifetime_ms)
        assert lifetimes == [4000, 2000, 0, 4000]

    story(tell, session_ms=4000)


def test_sessions_of_a_listener_without_sasl_have_no_end() -> None:
    async def tell(cluster: Cluster) -> None:
        async with connected(cluster.bootstrap) as client:
            assert await serves(client)
            cluster.expire_sessions()
            await asyncio.sleep(1)
            assert await serves(client)

    virtually(tell, brokers=1)
