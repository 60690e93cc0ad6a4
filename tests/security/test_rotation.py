"""Certificates and users that are replaced while a consumer reads: new connections use them, or keep the old ones.

The brokers are a real one, and those of the cluster in Python. refused/test_by_the_watchdog.py has the watchdog's
blocking socket.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.testing.kafka import Acl, SecureKafka

from .actors.counting_proxy import CountingProxy
from .actors.members import SECONDS, read
from .refused.refusals import ALERTS_SINCE
from .secure_cluster import brokers, certificates, tokens
from .ways import Brokers, Way, write

__all__ = ["brokers", "certificates", "tokens"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.any_loop(uvloop="long"), pytest.mark.timeout(90)]

LOOKED_AT_SECONDS = 1.1  # after this time a new connection looks at the files again


async def _one_more(brokers: Brokers, topic: str, consumer: Consumer[Any, Any]) -> None:
    await asyncio.to_thread(write, brokers, topic, b"x")
    assert await read(consumer, 1) == [b"x"]


@pytest.mark.every_kafka(since=ALERTS_SINCE)
async def test_a_client_certificate_that_is_replaced(
    brokers: Brokers, topic_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A half-written file changes nothing; one that the broker refuses is named; a good one is used."""
    brokers.create_topic(topic_name)
    made = brokers.certificates
    good = made.client.read_bytes()
    keystore = tmp_path / "client.pem"
    keystore.write_bytes(good)
    with CountingProxy(brokers.bootstrap_of("MTLS")) as proxy:
        options = {**brokers.options_of("MTLS"), "ssl_keystore_location": keystore, "resolve": proxy.resolve}
        async with Consumer(
            topic_name, group_id=topic_name, auto_offset_reset="earliest", reconnect_backoff_max_ms=500, **options
        ) as consumer:
            await _one_more(brokers, topic_name, consumer)

            with caplog.at_level(logging.WARNING):
                keystore.write_bytes(good[: len(good) // 2])
                await asyncio.sleep(LOOKED_AT_SECONDS)
                proxy.drop()
                await _one_more(brokers, topic_name, consumer)
            assert str(keystore) in caplog.text

            keystore.write_bytes(made.foreign_client.read_bytes())
            await asyncio.sleep(LOOKED_AT_SECONDS)
            proxy.drop()
            async with asyncio.timeout(SECONDS):
                while "the broker refused our certificate" not in str(consumer.health().last_error):
                    assert not await consumer.getmany(timeout_ms=200)

            keystore.write_bytes(made.issue_client("alice").read_bytes())
            await _one_more(brokers, topic_name, consumer)


async def test_a_user_that_is_replaced(brokers: Brokers, topic_name: str) -> None:
    """A broker closes a connection on which another user logs in (KIP-368): the client retires it, and makes another.

    No request fails, no record is lost, and nothing rebalances.
    """
    brokers.create_topic(topic_name)
    if isinstance(brokers, SecureKafka):
        brokers.add_acls(*(Acl("bob", "READ", resource, topic_name) for resource in ("TOPIC", "GROUP")))
    way, user = Way("SHORT", "SCRAM-SHA-256"), "alice"

    async def credentials() -> tuple[str, str]:
        return user, way.password(brokers, user)

    with CountingProxy(brokers.bootstrap_of("SHORT")) as proxy:
        options = {**brokers.options_of("SHORT"), "resolve": proxy.resolve, "sasl_mechanism": way.mechanism}
        async with Consumer(
            topic_name,
            group_id=topic_name,
            auto_offset_reset="earliest",
            sasl_credentials_provider=credentials,
            **options,
        ) as consumer:
            await _one_more(brokers, topic_name, consumer)
            await consumer.commit()
            user, opened = "bob", proxy.opened
            loop = asyncio.get_running_loop()
            end = loop.time() + 1.2 * brokers.session_seconds
            while loop.time() < end:
                await _one_more(brokers, topic_name, consumer)
                await consumer.commit()
            assert proxy.opened > opened
            found = consumer.metrics()
            assert (found.failed_fetches, found.failed_heartbeats, found.rebalances.count) == (0, 0, 1)
