"""Connections and pool against a real Apache Kafka."""

from __future__ import annotations

import asyncio

import pytest

from aiokc.net.pool import Purpose
from aiokc.testing.kafka import LocalKafka
from aiokc.types import Broker
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from aiokc.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokc.wire.messages.group import HeartbeatRequest
from tests.producing import Message, produce

from .scripted import running_pool, ticks

pytestmark = [pytest.mark.kafka, pytest.mark.any_loop]


async def test_every_purpose_speaks_to_a_real_broker(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=3)
    async with running_pool(kafka.bootstrap) as pool:
        everything = await pool.metadata(MetadataRequest(topics=None), timeout=30)
        assert topic_name in {topic.name for topic in everything.topics}
        brokers = {broker.node_id: Broker(broker.node_id, broker.host, broker.port) for broker in everything.brokers}
        pool.set_brokers(brokers)
        node_id = next(iter(brokers))

        one = MetadataRequest(topics=[MetadataRequestTopic(name=topic_name)])
        answers = await asyncio.gather(
            *(pool.request(node_id, one, purpose=purpose, timeout=30) for purpose in [*Purpose] * 10)
        )
        assert [len(answer.topics[0].partitions) for answer in answers] == [3] * 10 * len(Purpose)

        lookup = FindCoordinatorRequest(coordinator_keys=["group"])
        found = await pool.any_broker(FindCoordinatorRequest, lambda _: lookup, timeout=30)
        assert [coordinator.key for coordinator in found.coordinators] == ["group"]
        stranger = HeartbeatRequest(group_id="group", generation_id=1, member_id="nobody")
        refused = await pool.request(node_id, stranger, purpose=Purpose.COORDINATOR, timeout=30)
        assert refused.error_code != 0


async def test_a_long_poll_delays_only_its_own_connection_and_may_be_cancelled(
    kafka: LocalKafka, topic_name: str
) -> None:
    kafka.create_topic(topic_name)
    async with running_pool(kafka.bootstrap) as pool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic_name)])
        seen = await pool.metadata(request, timeout=30)
        pool.set_brokers({broker.node_id: Broker(broker.node_id, broker.host, broker.port) for broker in seen.brokers})
        node_id = seen.topics[0].partitions[0].leader_id
        connection = await pool.connection(node_id, timeout=30)
        nothing_yet = FetchTopic(
            topic_id=seen.topics[0].topic_id,
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
        )
        long_poll = FetchRequest(max_wait_ms=25_000, min_bytes=1, topics=[nothing_yet])
        parked = asyncio.ensure_future(pool.request(node_id, long_poll, timeout=30))
        await ticks(2)
        assert connection.in_flight == 1
        await pool.request(node_id, request, purpose=Purpose.COORDINATOR, timeout=30)
        assert not parked.done()
        parked.cancel()
        await asyncio.to_thread(produce, kafka.bootstrap, topic_name, [Message(b"what it waits for")])
        behind = await pool.request(node_id, request, timeout=30)  # after the cancelled request has been answered
        assert behind.topics[0].name == topic_name
        assert not connection.closed
