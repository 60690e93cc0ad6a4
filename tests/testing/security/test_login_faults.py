"""The faults of logins, as a client sees them on the wire."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing import ApiKey, Cluster, faults
from aiokc.testing.security.jwt import unsecured_token
from aiokc.wire.messages.sasl import SaslAuthenticateResponse

from ..wire_client import connected
from .sasl_client import Scram, authenticate, handshake, is_closed, logged_in, oauth, plain, scram

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(
        sasl={"alice": "secret", "bob": "secret"}, connection_failed_authentication_delay_ms=0, session_ms=60_000
    ) as started:
        yield started


async def login(cluster: Cluster, user: str = "alice") -> SaslAuthenticateResponse:
    async with connected(cluster.bootstrap) as client:
        return await plain(client, user, "secret")


async def first_answer(cluster: Cluster, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
    async with connected(cluster.bootstrap) as client:
        await handshake(client, mechanism)
        answer = await authenticate(client, Scram(mechanism, "alice", "secret").first)
        return dict(one.split("=", 1) for one in bytes(answer.auth_bytes).decode().split(","))


async def test_a_login_is_refused(cluster: Cluster) -> None:
    fault = cluster.refuse_login(ErrorCode.SASL_AUTHENTICATION_FAILED, "the directory is away", times=2, user="alice")
    answers = [await login(cluster), await login(cluster, "bob")]
    async with connected(cluster.bootstrap) as client:
        answers.append((await scram(client, "SCRAM-SHA-512", "alice", "secret"))[0])
        assert await is_closed(client)
    answers.append(await login(cluster))
    refused = (58, "the directory is away")
    assert [(one.error_code, one.error_message) for one in answers] == [refused, (0, None), refused, (0, None)]
    assert fault.hits == 2


async def test_a_login_is_slow(cluster: Cluster) -> None:
    fault = cluster.slow_login(0.2)
    began = asyncio.get_running_loop().time()
    assert (await login(cluster)).error_code == 0
    assert asyncio.get_running_loop().time() - began >= 0.2
    assert fault.hits == 1


async def test_the_connection_is_closed_after_the_handshake(cluster: Cluster) -> None:
    cluster.close_after_handshake(times=1)
    async with connected(cluster.bootstrap) as client:
        assert (await handshake(client, "PLAIN")).error_code == 0
        assert await is_closed(client)
    assert (await login(cluster)).error_code == 0


async def test_a_broker_does_not_prove_that_it_knows_the_password(cluster: Cluster) -> None:
    cluster.wrong_server_signature(times=1)
    found = []
    for _ in range(2):
        async with connected(cluster.bootstrap) as client:
            answer, is_proven = await scram(client, "SCRAM-SHA-256", "alice", "secret")
            found.append((answer.error_code, is_proven))
    assert found == [(0, False), (0, True)]


@pytest.mark.parametrize("announced", [0, 4095, 2**31, "1e9", "٤٠٩٦"])
async def test_iterations_that_a_client_must_refuse(cluster: Cluster, announced: int | str) -> None:
    cluster.iterations(announced, times=1)
    assert (await first_answer(cluster))["i"] == str(announced)
    assert (await first_answer(cluster))["i"] == "4096"


async def test_iterations_that_a_client_may_accept(cluster: Cluster) -> None:
    cluster.iterations(8192)
    async with connected(cluster.bootstrap) as client:
        answer, is_proven = await scram(client, "SCRAM-SHA-512", "alice", "secret")
    assert (answer.error_code, is_proven) == (0, True)


async def test_a_nonce_that_is_not_the_clients(cluster: Cluster) -> None:
    own = "rOprNGfwEbeRWgbNEkqO"
    right = (await first_answer(cluster))["r"]
    assert right.startswith(own)
    assert len(base64.b64decode(right[len(own) :])) == 18
    for kind in ("other", "equal", "shorter"):
        cluster.foreign_nonce(kind, times=1)
    other, equal, shorter = [(await first_answer(cluster))["r"] for _ in range(3)]
    assert not other.startswith(own)
    assert (equal, shorter) == (own, own[:-1])


async def test_the_json_of_a_refused_token(cluster: Cluster) -> None:
    cluster.oauth_error({"status": "insufficient_scope", "scope": "kafka"}, times=1)
    cluster.oauth_error("no JSON", times=1)
    for expected in ('{"status": "insufficient_scope", "scope": "kafka"}', "no JSON"):
        async with connected(cluster.bootstrap) as client:
            assert bytes((await oauth(client, unsecured_token("alice"))).auth_bytes).decode() == expected
            assert (await authenticate(client, b"\x01")).error_message == expected


async def test_an_illegal_sasl_state(cluster: Cluster) -> None:
    cluster.illegal_sasl_state(times=2)
    async with connected(cluster.bootstrap) as client:
        assert (await handshake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    cluster.heal()
    async with logged_in(cluster.bootstrap) as client:
        cluster.illegal_sasl_state(times=1)
        assert (await handshake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await plain(client, "alice", "secret")).error_code == 0


async def test_cancelled_faults_hit_nothing(cluster: Cluster) -> None:
    fault = cluster.refuse_login()
    fault.cancel()
    assert (await login(cluster)).error_code == 0
    assert fault.hits == 0


async def test_logins_can_be_intercepted_like_any_request(cluster: Cluster) -> None:
    cluster.intercept(ApiKey.SASL_HANDSHAKE, ErrorCode.UNKNOWN_SERVER_ERROR, times=1)
    cluster.intercept(ApiKey.SASL_AUTHENTICATE, ErrorCode.SASL_AUTHENTICATION_FAILED, times=1)
    cluster.intercept(ApiKey.SASL_AUTHENTICATE, faults.lose_answer(), times=1)
    async with connected(cluster.bootstrap) as client:
        assert (await handshake(client, "PLAIN")).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await login(cluster)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises((EOFError, ConnectionError)):
        await login(cluster)
    assert (await login(cluster)).error_code == 0
