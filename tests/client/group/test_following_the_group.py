"""Which topics a member follows in the metadata: the whole group's while it leads the group, else only its own."""

from __future__ import annotations

import asyncio
import re

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.testing import Cluster, ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import delay
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse
from aiokc.wire.messages.group import JoinGroupRequest

from ..listening import Noting, Polling, listening
from ..virtually import virtually
from .consumer.group_stories import consumer_of

pytestmark = pytest.mark.timeout(30)


def followed(consumer: Consumer) -> frozenset[str] | set[str] | None:
    return consumer._runtime.cluster_client.metadata.followed


def test_a_former_leader_does_not_follow_the_topics_of_others() -> None:
    """If it did, each refresh of the metadata would name them for as long as the consumer lives."""

    async def story(cluster: Cluster) -> None:
        hears, other_hears = Noting(), Noting()
        first = listening(cluster, "t", listener=hears)
        async with first, Polling(first):
            await hears.until(lambda: len(hears.holds) == 1)
            second = listening(cluster, "u", listener=other_hears)
            async with second, Polling(second):
                await other_hears.until(lambda: len(other_hears.holds) == 1)
                assert followed(first) == {"t", "u"}
                assert followed(second) == {"u"}
                cluster.expire_member("g", first._runtime.membership.member_id)  # type: ignore[union-attr]
                await hears.until(lambda: hears.calls[-2:] == ["lost", "assigned"])
                await asyncio.sleep(1)
                assert followed(second) == {"t", "u"}, "it leads now"
                assert followed(first) == {"t"}

    virtually(story, topics={"t": 1, "u": 1}, brokers=1)


@pytest.mark.parametrize(("lacks_for", "joins"), [(0.6, 1), (3.0, 2)], ids=["by mistake", "for long"])
def test_a_leader_that_assigns_takes_no_topic_away_that_a_broker_does_not_know_yet(
    lacks_for: float, joins: int
) -> None:
    """1. A broker that has just started answers without the topic. 2. The group rebalances at that moment."""

    async def story(cluster: Cluster) -> None:
        hears, whole = Noting(), {TopicPartition("t", 0), TopicPartition("u", 0)}
        consumer = listening(cluster, "t", "u", listener=hears, retry_backoff_max_ms=1_000)

        async def forgets(exchange: Exchange) -> None:
            answer = await exchange.handle()
            assert isinstance(answer, MetadataResponse)
            for topic in answer.topics:
                if topic.name == "u":
                    topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
            await exchange.answer(answer)

        async with consumer, Polling(consumer):
            await hears.until(lambda: len(hears.holds) == 2)
            metadata = consumer._runtime.cluster_client.metadata
            fault = cluster.intercept(MetadataRequest, forgets)
            metadata.request_update()
            while "u" in metadata.cluster.topics:
                await metadata.changed.wait()
            joined = cluster.intercept(JoinGroupRequest, delay(0.0))
            consumer.enforce_rebalance()
            await asyncio.sleep(lacks_for)
            fault.cancel()
            await asyncio.sleep(20)
            assert consumer.assignment() == whole
            assert joined.hits == joins

    virtually(story, topics={"t": 1, "u": 1}, brokers=1)


@pytest.mark.parametrize("protocol", ["classic", "consumer", "auto"])
def test_who_subscribes_to_names_before_the_first_metadata_have_come_is_a_member_at_once(protocol: str) -> None:
    """1. A consumer with a pattern starts, and so does its broker, which answers that it knows of no broker yet.
    2. The application subscribes to names. The member joins, and stays in its group.
    """

    async def story(cluster: Cluster) -> None:
        asked = asyncio.Event()

        async def knows_of_none(exchange: Exchange) -> MetadataResponse:
            asked.set()
            answer = await exchange.handle()
            assert isinstance(answer, MetadataResponse)
            answer.brokers = []
            return answer

        starts = cluster.intercept(MetadataRequest, knows_of_none)
        consumer = consumer_of(cluster, topics=re.compile("t|u"), group_protocol=protocol)
        starting = asyncio.ensure_future(consumer.start(timeout_ms=200_000))
        await asked.wait()
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        await asyncio.sleep(1.0)
        [member_id] = cluster.members("g")
        await asyncio.sleep(100.0)  # longer than any session
        assert cluster.members("g") == [member_id]
        assert not starting.done()
        starts.cancel()
        await starting
        async with consumer:
            await consumer.wait_assigned()
            assert consumer.assignment() == {TopicPartition("t", 0)}
            assert cluster.members("g") == [member_id]

    virtually(story, topics={"t": 1, "u": 1}, brokers=1)
