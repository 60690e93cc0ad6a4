"""Where and how often a client tries again what brokers have refused, the bootstrap servers and the watchdog included.

The brokers are a real one, and those of the cluster in Python.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.errors import AuthenticationFailed

from ..actors.counting_proxy import CountingProxy
from ..actors.members import SECONDS, read
from ..actors.watchdog import of_the_watchdog
from ..secure_cluster import brokers, certificates, tokens
from ..ways import Brokers, Way, write

__all__ = ["brokers", "certificates", "tokens"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.timeout(60)]

WAYS = [Way("SASLTLS", mechanism) for mechanism in ("PLAIN", "SCRAM-SHA-512")]
AT_ONCE_SECONDS = 40.0


def with_wrong_password(brokers: Brokers, way: Way, proxy: CountingProxy) -> dict[str, Any]:
    return {**way.options(brokers), "sasl_plain_password": "wrong", "resolve": proxy.resolve}


@pytest.mark.any_loop
@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_wrong_password_is_raised_by_start_and_no_other_server_is_tried(brokers: Brokers, way: Way) -> None:
    """All brokers of a cluster know the same users, and directories lock accounts."""
    with CountingProxy(brokers.bootstrap_of(way.listener)) as proxy:
        options = with_wrong_password(brokers, way, proxy)
        options["bootstrap_servers"] = [f"localhost:{port}" for port in (1, 2, 3)]
        begun = time.monotonic()
        with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
            await Consumer(**options).start(timeout_ms=60_000)
        assert time.monotonic() - begun < AT_ONCE_SECONDS
    assert proxy.opened == 1


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_the_watchdog_tries_a_wrong_password_once(brokers: Brokers, way: Way) -> None:
    with CountingProxy(brokers.bootstrap_of(way.listener)) as proxy:
        async with of_the_watchdog(**with_wrong_password(brokers, way, proxy)) as connect:
            with pytest.raises(AuthenticationFailed, match="refused user 'alice'"):
                await connect()
            with pytest.raises(AuthenticationFailed, match="not connecting, since a broker has refused"):
                await connect()
    assert proxy.opened == 1


@pytest.mark.any_loop
async def test_a_certificate_that_one_server_has_wrong(brokers: Brokers) -> None:
    """That one may be in the middle of a renewal: the others are tried."""
    servers = [brokers.bootstrap_of(listener) for listener in ("EXPIRED", "BADNAME", "TLS")]
    for _ in range(3):  # they are asked in any order
        async with Consumer(**{**brokers.options_of("TLS"), "bootstrap_servers": servers}) as consumer:
            assert consumer.health().running


@pytest.mark.any_loop(uvloop="long")
async def test_a_certificate_that_is_refused_while_a_consumer_reads(
    brokers: Brokers, topic_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No call raises: it is a broker that can't be reached, and it is tried again with pauses of 1 s and more."""
    brokers.create_topic(topic_name)
    write(brokers, topic_name, b"0")
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(brokers.certificates.ca.read_bytes())
    with CountingProxy(brokers.bootstrap_of("TLS")) as proxy:
        options = {**brokers.options_of("TLS"), "ssl_truststore_location": str(trusted), "resolve": proxy.resolve}
        async with Consumer(auto_offset_reset="earliest", **options) as consumer:
            consumer.assign([TopicPartition(topic_name, 0)])
            assert await read(consumer, 1) == [b"0"]
            trusted.write_bytes(brokers.certificates.foreign_ca.read_bytes())
            async with asyncio.timeout(SECONDS):
                # The files are looked at once a second: a connection that is made sooner trusts as before.
                while not any("is not in" in record.message for record in caplog.records):
                    proxy.drop()
                    assert await consumer.getmany(timeout_ms=300) == {}
            opened, begun = proxy.opened, time.monotonic()
            assert await consumer.getmany(timeout_ms=2_500) == {}
            # Two may be tried: the broker, and the bootstrap server that led to it.
            assert proxy.opened - opened <= 2 * (1 + time.monotonic() - begun)
            trusted.write_bytes(brokers.certificates.ca.read_bytes())
            write(brokers, topic_name, b"1")
            assert await read(consumer, 1) == [b"1"]
