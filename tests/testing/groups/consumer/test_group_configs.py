"""Cluster.configure_group: what an administrator may set for one group of the consumer protocol (KIP-848)."""

from __future__ import annotations

import asyncio
from collections import Counter

from aiokc.testing import Cluster
from aiokc.testing.faults import drop
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest
from tests.client.group.consumer.group_stories import asked_of, consumer_of, polls, shared
from tests.client.virtually import virtually


def test_a_group_has_a_pace_of_its_own() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.configure_group("g", consumer_heartbeat_interval_ms=1_000)
        asked = asked_of(cluster)
        async with consumer_of(cluster) as ours, consumer_of(cluster, group_id="other") as theirs:
            await asyncio.gather(polls(ours, 60.0), polls(theirs, 60.0))
            beats = Counter(sent.group_id for _, sent in asked.of(ConsumerGroupHeartbeatRequest))
            assert 55 <= beats["g"] <= 70
            assert 10 <= beats["other"] <= 20

    virtually(story)


def test_a_group_has_a_session_of_its_own() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.configure_group("g", consumer_session_timeout_ms=10_000)
        cluster.configure_group("g", consumer_heartbeat_interval_ms=2_000)  # beside what was set before
        async with consumer_of(cluster) as ours, consumer_of(cluster, group_id="other") as theirs:
            await asyncio.gather(shared(ours), shared(theirs))
            cluster.intercept(ConsumerGroupHeartbeatRequest, drop())
            await asyncio.gather(polls(ours, 13.0), polls(theirs, 13.0))
            assert cluster.members("g") == []
            assert len(cluster.members("other")) == 1

    virtually(story)


def test_a_group_has_an_assignment_interval_of_its_own() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.configure_group("g", consumer_assignment_interval_ms=15_000)
        async with consumer_of(cluster) as one:
            await shared(one)
            began = asyncio.get_running_loop().time()
            async with consumer_of(cluster) as two:
                await asyncio.gather(polls(one, 10.0), polls(two, 10.0))
                assert two.assignment() == frozenset()
                await shared(one, two)
                assert 14.0 <= asyncio.get_running_loop().time() - began <= 30.0

    virtually(story)
