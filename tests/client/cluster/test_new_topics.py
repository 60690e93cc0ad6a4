"""Topics that a running client begins to follow: it asks for them at once, and a loop of new topics is no storm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Client, Consumer, TopicPartition
from aiokc.client.cluster import metadata as metadata_module
from aiokc.testing import Cluster
from aiokc.testing.faults import Hold, delay
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.types import LATEST
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.offsets import ListOffsetsRequest, OffsetFetchRequest

from ..virtually import Asked, port_of, virtually

# What the round trips of these stories take: far less than the pause between two refreshes, 100 ms.
SOON = 0.03


def the_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def assign(consumer: Consumer[Any, Any], topic: str) -> None:
    consumer.assign([TopicPartition(topic, 0)])


def subscribe(consumer: Consumer[Any, Any], topic: str) -> None:
    consumer.subscribe([topic])


@pytest.mark.parametrize("group_id", [None, "g"])
@pytest.mark.parametrize("choose", [assign, subscribe])
@pytest.mark.parametrize("later", [0.0, 0.05])
def test_the_first_record_comes_after_some_round_trips(
    choose: Callable[[Consumer[Any, Any], str], None], group_id: str | None, later: float
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("a", b"1", partition=0)
        cluster.append("b", b"2", partition=0)
        loop = the_loop()
        async with Consumer(
            bootstrap_servers=cluster.bootstrap,
            group_id=group_id,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=1,  # the Fetch of the first topic holds back the one of the second
        ) as consumer:
            for topic, value in (("a", b"1"), ("b", b"2")):
                await asyncio.sleep(later)
                began = loop.time()
                choose(consumer, topic)
                assert (await consumer.getone()).value == value
                assert loop.time() - began < SOON

    virtually(story, topics={"a": 1, "b": 1})


def test_a_topic_that_is_followed_while_a_response_is_on_its_way_waits_for_that_only() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("b", b"2", partition=0)
        loop = the_loop()
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            cluster.intercept(MetadataRequest, delay(0.2), times=1)
            assign(consumer, "a")
            await asyncio.sleep(0.1)
            began = loop.time()
            assign(consumer, "b")
            assert (await consumer.getone()).value == b"2"
            assert loop.time() - began < 0.1 + SOON

    virtually(story, topics={"a": 1, "b": 1})


def test_a_client_asks_for_one_topic_after_the_other_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        loop = the_loop()
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            for topic in ("a", "b"):
                began = loop.time()
                await client.list_offsets({TopicPartition(topic, 0): LATEST})
                assert loop.time() - began < SOON

    virtually(story, topics={"a": 1, "b": 1})


def test_a_loop_of_new_topics_is_no_storm() -> None:
    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, the_loop())
        async with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
            for count in range(2000):
                assign(consumer, f"new-{count}")
                await asyncio.sleep(0.001)
            assert 20 <= len(asked.of(MetadataRequest)) <= 30, "one each 100 ms, and some at the beginning"

    virtually(story, topics={}, auto_create_topics_enable=False)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_the_leader_is_connected_to_for_fetches_while_the_position_is_looked_up(group_id: str | None) -> None:
    """Handshakes with TLS and SASL take many round trips, which the first record would come later."""

    async def story(cluster: Cluster) -> None:
        loop = the_loop()
        asked = Asked(cluster, loop)
        loop.network.latency = 0.01, 0.01
        cluster.append("t", b"1", partition=0)
        hold = Hold()
        cluster.intercept(OffsetFetchRequest if group_id else ListOffsetsRequest, hold, times=1)
        async with Consumer(
            "t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", group_id=group_id
        ) as consumer:
            first = asyncio.ensure_future(consumer.getone())
            await hold.arrived()
            await asyncio.sleep(0.1)
            leader = cluster.leader("t", 0)
            assert leader is not None
            port = port_of(cluster, leader)
            connects = [where for _, kind, where in asked.log if kind == "connect" and where == port]
            assert connects, "before there is a position"
            hold.release()
            released = loop.time()
            assert (await first).value == b"1"
            # The answer comes, with a group ListOffsets follows (by a connection of its own), and then the Fetch.
            assert loop.time() - released < (0.05 if group_id is None else 0.12)

    virtually(story)


def test_who_misses_what_is_being_read_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """To take over thousands of partitions lets other tasks run: a lookup of positions misses their leaders then."""

    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, the_loop())
        cluster.append("many", b"1", partition=1_900)
        async with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            take_over, metadata = metadata_module.merged_snapshot, consumer._runtime.cluster_client.metadata

            async def while_another_looks(*given: Any, **options: Any) -> Any:
                taking = asyncio.ensure_future(take_over(*given, **options))
                await asyncio.sleep(0)
                assert not taking.done()
                metadata.request_missing()
                return await taking

            monkeypatch.setattr(metadata_module, "merged_snapshot", while_another_looks)
            before = len(asked.of(MetadataRequest))
            consumer.assign([TopicPartition("many", partition) for partition in range(2_000)])
            assert (await consumer.getone()).value == b"1"
            await asyncio.sleep(1)
            assert len(asked.of(MetadataRequest)) == before + 1

    virtually(story, topics={"many": 2_000})
