"""Virtual time is fast: an hour in a group takes well under a second."""

from __future__ import annotations

import asyncio
import time
from random import Random

from aiokc import Consumer
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.group import HeartbeatRequest


def test_an_hour_of_heartbeats() -> None:
    loop = VirtualLoop(Random(1))

    async def main() -> tuple[int, float]:
        async with Cluster(topics={"events": 1}, random=Random(2), clock=loop.time) as cluster:
            heartbeats = cluster.intercept(HeartbeatRequest, lambda exchange: None)
            options = {"bootstrap_servers": cluster.bootstrap, "group_id": "g", "fetch_max_wait_ms": 25_000}
            async with Consumer("events", **options) as consumer:  # type: ignore[arg-type]
                await consumer.getmany(timeout_ms=10_000)
                assert consumer.assignment()
                before, began = heartbeats.hits, time.thread_time()
                assert await consumer.getmany(timeout_ms=3_600_000) == {}
                return heartbeats.hits - before, time.thread_time() - began

    beats, took = loop.run_until_complete(main())
    loop.end()
    assert 1190 <= beats <= 1200
    assert took < 5  # well under a second on an idle machine
    assert asyncio.all_tasks(loop) == set()
