"""Auto-commit and deleted topics: it gives up what cannot be stored, and asks no broker for it for ever."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, BrokerError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.types import TopicPartition
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.offsets import OffsetCommitRequest, OffsetCommitResponse

from ..virtually import Asked, virtually

pytestmark = pytest.mark.timeout(30)

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
TOPICS: dict[str, Any] = {"topics": {"a": 1, "b": 1}, "brokers": 1}


def options_of(cluster: Cluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "allow_auto_create_topics": False,
        "fetch_max_wait_ms": 5_000,
    }


async def read_both(cluster: Cluster, consumer: Consumer) -> None:
    """Process five records of each topic; none is stored yet."""
    for topic in ("a", "b"):
        cluster.append(topic, *[b"x"] * 5)
    consumer.assign([A, B])
    found = 0
    while found < 10:
        found += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
    await consumer.getmany(timeout_ms=1)
    assert cluster.committed("g") == {}


async def poll_for(consumer: Consumer, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await consumer.getmany(timeout_ms=5_000)


@pytest.mark.parametrize("is_recreated", [False, True], ids=["deleted", "recreated"])
@pytest.mark.parametrize("leave", ["another assignment", "unsubscribe()"])
def test_a_deleted_topic_that_was_left_is_given_up(
    leave: str, is_recreated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Only auto-commit still asks for the topic: what one attempt learns of it must last until the next one."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with Consumer(**options_of(cluster)) as consumer:
            await read_both(cluster, consumer)
            if is_recreated:
                cluster.recreate_topic("a")
            else:
                cluster.delete_topic("a")
            if leave == "unsubscribe()":
                consumer.unsubscribe()
            consumer.assign([B])
            asked, began = Asked(cluster, loop), loop.time()
            await poll_for(consumer, 120)
            assert consumer.health().last_error is None
            assert 1 <= asked.since(began)["OffsetCommitRequest"] <= 3
            assert asked.since(began + 20)["OffsetCommitRequest"] == 0
            assert asked.since(began + 20)["MetadataRequest"] == 0, "the topic is not followed any more"
            assert cluster.committed("g") == {B: 5}
            left_at = loop.time()
        assert loop.time() - left_at < 0.5, "stop() has nothing to wait for"

    with caplog.at_level(logging.WARNING, "aiokc.group"):
        virtually(story, **TOPICS)
    assert "auto-commit gives up a-0: the topic was deleted since" in caplog.text


def test_a_deleted_topic_is_given_up_while_another_one_is_forbidden(caplog: pytest.LogCaptureFixture) -> None:
    """The error of the commit is that of the forbidden topic, and names the deleted one nowhere."""

    async def forbid_what_exists(exchange: Exchange) -> OffsetCommitResponse:
        answer = await exchange.handle()
        assert isinstance(answer, OffsetCommitResponse)
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.error_code = partition.error_code or ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return answer

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with Consumer(**options_of(cluster)) as consumer:
            await read_both(cluster, consumer)
            cluster.intercept(OffsetCommitRequest, forbid_what_exists)
            cluster.delete_topic("a")
            consumer.assign([B])
            asked, began = Asked(cluster, loop), loop.time()
            await poll_for(consumer, 60)
            assert isinstance(consumer.health().last_error, AuthorizationFailed)
            commits = [request for when, request in asked.of(OffsetCommitRequest) if when >= began + 20]
            assert commits, "what is forbidden is tried again"
            assert all(len(request.topics) == 1 for request in commits)
            assert asked.since(began + 20)["MetadataRequest"] == 0, "no topic is followed any more"

    with caplog.at_level(logging.WARNING, "aiokc.group"):
        virtually(story, **TOPICS)
    assert "auto-commit gives up a-0: the topic was deleted since" in caplog.text


def test_a_topic_that_only_the_coordinator_denies_is_stored_once_it_knows_it() -> None:
    """Brokers hear of topics one by one, and the metadata say that it exists."""

    async def story(cluster: Cluster) -> None:
        async with Consumer(**options_of(cluster)) as consumer:
            await read_both(cluster, consumer)
            refused = cluster.intercept(OffsetCommitRequest, ErrorCode.UNKNOWN_TOPIC_ID)
            consumer.assign([B])
            await poll_for(consumer, 30)
            assert isinstance(consumer.health().last_error, BrokerError)
            refused.cancel()
            await poll_for(consumer, 6)
            assert consumer.health().last_error is None
            assert cluster.committed("g") == {A: 5, B: 5}

    virtually(story, **TOPICS)


def test_a_deleted_topic_that_is_still_assigned_is_left_out_until_it_exists_again() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with Consumer(**options_of(cluster)) as consumer:
            await read_both(cluster, consumer)
            cluster.delete_topic("a")
            await poll_for(consumer, 20)
            asked, began = Asked(cluster, loop), loop.time()
            await poll_for(consumer, 60)
            assert asked.since(began)["OffsetCommitRequest"] == 0
            assert asked.of(MetadataRequest), "it may be created again"
            cluster.create_topic("a", 1)
            cluster.append("a", *[b"new"] * 3)
            await poll_for(consumer, 20)
            assert cluster.committed("g") == {A: 3, B: 5}

    virtually(story, **TOPICS)
