"""A consumer without a group reads all partitions of its subscribed topics, while topics are created and deleted."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, ConfigError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse

from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)


def reading(cluster: Cluster, *topics: str, **options: Any) -> Consumer:
    return Consumer(
        *topics,
        **{
            "bootstrap_servers": cluster.bootstrap,
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
            "retry_backoff_ms": 10,
            "retry_backoff_max_ms": 50,
            **options,
        },
    )


async def refreshed(consumer: Consumer, condition: Callable[[], bool]) -> None:
    """Refresh the metadata, and return when the condition holds after that."""
    metadata = consumer._runtime.cluster_client.metadata
    async with asyncio.timeout(10):
        while not condition():
            metadata.request_update()
            await metadata.changed.wait()


def test_a_name_that_no_assignor_has_is_told_without_a_group_too() -> None:
    with pytest.raises(ConfigError, match="unknown assignor 'ranged'; did you mean 'range'"):
        Consumer("t", partition_assignment_strategy=["ranged"])


async def without_topics(exchange: Exchange) -> MetadataResponse:
    response = await exchange.handle()
    assert isinstance(response, MetadataResponse)
    for topic in response.topics:
        topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
    return response


async def forbidden(exchange: Exchange) -> MetadataResponse:
    response = await without_topics(exchange)
    for topic in response.topics:
        topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return response


async def without_partition_0(exchange: Exchange) -> MetadataResponse:
    response = await exchange.handle()
    assert isinstance(response, MetadataResponse)
    for topic in response.topics:
        topic.partitions = [one for one in topic.partitions if one.partition_index != 0]
    return response


async def test_a_broker_that_does_not_know_a_topic_for_a_moment_repeats_nothing() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0")
        async with reading(cluster, "t") as consumer:
            assert (await consumer.getone()).value == b"0"
            unknown = cluster.intercept(MetadataRequest, without_topics, times=2)
            known = consumer._runtime.cluster_client.metadata
            await refreshed(consumer, lambda: "t" not in known.cluster.topics)
            assert len(consumer.assignment()) == 2
            await refreshed(consumer, lambda: "t" in known.cluster.topics)
            assert unknown.hits == 2
            cluster.append("t", b"1")
            async with asyncio.timeout(10):
                assert (await consumer.getone()).value == b"1"


async def test_a_topic_that_is_created_again_is_read_from_its_beginning() -> None:
    """Also with "latest", and also if the new log is already longer than the position in the old one."""
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"old")
        async with reading(cluster, "t", auto_offset_reset="latest") as consumer:
            async with asyncio.timeout(10):
                while not consumer.assignment():
                    await consumer._runtime.changed.wait()
            assert await consumer.position(TopicPartition("t", 0)) == 1
            cluster.append("t", b"1")
            assert (await consumer.getone()).value == b"1"
            cluster.recreate_topic("t")
            cluster.append("t", b"a", b"b", b"c")
            async with asyncio.timeout(10):
                assert [(await consumer.getone()).value for _ in range(3)] == [b"a", b"b", b"c"]


async def test_a_topic_that_is_dropped_and_wanted_again_at_once_is_read() -> None:
    async with Cluster(topics={"t": 1, "u": 1}) as cluster, reading(cluster, "t", "u") as consumer:
        await consumer.getmany(timeout_ms=200)
        assert len(consumer.assignment()) == 2
        consumer.subscribe(["t"])
        consumer.subscribe(["t", "u"])
        cluster.append("u", b"0")
        async with asyncio.timeout(10):
            assert (await consumer.getone()).value == b"0"


def test_a_topic_that_was_missing_at_first_is_read_from_its_beginning() -> None:
    """Also with "latest": its first records were written after the consumer began to wait for it."""

    async def story(cluster: Cluster) -> None:
        async with reading(cluster, "new", auto_offset_reset="latest") as consumer:
            assert not await consumer.getmany(timeout_ms=1_000)
            cluster.create_topic("new", 1)
            cluster.append("new", b"0", b"1")
            assert [(await consumer.getone()).value for _ in range(2)] == [b"0", b"1"]

    virtually(story, brokers=1, topics={})


def test_a_topic_that_the_metadata_do_not_name_yet_is_not_new() -> None:
    """It is subscribed to while the consumer runs: what was written before that is not read with "latest"."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"old")
        async with reading(cluster, auto_offset_reset="latest") as consumer:
            consumer.subscribe(["t"])
            assert not await consumer.getmany(timeout_ms=1_000)
            cluster.append("t", b"new")
            assert (await consumer.getone()).value == b"new"

    virtually(story, brokers=1, topics={"t": 1})


@pytest.mark.parametrize(
    ("topics", "answer"),
    [(["t"], forbidden), (["t"], without_partition_0), (re.compile("t"), without_partition_0)],
    ids=["forbidden", "in-part", "in-part-by-pattern"],
)
def test_what_brokers_hide_at_first_is_not_new(
    topics: list[str] | re.Pattern[str], answer: Callable[[Exchange], Awaitable[MetadataResponse]]
) -> None:
    """With "latest" nothing is read that was written before: the permission comes late, or a broker was behind."""
    old, new = TopicPartition("t", 0), TopicPartition("t", 1)

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"old")
        async with reading(cluster, auto_offset_reset="latest") as consumer:
            hidden = cluster.intercept(MetadataRequest, answer, times=2)
            consumer.subscribe(topics)
            known = consumer._runtime.cluster_client.metadata
            await refreshed(consumer, lambda: hidden.hits == 2 and known.cluster.partition(old) is not None)
            with contextlib.suppress(AuthorizationFailed):
                assert not await consumer.getmany(timeout_ms=1_000)
            assert consumer.assignment() == {old, new}
            cluster.append("t", b"new")
            assert (await consumer.getone()).value == b"new"
            cluster.add_partitions("t", 3)
            cluster.append("t", b"late", partition=2)
            assert (await consumer.getone()).value == b"late"

    virtually(story, brokers=1, topics={"t": 2})


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_REPLICATION_FACTOR])
def test_a_topic_that_could_not_be_created_at_first_is_read_from_its_beginning(code: ErrorCode) -> None:
    """It may not have been there: where brokers create topics, one that this principal may not create is forbidden."""

    async def refused(exchange: Exchange) -> MetadataResponse:
        response = await without_topics(exchange)
        for topic in response.topics:
            topic.error_code = code
        return response

    async def story(cluster: Cluster) -> None:
        options = {"auto_offset_reset": "latest", "allow_auto_create_topics": True}
        async with reading(cluster, **options) as consumer:
            hidden = cluster.intercept(MetadataRequest, refused, times=2)
            consumer.subscribe(["t"])
            await refreshed(consumer, lambda: hidden.hits == 2)
            cluster.append("t", b"first")
            values: list[bytes | None] = []
            async with asyncio.timeout(60):
                while not values:
                    with contextlib.suppress(AuthorizationFailed):
                        values = [(await consumer.getone()).value]
                    await asyncio.sleep(0.01)
            assert values == [b"first"]

    virtually(story, brokers=1, topics={"t": 1})
