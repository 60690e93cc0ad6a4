"""Topics that do not exist yet: a consumer looks again soon, and less and less often while nothing changes."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from aiokc import Client, Consumer, ErrorCode, TopicPartition
from aiokc.errors import AuthorizationFailed, UnknownTopic
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import drop
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataRequest

from ..virtually import Asked, virtually


def the_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


async def all_assigned(*consumers: Consumer[Any, Any], count: int) -> float:
    """Poll until these consumers have ``count`` partitions together; return how long that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    polling = [asyncio.create_task(consumer.getmany(timeout_ms=30_000)) for consumer in consumers]
    try:
        while sum(len(consumer.assignment()) for consumer in consumers) < count:
            assert loop.time() < began + 30
            await asyncio.sleep(0.001)
        return loop.time() - began
    finally:
        for task in polling:
            task.cancel()
        await asyncio.wait(polling)


@pytest.mark.parametrize("group_id", ["g", None])
def test_a_topic_that_the_brokers_create_is_assigned_after_some_round_trips(group_id: str | None) -> None:
    async def story(cluster: Cluster) -> None:
        async with Consumer("new", bootstrap_servers=cluster.bootstrap, group_id=group_id) as consumer:
            assert await all_assigned(consumer, count=1) < 0.3

    virtually(story, topics={})


def test_a_group_has_a_topic_soon_that_takes_the_brokers_a_while() -> None:
    """All members learn that it does not exist, and are assigned nothing; a quarter of a second later it exists."""

    async def story(cluster: Cluster) -> None:
        options = {"bootstrap_servers": cluster.bootstrap, "group_id": "g", "allow_auto_create_topics": False}
        async with (
            Consumer("new", **options) as one,  # type: ignore[arg-type]
            Consumer("new", **options) as two,  # type: ignore[arg-type]
        ):
            asyncio.get_running_loop().call_later(0.25, cluster.create_topic, "new", 4)
            assert await all_assigned(one, two, count=4) < 0.9
            assert (len(one.assignment()), len(two.assignment())) == (2, 2)

    virtually(story, topics={})


def test_all_members_of_a_group_have_a_topic_soon_after_it_is_created() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        options = {"bootstrap_servers": cluster.bootstrap, "group_id": "g", "allow_auto_create_topics": False}
        async with (
            Consumer("new", **options) as one,  # type: ignore[arg-type]
            Consumer("new", **options) as two,  # type: ignore[arg-type]
        ):
            polling = [asyncio.create_task(member.getmany(timeout_ms=10_000)) for member in (one, two)]
            await asyncio.wait(polling)
            cluster.create_topic("new", 4)
            began = loop.time()
            await all_assigned(one, two, count=4)
            assert (len(one.assignment()), len(two.assignment())) == (2, 2)
            assert loop.time() - began < 2.5  # it has been missing for long, so they look each second

    virtually(story, topics={})


def test_a_topic_that_stays_missing_is_asked_for_less_and_less_often() -> None:
    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, the_loop())
        async with Consumer(
            "missing", "t", bootstrap_servers=cluster.bootstrap, group_id="g", allow_auto_create_topics=False
        ) as consumer:
            await consumer.getmany(timeout_ms=60_000)
            times = [when for when, _ in asked.of(MetadataRequest)]
            pauses = [after - before for before, after in pairwise(times)]
            assert len(times) < 70
            assert pauses[0] < 0.3
            assert all(pause >= 0.79 for pause in pauses[6:]), pauses

    virtually(story)


def test_another_topic_that_is_missing_is_looked_for_soon_again() -> None:
    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, the_loop())
        async with Consumer(
            "missing", bootstrap_servers=cluster.bootstrap, group_id="g", allow_auto_create_topics=False
        ) as consumer:
            await consumer.getmany(timeout_ms=30_000)
            consumer.subscribe(["missing", "another"])
            began = asyncio.get_running_loop().time()
            await consumer.getmany(timeout_ms=10_000)
            times = [when - began for when, _ in asked.of(MetadataRequest) if when >= began]
            assert len([when for when in times if when < 1]) >= 4, times
            assert len(times) < 17

    virtually(story)


def test_a_topic_that_may_not_be_seen_is_not_looked_for_in_haste() -> None:
    """Time does not cure that. Asking once a second is enough in case an administrator grants the permission."""

    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, the_loop())
        consumer = Consumer("a b", bootstrap_servers=cluster.bootstrap, group_id="g")
        async with consumer:
            with pytest.raises(Exception, match="a b"):
                await consumer.getmany(timeout_ms=30_000)
            await asyncio.sleep(30)
            times = [when for when, _ in asked.of(MetadataRequest)]
            assert len(times) < 35
            assert sum(when < times[0] + 1 for when in times) <= 3, times

    virtually(story)


def test_between_an_answer_and_the_next_question_is_a_pause_also_where_the_options_say_none() -> None:
    async def story(cluster: Cluster) -> None:
        loop = the_loop()
        ended: list[float] = []
        pauses: list[float] = []

        async def answered(exchange: Exchange) -> Any:
            pauses.extend(loop.time() - end for end in ended[-1:])
            answer = await exchange.handle()
            ended.append(loop.time())
            return answer

        consumer = Consumer(
            "a b", bootstrap_servers=cluster.bootstrap, group_id="g", retry_backoff_ms=0, retry_backoff_max_ms=0
        )
        async with consumer:
            with pytest.raises(Exception, match="a b"):
                await consumer.getmany(timeout_ms=30_000)
            cluster.intercept(MetadataRequest, answered)
            await asyncio.sleep(0.2)
        assert min(pauses) >= 0.001
        assert len(pauses) > 10

    virtually(story)


def test_a_client_that_waits_for_a_topic_does_not_hammer_the_brokers() -> None:
    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, the_loop())
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            with pytest.raises(UnknownTopic):
                await client.list_offsets({TopicPartition("missing", 0): 0}, timeout_ms=30_000)
            assert len(asked.of(MetadataRequest)) < 80  # two or three requests a second

    virtually(story)


def test_a_topic_that_the_brokers_lacked_is_unknown_also_where_the_last_answer_comes_too_late() -> None:
    """On a busy machine little of the time is left for the last question: that is no reason to blame the brokers."""

    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            cluster.intercept(MetadataRequest, lambda exchange: None, times=1)
            cluster.intercept(MetadataRequest, drop())
            with pytest.raises(UnknownTopic, match="nowhere"):
                await client.list_topics("nowhere", timeout_ms=1_000)

    virtually(story)


def test_a_topic_that_is_missing_does_not_hide_that_another_one_is_forbidden() -> None:
    """Time does not cure that, so it is told at once."""

    async def forbidden(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        for topic in answer.topics:
            if topic.name == "t":
                topic.error_code, topic.partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
        return answer

    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            cluster.intercept(MetadataRequest, forbidden)
            began = asyncio.get_running_loop().time()
            with pytest.raises(AuthorizationFailed, match="topic 't'"):
                await client.list_topics(["nowhere", "t"])
            assert asyncio.get_running_loop().time() - began < 0.1

    virtually(story)
