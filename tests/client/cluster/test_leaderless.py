"""Partitions without a leader, and those that an answer leaves out: how often the metadata are asked for then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import LATEST, Client, Consumer, Producer, TopicPartition
from aiokc.errors import RequestTimedOut, UnknownTopic
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse

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


async def without_one(exchange: Exchange) -> MetadataResponse | None:
    response = await exchange.handle()
    assert isinstance(response, MetadataResponse)
    for topic in response.topics:
        topic.partitions = [one for one in topic.partitions if one.partition_index != 1]
    return response


@pytest.mark.parametrize("as_version", ["4.4", "2.3"], ids=["ids", "no ids"])
def test_a_producer_goes_on_though_an_answer_lacks_a_partition(as_version: str) -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.partitions_for("t")
            cluster.intercept(MetadataRequest, without_one, times=1)
            producer._runtime.cluster_client.metadata.request_update()
            await producer._runtime.cluster_client.metadata.changed.wait()
            known = [one.partition for one in await producer.partitions_for("t")]
            assert known == ([0, 1, 2] if as_version == "4.4" else [0, 2])
            began = loop.time()
            for number in range(3):
                assert (await producer.send_and_wait("t", b"", partition=number)).offset == 0
            for _ in range(100):
                await producer.send("t", b"")
            assert loop.time() < began + 1

    virtually(story, brokers=1, topics={"t": 3}, as_version=as_version)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_consumer_reads_on_though_an_answer_lacks_a_partition(group_id: str | None) -> None:
    """Without a group it would take the partition for a new one afterwards, and read all of it again."""

    async def story(cluster: Cluster) -> None:
        for number in range(3):
            cluster.append("t", b"1", partition=number)
        async with Consumer(
            "t", bootstrap_servers=cluster.bootstrap, group_id=group_id, auto_offset_reset="earliest"
        ) as consumer:
            seen: list[Any] = []

            async def poll() -> None:
                batch = await consumer.getmany(timeout_ms=1_000)
                seen.extend(record.value for records in batch.values() for record in records)

            while len(seen) < 3:
                await poll()
            metadata = consumer._runtime.cluster_client.metadata
            cluster.intercept(MetadataRequest, without_one, times=1)
            metadata.request_update()
            await metadata.changed.wait()
            cluster.append("t", b"2", partition=1)
            while len(seen) < 4:
                await poll()
            await asyncio.sleep(10)
            await poll()
            assert seen == [b"1"] * 3 + [b"2"]
            assert len(consumer.assignment()) == 3

    virtually(story, brokers=1, topics={"t": 3})


def test_a_partition_that_stays_away_is_looked_for_less_and_less_often() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        asked, fault = Asked(cluster, loop), cluster.intercept(MetadataRequest, without_one)
        async with Consumer("t", bootstrap_servers=cluster.bootstrap) as consumer:
            await consumer.getmany(timeout_ms=1_000)
            assert len(asked.of(MetadataRequest)) > 3
            await asyncio.sleep(600)
            began = loop.time()
            await asyncio.sleep(100)
            assert 9 <= len([when for when, _ in asked.of(MetadataRequest) if when > began]) <= 12
            fault.cancel()
            await asyncio.sleep(11)
            assert len(consumer.assignment()) == 3

    virtually(story, brokers=1, topics={"t": 3})


def test_a_partition_that_stays_away_does_not_count_as_one_that_the_topic_does_not_have() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(MetadataRequest, without_one)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            with pytest.raises(RequestTimedOut, match="no offsets of t-1"):
                await client.list_offsets({LONE: LATEST}, timeout_ms=3_000)
            with pytest.raises(UnknownTopic, match="t-3 does not exist: the topic has 3 partitions"):
                await client.list_offsets({TopicPartition("t", 3): LATEST}, timeout_ms=3_000)

    virtually(story, topics={"t": 3})
