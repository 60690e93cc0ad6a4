"""Logins by each mechanism: what the broker's half accepts and refuses, with the texts of Apache Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.testing.security.jwt import unsecured_token
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.sasl import SaslHandshakeRequest

from ..wire_client import WireClient, connected
from .sasl_client import Scram, authenticate, handshake, is_closed, oauth, plain, scram, versions

pytestmark = pytest.mark.timeout(20)

SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(sasl={"alice": "secret", "a,b=c": "pässword\uff21"}) as started:
        yield started


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[WireClient]:
    async with connected(cluster.bootstrap) as connection:
        yield connection


async def is_served(client: WireClient) -> bool:
    return len((await client.ask(MetadataRequest(topics=[]))).brokers) == 1


async def test_plain(client: WireClient) -> None:
    assert (await versions(client)).error_code == 0
    answer = await plain(client, "alice", "secret")
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
    assert await is_served(client)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"\0alice\0", INVALID + "PLAIN"),
        (b"\0\0secret", INVALID + "PLAIN"),
        (b"alice\0secret", INVALID + "PLAIN"),
        (b"\0alice\0secret\0more", INVALID + "PLAIN"),
        (b"\0alice\0\xff", INVALID + "PLAIN"),
    ],
)
async def test_plain_refused(client: WireClient, message: bytes, text: str) -> None:
    await handshake(client, "PLAIN")
    answer = await authenticate(client, message)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert await is_closed(client)


@pytest.mark.parametrize("mechanism", SCRAMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "secret"), ("a,b=c", "pässword\uff21")])
async def test_scram(client: WireClient, mechanism: str, user: str, password: str) -> None:
    answer, is_proven = await scram(client, mechanism, user, password)
    assert (answer.error_code, is_proven) == (0, True)
    assert await is_served(client)


@pytest.mark.parametrize("mechanism", SCRAMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret"), ("älice", "secret")])
async def test_scram_refused(client: WireClient, mechanism: str, user: str, password: str) -> None:
    answer, _ = await scram(client, mechanism, user, password)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, INVALID + mechanism)
    assert await is_closed(client)


@pytest.mark.parametrize(
    "change", [{"binding": "eSws"}, {"nonce": "rOprNGfwEbeRWgbNEkqO"}, {"nonce": "another"}], ids=str
)
async def test_scram_with_a_wrong_final_message(client: WireClient, change: dict[str, str]) -> None:
    await handshake(client, "SCRAM-SHA-256")
    login = Scram("SCRAM-SHA-256", "alice", "secret")
    first = await authenticate(client, login.first)
    answer = await authenticate(client, login.final(bytes(first.auth_bytes), **change))
    assert answer.error_message == INVALID + "SCRAM-SHA-256"


@pytest.mark.parametrize(
    "message", [b"", b"n,,\x01\x01", b"n,,\x01auth=Basic abc\x01\x01", b"n,,\x01auth=Bearer a b\x01\x01"]
)
async def test_a_message_that_is_no_oauthbearer(client: WireClient, message: bytes) -> None:
    await handshake(client, "OAUTHBEARER")
    answer = await authenticate(client, message)
    assert answer.error_message == INVALID + "OAUTHBEARER"


async def test_a_token_of_another_user(client: WireClient) -> None:
    answer = await oauth(client, unsecured_token("alice"), authzid="bob")
    assert "(bob) that is different from the token's principal name (alice)" in (answer.error_message or "")


async def test_a_mechanism_that_is_off() -> None:
    enabled = ["PLAIN", "SCRAM-SHA-512"]
    async with Cluster(sasl={"alice": "secret"}, mechanisms=enabled) as cluster, connected(cluster.bootstrap) as client:
        answer = await handshake(client, "SCRAM-SHA-256")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled)
        assert await is_closed(client)


async def test_passwords_change(cluster: Cluster) -> None:
    cluster.set_password("alice", "another")
    cluster.set_password("bob", {"PLAIN": "new"})
    codes = []
    for user, password in (("alice", "secret"), ("alice", "another"), ("bob", "new")):
        async with connected(cluster.bootstrap) as client:
            codes.append((await plain(client, user, password)).error_code)
    cluster.remove_user("bob")
    async with connected(cluster.bootstrap) as client:
        codes.append((await plain(client, "bob", "new")).error_code)
    assert codes == [58, 0, 0, 58]


async def test_versions_of_sasl_authenticate(cluster: Cluster) -> None:
    for version in (0, 1, 2):
        async with connected(cluster.bootstrap) as client:
            await handshake(client, "PLAIN")
            assert (await authenticate(client, b"\0alice\0secret", version)).error_code == 0
            assert await is_served(client)


async def test_tokens_without_headers(cluster: Cluster) -> None:
    """After SaslHandshake 0 a message has its length, and no more (KIP-43)."""
    for password, is_right in ((b"secret", True), (b"wrong", False)):
        async with connected(cluster.bootstrap) as client:
            await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
            token = b"\0alice\0" + password
            client.write(len(token).to_bytes(4) + token)
            if is_right:
                assert await client.frame() == b""
                assert await is_served(client)
            else:
                assert await is_closed(client)
