"""Certificates that are replaced on disk while a consumer reads: new connections use them, or keep the old ones."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.testing.kafka import SecureKafka
from tests.producing import produce

from .actors.counting_proxy import CountingProxy
from .actors.members import SECONDS, read

# Kafka 2.8 cannot say that it refuses a certificate: see refusals.py.
pytestmark = [pytest.mark.every_kafka(since="3.0"), pytest.mark.any_loop(uvloop="long"), pytest.mark.timeout(90)]

LOOKED_AT_SECONDS = 1.1  # after this time a new connection looks at the files again


async def _one_more(kafka: SecureKafka, topic: str, consumer: Consumer[Any, Any]) -> None:
    await asyncio.to_thread(produce, kafka.bootstrap, topic, [b"x"])
    assert await read(consumer, 1) == [b"x"]


async def test_a_client_certificate_that_is_replaced(
    secure_kafka: SecureKafka, topic_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A half-written file changes nothing; one that the broker refuses is named; a good one is used."""
    secure_kafka.create_topic(topic_name)
    certificates = secure_kafka.certificates
    good = certificates.client.read_bytes()
    keystore = tmp_path / "client.pem"
    keystore.write_bytes(good)
    with CountingProxy(secure_kafka.bootstrap_of("MTLS")) as proxy:
        options = {**secure_kafka.options_of("MTLS"), "ssl_keystore_location": keystore, "resolve": proxy.resolve}
        async with Consumer(
            topic_name, group_id=topic_name, auto_offset_reset="earliest", reconnect_backoff_max_ms=500, **options
        ) as consumer:
            await _one_more(secure_kafka, topic_name, consumer)

            with caplog.at_level(logging.WARNING):
                keystore.write_bytes(good[: len(good) // 2])
                await asyncio.sleep(LOOKED_AT_SECONDS)
                proxy.drop()
                await _one_more(secure_kafka, topic_name, consumer)
            assert str(keystore) in caplog.text

            keystore.write_bytes(certificates.foreign_client.read_bytes())
            await asyncio.sleep(LOOKED_AT_SECONDS)
            proxy.drop()
            async with asyncio.timeout(SECONDS):
                while "the broker refused our certificate" not in str(consumer.health().last_error):
                    assert not await consumer.getmany(timeout_ms=200)

            keystore.write_bytes(certificates.issue_client("alice").read_bytes())
            await _one_more(secure_kafka, topic_name, consumer)
