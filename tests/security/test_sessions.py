"""Sessions that end (KIP-368): a member reads on over many of them, with one login after the other, and no reconnect.

On the listener SHORT a session lasts 4 s. The broker closes the connection of a client that has not authenticated again
by then, at the client's next request.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.testing.kafka import SecureKafka
from tests.producing import produce

from .counting_proxy import CountingProxy
from .ways import Way, parameters

pytestmark = pytest.mark.every_kafka

MECHANISMS = [Way("SHORT", mechanism) for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")]


class Rebalances(RebalanceListener):
    """Counts the assignments, and what was taken away."""

    def __init__(self) -> None:
        self.assigned = 0
        self.revoked = 0

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.assigned += 1

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.revoked += bool(partitions)


async def read_over(kafka: SecureKafka, topic: str, way: Way, sessions: int) -> None:
    """Read, as a member of a group, a record about every 0.1 s, and none for whole sessions in between.

    Each record comes exactly once and in order, over the connections that were there after the first records, without
    a rebalance.
    """
    loop = asyncio.get_running_loop()
    rebalances = Rebalances()
    with CountingProxy(kafka.bootstrap_of(way.listener)) as proxy:
        options = {**way.options(kafka), "resolve": proxy.resolve}
        async with Consumer(
            group_id=topic, auto_offset_reset="earliest", auto_commit_interval_ms=300, **options
        ) as consumer:
            consumer.subscribe([topic], listener=rebalances)
            numbers = itertools.count()
            seen: list[int] = []

            async def exchange() -> None:
                sent = next(numbers)
                await asyncio.to_thread(produce, kafka.bootstrap, topic, [b"%d" % sent])
                async with asyncio.timeout(30):
                    while sent not in seen:
                        for records in (await consumer.getmany()).values():
                            seen.extend(int(record.value) for record in records)

            await exchange()
            await consumer.commit()
            await exchange()
            opened = proxy.opened
            end = loop.time() + sessions * kafka.session_seconds
            for turn in itertools.count():
                await exchange()
                if loop.time() > end:
                    break
                # Every fourth pause is longer than a session: a Fetch is parked, heartbeats go on.
                await asyncio.sleep(kafka.session_seconds * 1.2 if turn % 4 == 3 else 0.1)
            assert seen == list(range(next(numbers)))
            assert (rebalances.assigned, rebalances.revoked) == (1, 0)
            assert proxy.opened == opened
            assert consumer.metrics().failed_fetches == 0
            assert consumer.metrics().failed_heartbeats == 0


@pytest.mark.timeout(60)
async def test_a_member_reads_over_some_sessions(secure_kafka: SecureKafka, topic_name: str) -> None:
    secure_kafka.create_topic(topic_name)
    await read_over(secure_kafka, topic_name, Way("SHORT", "SCRAM-SHA-512"), 3)
