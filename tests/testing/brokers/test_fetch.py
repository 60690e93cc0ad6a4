"""Fetch on the wire: long polls, limits, sessions, epochs, racks, transactions."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.records import split_batches
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
)

from ..questions import topic_id_of
from ..wire_client import WireClient, connected

V12 = 12  # the last version that names topics
pytestmark = pytest.mark.any_loop

LONG = 60_000  # ms: a test that waits this long has failed


def _fetch(*partitions: FetchPartition, topic: str = "events", **options: Any) -> FetchRequest:
    defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1}
    topics = [FetchTopic(topic=topic, partitions=list(partitions))] if partitions else []
    return FetchRequest(**defaults | {"topics": topics} | options)


def _at(offset: int, index: int = 0, **options: Any) -> FetchPartition:
    defaults: dict[str, Any] = {"partition_max_bytes": 1 << 20}
    return FetchPartition(partition=index, fetch_offset=offset, **defaults | options)


def _offsets(data: PartitionData) -> list[int]:
    return [header.base_offset for header, _ in split_batches(data.records or memoryview(b""))]


def _pass(exchange: Exchange) -> None:
    """An interceptor that only notifies the test."""


async def _one(client: WireClient, request: FetchRequest, version: int = V12) -> PartitionData:
    answer = await client.ask(request, version)
    ((partition,),) = (topic.partitions for topic in answer.responses)
    return partition


async def test_a_fetch_waits_until_a_record_comes() -> None:
    async with Cluster(topics={"events": 2}) as cluster, connected(cluster.bootstrap) as client:
        fetches = cluster.intercept(FetchRequest, _pass)
        client.send(_fetch(_at(0, 0), _at(0, 1), max_wait_ms=LONG), V12)
        await fetches.caught()
        cluster.append("events", b"a", partition=1)
        answer = await client.receive()
    assert [_offsets(partition) for partition in answer.responses[0].partitions] == [[], [0]]


async def test_a_fetch_waits_for_its_min_bytes() -> None:
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        fetches = cluster.intercept(FetchRequest, _pass)
        cluster.append("events", b"." * 100)
        answer = asyncio.create_task(_one(client, _fetch(_at(0), max_wait_ms=LONG, min_bytes=300)))
        await fetches.caught()
        assert not answer.done()
        cluster.append("events", b"." * 200)
        assert _offsets(await answer) == [0, 1]


async def test_a_fetch_ends_with_its_time() -> None:
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        cluster.append("events", b"a")
        data = await _one(client, _fetch(_at(0), max_wait_ms=20, min_bytes=1 << 20))
        assert _offsets(data) == [0]
        assert (data.error_code, data.high_watermark, data.log_start_offset) == (0, 1, 0)


async def test_a_fetch_that_waits_hears_of_a_moved_leader_and_a_deleted_topic() -> None:
    async with Cluster(brokers=2, topics={"events": 1, "gone": 1}) as cluster, connected(cluster.bootstrap) as client:
        fetches = cluster.intercept(FetchRequest, _pass)
        client.send(_fetch(_at(0, current_leader_epoch=0), max_wait_ms=LONG), V12)
        await fetches.caught()
        cluster.move_leader("events")
        assert (await client.receive()).responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        client.send(_fetch(_at(0), topic="gone", max_wait_ms=LONG), V12)
        await fetches.caught(2)
        cluster.delete_topic("gone")
        answer = await client.receive()
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
async def test_limits_let_the_first_batch_through_and_cut_the_others(limit: str) -> None:
    async with Cluster(topics={"events": 2}) as cluster, connected(cluster.bootstrap) as client:
        for _ in range(3):
            cluster.append("events", b"." * 1000)
        cluster.append("events", b"." * 1000, partition=1)

        def limited(size: int) -> FetchRequest:
            if limit == "max_bytes":
                return _fetch(_at(0, 0), _at(0, 1), max_bytes=size)
            return _fetch(_at(0, 0, partition_max_bytes=size), _at(0, 1, partition_max_bytes=size))

        first, second = (await client.ask(limited(1), V12)).responses[0].partitions
        assert (_offsets(first), _offsets(second)) == ([0], [])
        first, _ = (await client.ask(limited(2500), V12)).responses[0].partitions
        assert _offsets(first) == [0, 1]
        assert len(first.records or b"") == 2500  # a part of the third one, as from a real broker


async def test_an_offset_inside_of_a_batch_gets_the_whole_batch() -> None:
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        cluster.append("events", b"a", b"b", b"c")
        cluster.append("events", b"d")
        assert _offsets(await _one(client, _fetch(_at(2)))) == [0, 3]
        assert _offsets(await _one(client, _fetch(_at(4)))) == []


@pytest.mark.parametrize(
    ("partition", "code"),
    [
        (_at(5), ErrorCode.OFFSET_OUT_OF_RANGE),
        (_at(0), ErrorCode.OFFSET_OUT_OF_RANGE),
        (_at(2, current_leader_epoch=9), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (_at(2, current_leader_epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (_at(2, 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_errors_of_a_partition(partition: FetchPartition, code: ErrorCode) -> None:
    async with Cluster(brokers=2, topics={"events": 1}) as cluster:
        cluster.append("events", b"a", b"b", b"c", b"d")
        cluster.trim("events", to=1)
        assert cluster.move_leader("events") == 2
        async with connected(cluster.bootstrap, 2) as client:
            assert (await _one(client, _fetch(partition, max_wait_ms=LONG))).error_code == code


async def test_a_broker_that_does_not_lead_names_the_leader() -> None:
    async with Cluster(brokers=2) as cluster, connected(cluster.bootstrap, 2) as client:
        cluster.create_topic("events", replication_factor=1)
        (topic,) = (await client.ask(MetadataRequest(topics=None))).topics
        request = _fetch(topics=[FetchTopic(topic_id=topic.topic_id, partitions=[_at(0)])])
        answer = await client.ask(request, 17)
        (data,) = answer.responses[0].partitions
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert data.current_leader == LeaderIdAndEpoch(leader_id=1, leader_epoch=0)
        assert [node.node_id for node in answer.node_endpoints] == [1]


async def test_topics_by_id() -> None:
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        (topic,) = (await client.ask(MetadataRequest(topics=None))).topics
        cluster.append("events", b"a")

        def by_id(topic_id: UUID) -> FetchRequest:
            return _fetch(topics=[FetchTopic(topic_id=topic_id, partitions=[_at(0)])])

        assert _offsets(await _one(client, by_id(topic.topic_id), 17)) == [0]
        cluster.recreate_topic("events")
        assert (await _one(client, by_id(topic.topic_id), 17)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_log_that_was_truncated_says_where_it_parts() -> None:
    async with Cluster(brokers=2, topics={"events": 1}) as cluster:
        for value in (b"a", b"b", b"c"):
            cluster.append("events", value)
        cluster.truncate("events", to=1)
        cluster.append("events", b"x")
        assert cluster.leader("events") == 2
        assert [record.value for record in cluster.records("events")] == [b"a", b"x"]
        async with connected(cluster.bootstrap, 2) as client:
            diverging = await _one(client, _fetch(_at(3, last_fetched_epoch=0), max_wait_ms=LONG))
            assert diverging.diverging_epoch == EpochEndOffset(epoch=0, end_offset=1)
            assert (await _one(client, _fetch(_at(1, last_fetched_epoch=0)))).diverging_epoch is None


async def test_a_client_is_sent_to_the_replica_in_its_rack() -> None:
    async with Cluster(brokers=3, racks=["a", "b", "c"], topics={"events": 1}) as cluster:
        cluster.append("events", b"a")
        request = _fetch(_at(0), rack_id="c", max_wait_ms=LONG)
        async with connected(cluster.bootstrap, 1) as leader, connected(cluster.bootstrap, 3) as follower:
            sent = await _one(leader, request)
            assert (sent.preferred_read_replica, _offsets(sent)) == (3, [])
            assert _offsets(await _one(follower, request)) == [0]
            cluster.take_down(3)
            assert _offsets(await _one(leader, request)) == [0]


async def test_a_client_that_asks_beside_the_log_is_sent_to_no_other_replica() -> None:
    """Both would refuse the offset, and the client would be sent to and fro for ever."""
    async with Cluster(brokers=2, racks=["a", "b"], topics={"events": 1}) as cluster:
        for value in (b"a", b"b"):
            cluster.append("events", value)
        cluster.trim("events", to=1)
        async with connected(cluster.bootstrap, 1) as leader:
            for offset in (0, 3):
                refused = await _one(leader, _fetch(_at(offset), rack_id="b", max_wait_ms=LONG))
                out_of_range = refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                assert (out_of_range, refused.preferred_read_replica) == (True, -1)
            assert (await _one(leader, _fetch(_at(1), rack_id="b"))).preferred_read_replica == 2


async def _session(client: WireClient, *partitions: FetchPartition, session: int, epoch: int, **options: Any) -> Any:
    return await client.ask(_fetch(*partitions, session_id=session, session_epoch=epoch, **options), V12)


async def test_a_session_sends_only_changes() -> None:
    async with Cluster(topics={"events": 3}) as cluster, connected(cluster.bootstrap) as client:
        full = await _session(client, _at(0, 0), _at(0, 1), _at(0, 2), session=0, epoch=0)
        assert [partition.partition_index for partition in full.responses[0].partitions] == [0, 1, 2]
        session = full.session_id
        assert session > 0
        assert (await _session(client, session=session, epoch=1)).responses == []

        cluster.append("events", b"a", partition=1)
        news = await _session(client, session=session, epoch=2)
        assert [partition.partition_index for partition in news.responses[0].partitions] == [1]
        again = await _session(client, session=session, epoch=3)  # the position was not moved: the record comes again
        assert _offsets(again.responses[0].partitions[0]) == [0]
        assert (await _session(client, _at(1, 1), session=session, epoch=4)).responses == []

        forgotten = [ForgottenTopic(topic="events", partitions=[0])]
        await _session(client, session=session, epoch=5, forgotten_topics_data=forgotten)
        cluster.append("events", b"b", partition=0)
        assert (await _session(client, session=session, epoch=6)).responses == []


async def test_a_session_serves_in_turn() -> None:
    """A partition that had records goes last, so that a full answer does not always hold the same one."""
    async with Cluster(topics={"events": 2}) as cluster, connected(cluster.bootstrap) as client:
        for index in (0, 1):
            cluster.append("events", b"." * 100, partition=index)
        full = await _session(client, _at(0, 0), _at(0, 1), session=0, epoch=0, max_bytes=1)
        served = [partition.partition_index for partition in full.responses[0].partitions if partition.records]
        for epoch in (1, 2):
            news = await _session(client, session=full.session_id, epoch=epoch, max_bytes=1)
            served += [partition.partition_index for partition in news.responses[0].partitions if partition.records]
        assert served == [0, 1, 0]


async def test_errors_of_sessions() -> None:
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        session = (await _session(client, _at(0), session=0, epoch=0)).session_id
        wrong = await _session(client, session=session, epoch=7)
        assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        cluster.forget_fetch_sessions()
        lost = await _session(client, session=session, epoch=1)
        assert lost.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session = (await _session(client, _at(0), session=0, epoch=0)).session_id
        named_otherwise = _fetch(session_id=session, session_epoch=1, topics=[FetchTopic(partitions=[_at(0)])])
        assert (await client.ask(named_otherwise, 13)).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        closed = await _session(client, _at(0), session=session, epoch=-1)
        assert (closed.error_code, closed.session_id) == (0, 0)
        assert (await _session(client, session=session, epoch=1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_broker_without_room_for_sessions_answers_without_one() -> None:
    cluster = Cluster(max_incremental_fetch_session_cache_slots=1, topics={"events": 1})
    async with cluster, connected(cluster.bootstrap) as client:
        assert (await _session(client, _at(0), session=0, epoch=0)).session_id > 0
        assert (await _session(client, _at(0), session=0, epoch=0)).session_id == 0


@pytest.mark.parametrize("version", [V12, 16])
async def test_a_refusal_covers_the_whole_session(version: int) -> None:
    """A request that continues a session names only what has changed: often nothing, which could not be refused."""
    async with Cluster(topics={"events": 2}) as cluster, connected(cluster.bootstrap) as client:
        topic_id = await topic_id_of(client, "events")
        name: dict[str, Any] = {"topic_id": topic_id} if version > V12 else {"topic": "events"}

        def topic(*partitions: FetchPartition) -> FetchTopic:
            return FetchTopic(**name, partitions=list(partitions))

        def asked(session_id: int, epoch: int, *topics: FetchTopic, **options: Any) -> FetchRequest:
            return FetchRequest(
                max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=list(topics), **options
            )

        opened = await client.ask(asked(0, 0, topic(_at(0), _at(0, 1))), version)
        cluster.intercept(FetchRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
        codes = []
        gone = ForgottenTopic(**name, partitions=[0])
        for request in (asked(opened.session_id, 1), asked(opened.session_id, 1, forgotten_topics_data=[gone])):
            (answered,) = (await client.ask(request, version)).responses
            assert (answered.topic, answered.topic_id) == (topic().topic, topic().topic_id)
            codes.append({one.partition_index: one.error_code for one in answered.partitions})
        assert codes == [dict.fromkeys((0, 1), ErrorCode.NOT_LEADER_OR_FOLLOWER), {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
