"""Partitions without a leader: how often the consumer asks for metadata, and how soon it reads once there is one."""

from __future__ import annotations

import asyncio

from aiokc import Consumer, TopicPartition
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataRequest

from ..virtually import Asked, virtually

OTHER, LONE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_pauses_between_looks_for_a_leader_grow_and_begin_anew_with_the_next_loss() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        asked = Asked(cluster, loop)
        cluster.create_topic("t", 2, replication_factor=1)
        away = cluster.leader("t", 1)
        assert away is not None
        assert away != cluster.leader("t", 0)
        async with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
            consumer.assign([OTHER, LONE])
            consumer.seek(OTHER, 0)
            consumer.seek(LONE, 0)
            for _ in range(2):
                lost = loop.time()
                cluster.take_down(away)
                assert await consumer.getmany(timeout_ms=60_000) == {}
                looks = [when - lost for when, _ in asked.of(MetadataRequest) if when > lost]
                assert sum(when < 1.5 for when in looks) >= 3
                assert len(looks) < 75, "each second, and not each 100 ms"
                cluster.bring_up(away)
                cluster.append("t", b"x", partition=1)
                async with asyncio.timeout(3):
                    assert (await consumer.getone()).partition == 1

    virtually(story, brokers=2, topics={})
