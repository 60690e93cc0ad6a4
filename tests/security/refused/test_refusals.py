"""What a client raises where a broker refuses it: on asyncio, on uvloop, and on the watchdog's blocking socket.

The broker is a real one, and one of the cluster in Python, which has to refuse in the same way.
"""

from __future__ import annotations

import asyncio
import time
from random import Random

import pytest

from aiokc import Consumer
from aiokc.config import ConsumerConfig
from aiokc.net.blocking import BlockingConnection
from aiokc.net.options import Route
from aiokc.net.pool import Pool
from aiokc.testing.kafka import SecureKafka
from aiokc.testing.kafka.secure.certificate_files import CertificateFiles
from aiokc.testing.kafka.secure.tokens import TokenMaker
from aiokc.wire.messages.discovery import MetadataRequest

from ..actors.clock import clock_of_clients
from ..secure_cluster import SecureCluster
from ..ways import Brokers
from .refusals import REFUSALS, Refusal

pytestmark = [pytest.mark.every_kafka, pytest.mark.timeout(60)]

TIMEOUT_MS = 800  # of failures that are tried again: until then
AT_ONCE_SECONDS = 10.0  # where the timeout is much longer

each_refusal = pytest.mark.parametrize("refusal", [refusal.parameter() for refusal in REFUSALS])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tokens() -> TokenMaker:
    return TokenMaker()


@pytest.mark.any_loop
@each_refusal
async def test_what_start_raises(secure_kafka: SecureKafka, refusal: Refusal) -> None:
    await _start_raises(secure_kafka, refusal)


@each_refusal
async def test_what_the_watchdogs_connection_raises(secure_kafka: SecureKafka, refusal: Refusal) -> None:
    await _watchdog_raises(secure_kafka, refusal)


@pytest.mark.any_loop
@each_refusal
async def test_what_start_raises_at_the_cluster(
    certificates: CertificateFiles, tokens: TokenMaker, refusal: Refusal
) -> None:
    async with SecureCluster(certificates, tokens) as cluster:
        await _start_raises(cluster, refusal)


@each_refusal
async def test_what_the_watchdogs_connection_raises_at_the_cluster(
    certificates: CertificateFiles, tokens: TokenMaker, refusal: Refusal
) -> None:
    async with SecureCluster(certificates, tokens) as cluster:
        await _watchdog_raises(cluster, refusal)


async def _start_raises(brokers: Brokers, refusal: Refusal) -> None:
    config = ConsumerConfig(**refusal.options(brokers))
    with clock_of_clients(-refusal.behind):
        consumer = Consumer(config=config)
    begun = time.monotonic()
    with pytest.raises(refusal.error, match=refusal.text) as raised:
        await consumer.start(timeout_ms=60_000 if refusal.at_once else TIMEOUT_MS)
    await consumer.stop()
    assert time.monotonic() - begun < AT_ONCE_SECONDS
    named = config.bootstrap_servers if refusal.asks else "the token provider"
    assert str(named) in str(raised.value)


async def _watchdog_raises(brokers: Brokers, refusal: Refusal) -> None:
    """With the context and the credentials that the event loop has got ready for the watchdog."""
    config = ConsumerConfig(**refusal.options(brokers))
    with clock_of_clients(-refusal.behind):
        pool = Pool(config, random=Random(0))
    try:
        host, _, port = str(config.bootstrap_servers).rpartition(":")
        route = Route(f"{host}:{port}", ("127.0.0.1", int(port)), host)
        with pytest.raises(refusal.error, match=refusal.text):
            await _ask(pool, route)
    finally:
        await pool.aclose()


async def _ask(pool: Pool, route: Route) -> None:
    options = pool._options
    if options.tls is not None:
        await options.tls.get()
    if options.credentials is not None:
        await options.credentials.login(route.server_hostname)
    connection = await asyncio.to_thread(BlockingConnection.open, route, options, timeout=10)
    try:
        await asyncio.to_thread(
            connection.request, MetadataRequest, lambda version: MetadataRequest(topics=[]), timeout=10
        )
    finally:
        connection.close()
