"""UNKNOWN_SERVER_ERROR does not name a cause, so the client asks again: one rule for all requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokc import EARLIEST, Client, Consumer, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError, KafkaError, RequestTimedOut
from aiokc.testing import Cluster
from aiokc.wire import Request
from aiokc.wire.messages.discovery import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from aiokc.wire.messages.offsets import (
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)

from ...virtually import virtually

ZERO = TopicPartition("t", 0)
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
Call = Callable[[Consumer[Any, Any]], Awaitable[object]]

EVERYTHING: list[type[Request[Any]]] = [
    ApiVersionsRequest,
    MetadataRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    HeartbeatRequest,
    OffsetFetchRequest,
    OffsetCommitRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    FetchRequest,
]


def member_of(cluster: Cluster, **options: Any) -> Consumer[Any, Any]:
    return Consumer(
        "t", **{"bootstrap_servers": cluster.bootstrap, "group_id": "g", "auto_offset_reset": "earliest", **options}
    )


@pytest.mark.parametrize("asked", EVERYTHING, ids=lambda asked: asked.__name__)
def test_what_fails_some_times_is_asked_again_until_it_succeeds(asked: type[Request[Any]]) -> None:
    """Nothing else notices: neither a call that waits for the answer, nor the membership in the group."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"a", b"b", partition=0)
        trouble = cluster.intercept(asked, UNKNOWN, times=3)
        async with member_of(cluster) as member:
            batch = await member.getmany(timeout_ms=30_000)
            assert [record.value for record in batch[ZERO]] == [b"a", b"b"]
            await member.commit(batch)
            assert (await member.committed(ZERO))[ZERO] is not None
            if asked is OffsetForLeaderEpochRequest:
                cluster.move_leader("t", 0)
            if asked is HeartbeatRequest:
                assert not await member.getmany(timeout_ms=30_000)
            cluster.append("t", b"c", partition=0)
            batch = await member.getmany(timeout_ms=60_000)
            assert [record.value for record in batch[ZERO]] == [b"c"]
            assert member.health().error is None
            assert trouble.hits == 3
        assert cluster.committed("g") == {ZERO: 3}

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize(
    ("asked", "call"),
    [
        (OffsetCommitRequest, lambda consumer: consumer.commit({ZERO: 1}, timeout_ms=2_000)),
        (OffsetFetchRequest, lambda consumer: consumer.committed(ZERO, timeout_ms=2_000)),
        (FindCoordinatorRequest, lambda consumer: consumer.committed(ZERO, timeout_ms=2_000)),
        (ListOffsetsRequest, lambda consumer: consumer.end_offsets([ZERO], timeout_ms=2_000)),
        (ApiVersionsRequest, lambda consumer: consumer.start(timeout_ms=2_000)),
    ],
    ids=lambda asked: asked.__name__ if isinstance(asked, type) else "",
)
def test_a_call_that_waits_for_it_says_so_when_its_time_is_over(asked: type[Request[Any]], call: Call) -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        trouble = cluster.intercept(asked, UNKNOWN)
        consumer: Consumer[Any, Any] = Consumer(bootstrap_servers=cluster.bootstrap, group_id="g")
        consumer.assign([ZERO])
        if asked is not ApiVersionsRequest:
            await consumer.start()
        began = loop.time()
        with pytest.raises((RequestTimedOut, ConnectionError)) as caught:
            await call(consumer)
        assert 1.5 < loop.time() - began < 3
        assert trouble.hits > 2
        causes = [str(caught.value), str(caught.value.__cause__)]
        assert any("UNKNOWN_SERVER_ERROR" in cause for cause in causes), causes
        trouble.cancel()
        await consumer.stop()

    virtually(story)


@pytest.mark.parametrize(
    "asked",
    [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, FetchRequest],
    ids=lambda asked: asked.__name__,
)
def test_work_without_a_deadline_goes_on_and_health_says_why(asked: type[Request[Any]]) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"a", partition=0)
        trouble = cluster.intercept(asked, UNKNOWN)
        async with member_of(cluster) as member:
            assert not await member.getmany(timeout_ms=60_000)
            assert "UNKNOWN_SERVER_ERROR" in str(member.health().last_error)
            assert 30 < trouble.hits < 200, "with pauses"
            trouble.cancel()
            assert await member.getmany(timeout_ms=30_000)
            assert member.health().last_error is None

    virtually(story, topics={"t": 1})


def test_a_commit_that_is_not_waited_for_is_sent_once() -> None:
    async def story(cluster: Cluster) -> None:
        heard: list[KafkaError | None] = []
        async with member_of(cluster) as member:
            await member.getmany(timeout_ms=5_000)
            trouble = cluster.intercept(OffsetCommitRequest, UNKNOWN)
            member.commit_soon({ZERO: 1}, lambda offsets, error: heard.append(error))
            await member.getmany(timeout_ms=5_000)
            trouble.cancel()
            [error] = heard
            assert isinstance(error, BrokerError)
            assert (error.code, error.retriable, trouble.hits) == (UNKNOWN, True, 1)

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize("asked", [MetadataRequest, FetchRequest, ListOffsetsRequest, OffsetFetchRequest])
def test_a_client_asks_again_too(asked: type[Request[Any]]) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"a", partition=0)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            cluster.intercept(asked, UNKNOWN, times=3)
            assert await client.list_topics(["t"])
            assert await client.list_offsets({ZERO: EARLIEST})
            assert await client.committed("g", [ZERO]) == {ZERO: None}
            assert [part.next_offset async for part in client.read({ZERO: (0, 1)})] == [1]

    virtually(story, topics={"t": 1})
