"""The watchdog thread over SASL_SSL: it keeps a member in its group while a handler blocks the event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.testing.kafka import SecureKafka
from tests.producing import produce

from .actors.counting_proxy import CountingProxy
from .actors.members import committed, read
from .actors.watchdog import patient_watchdog, within_a_session
from .ways import Way, parameters

__all__ = ["patient_watchdog"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.timeout(90)]


WAYS = (Way("SHORT", "SCRAM-SHA-512"), Way("SHORT", "PLAIN"), Way("SHORT", "OAUTHBEARER"), Way("MTLS"))


@pytest.mark.parametrize("way", parameters(*WAYS, long=lambda way: way != WAYS[0]))
async def test_a_handler_that_blocks_the_loop_over_the_ends_of_sessions(
    secure_kafka: SecureKafka, topic_name: str, way: Way, patient_watchdog: None
) -> None:
    """It blocks the loop for longer than a SASL session, and than the group's session timeout: the member stays, and
    commits what it has read.
    """

    async def consume(session_seconds: float) -> None:
        topic = f"{topic_name}-{session_seconds:g}"
        secure_kafka.create_topic(topic)
        produce(secure_kafka.bootstrap, topic, [b"0"])
        with CountingProxy(secure_kafka.bootstrap_of(way.listener)) as proxy:
            # The consumer has a loop of its own, which it blocks.
            await asyncio.to_thread(asyncio.run, _consume(secure_kafka, topic, way, proxy, session_seconds))

    await within_a_session(consume, secure_kafka.bootstrap)


async def _consume(kafka: SecureKafka, topic: str, way: Way, proxy: CountingProxy, session_seconds: float) -> None:
    options: dict[str, Any] = {**way.options(kafka), "resolve": proxy.resolve}
    options["session_timeout_ms"] = round(session_seconds * 1e3)
    async with Consumer(
        topic, group_id=topic, auto_offset_reset="earliest", heartbeat_interval_ms=500, **options
    ) as consumer:
        assert await read(consumer, 1) == [b"0"]
        generation, opened = consumer.health().generation, proxy.opened
        time.sleep(1.4 * max(kafka.session_seconds, session_seconds))  # noqa: ASYNC251  (this is the handler)
        assert proxy.opened > opened, "nothing but the watchdog connects meanwhile"
        await consumer.commit()
        assert await committed(consumer, topic) == 1
        assert consumer.health().generation == generation
        produce(kafka.bootstrap, topic, [b"1"])
        assert await read(consumer, 1) == [b"1"]
        assert consumer.metrics().rebalances.count == 1
