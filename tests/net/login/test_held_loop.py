"""How long a login holds the event loop: contexts are built, keys derived and tokens fetched somewhere else.

Time is the processor's, which the loop's thread has used: a busy machine makes it little longer.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from trustme import CA

from aiokc import Client
from aiokc.errors import AuthenticationFailed
from aiokc.testing import Certificates, Cluster, IdP, TokenRules

pytestmark = pytest.mark.timeout(60)

# An iteration with a step of the TLS handshake takes 1 to 2 ms. Each of what is done here elsewhere takes 50 ms.
MOST_SECONDS = 0.02
AUTHORITIES = 150
ITERATIONS = 200_000
ALICE: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "alice",
    "sasl_plain_password": "secret",
}


@pytest.fixture(scope="module")
def authorities() -> str:
    """As many as a system's store has."""
    return "".join(CA().cert_pem.bytes().decode() for _ in range(AUTHORITIES))


@contextmanager
def longest_iteration() -> Iterator[list[float]]:
    """Give a list whose only item is, at the end, the longest time for which one iteration has held the loop."""
    loop: Any = asyncio.get_running_loop()
    select, longest, begun = loop._selector.select, [0.0], time.thread_time()

    def noted(timeout: float | None) -> Any:
        nonlocal begun
        longest[0] = max(longest[0], time.thread_time() - begun)
        try:
            return select(timeout)
        finally:
            begun = time.thread_time()

    gc.disable()  # a pass over the objects of all tests takes longer than all else
    loop._selector.select = noted
    try:
        yield longest
    finally:
        loop._selector.select = select
        gc.enable()


async def connects(cluster: Cluster, **options: Any) -> float:
    """Return the longest time for which an iteration has held the loop while a client connected."""
    client = Client(bootstrap_servers=cluster.bootstrap, **options)  # it may import, and Python compile what that is
    with longest_iteration() as longest:
        async with client:
            pass
    return longest[0]


async def test_a_context_that_takes_long_to_build(authorities: str) -> None:
    certificates = Certificates()
    with Cluster(brokers=1, tls=certificates).in_thread() as cluster:
        held = await connects(cluster, ssl_truststore_certificates=certificates.ca_pem + authorities)
    assert held < MOST_SECONDS


async def test_a_key_that_takes_long_to_derive() -> None:
    """The broker then refuses the login: its own key is of fewer iterations."""
    cluster = Cluster(brokers=1, sasl={"alice": "secret"})
    cluster.iterations(ITERATIONS)
    with cluster.in_thread():
        client = Client(bootstrap_servers=cluster.bootstrap, **ALICE)
        with longest_iteration() as held, pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
            await client.start()
    assert held[0] < MOST_SECONDS


async def test_a_token_from_a_provider(authorities: str) -> None:
    """The provider is asked by https, which takes another context, with the system's authorities too."""
    certificates = Certificates()
    with IdP({"billing": "secret"}, tls=certificates) as idp:
        brokers = Cluster(brokers=1, tls=certificates, mechanisms=["OAUTHBEARER"], tokens=TokenRules(idp=idp))
        with brokers.in_thread() as cluster:
            held = await connects(
                cluster,
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_endpoint_url=idp.token_url,
                sasl_oauthbearer_client_credentials_client_id="billing",
                sasl_oauthbearer_client_credentials_client_secret="secret",
                ssl_truststore_certificates=certificates.ca_pem + authorities,
            )
        assert len(idp.asked) == 1
    assert held < MOST_SECONDS
