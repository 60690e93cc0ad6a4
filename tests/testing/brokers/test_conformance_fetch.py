"""Edge cases of Fetch, ListOffsets and OffsetForLeaderEpoch: the Cluster and a real Kafka answer the same."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.records import Codec
from aiokc.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from aiokc.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from ..conftest import Kafka
from ..questions import NOW, batch_of, fetch_from, offset_at, produce_to, topic_id_of
from ..wire_client import WireClient, connected

pytestmark = pytest.mark.every_kafka

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
LONG = 60_000  # ms: a test that waits this long has failed


def _by_name(topic: str, offset: int, **options: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=[partition])], **defaults | options)


async def _one(client: WireClient, topic: str, offset: int, **options: Any) -> PartitionData:
    topic_id = await topic_id_of(client, topic)
    (found,) = (await fetch_from(client, topic_id, offset, name=topic, **{"max_wait_ms": 0} | options)).responses
    (partition,) = found.partitions
    return partition


@pytest.mark.parametrize("version", range(4, 13))
async def test_every_version_by_name(either: Kafka, topic: str, version: int) -> None:
    async with connected(either.bootstrap) as client:
        await produce_to(client, topic, batch_of(b"a", codec=Codec.ZSTD))
        await produce_to(client, topic, batch_of(b"b"))
        (found,) = (await client.ask(_by_name(topic, 0), version)).responses[0].partitions
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 2, 2)
        size = len(found.records or b"")
        assert size == len(batch_of(b"a", codec=Codec.ZSTD)) + len(batch_of(b"b"))
        (none,) = (await client.ask(_by_name(topic + "-none", 0), version)).responses[0].partitions
        assert (none.error_code, none.high_watermark, len(none.records or b"")) == (UNKNOWN, -1, 0)


@pytest.mark.parametrize(
    ("offset", "partition", "code", "diverging"),
    [
        (1, {"current_leader_epoch": 0}, ErrorCode.NONE, None),
        (1, {"current_leader_epoch": 5}, ErrorCode.UNKNOWN_LEADER_EPOCH, None),
        (1, {"last_fetched_epoch": 0}, ErrorCode.NONE, None),
        (1, {"last_fetched_epoch": 3}, ErrorCode.OFFSET_OUT_OF_RANGE, None),
        (5, {"last_fetched_epoch": 0}, ErrorCode.NONE, (0, 2)),
        (5, {}, ErrorCode.OFFSET_OUT_OF_RANGE, None),
        (-1, {}, ErrorCode.OFFSET_OUT_OF_RANGE, None),
        (2, {}, ErrorCode.NONE, None),
    ],
)
async def test_offsets_and_epochs(
    either: Kafka,
    topic: str,
    offset: int,
    partition: dict[str, int],
    code: ErrorCode,
    diverging: tuple[int, int] | None,
) -> None:
    async with connected(either.bootstrap) as client:
        await produce_to(client, topic, batch_of(b"a", b"b"))
        found = await _one(client, topic, offset, partition=partition)
    parts = found.diverging_epoch
    assert (found.error_code, parts and (parts.epoch, parts.end_offset)) == (code, diverging)
    assert len(found.records or b"") == (0 if code or offset > 1 else len(batch_of(b"a", b"b")))


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"partition": {"partition_max_bytes": 0}}])
async def test_the_first_batch_is_let_through_by_any_limit(either: Kafka, topic: str, limits: dict[str, Any]) -> None:
    async with connected(either.bootstrap) as client:
        for _ in range(2):
            await produce_to(client, topic, batch_of(b"a"))
        found = await _one(client, topic, 0, **limits)
    assert len(found.records or b"") == len(batch_of(b"a"))


async def test_a_long_poll_ends_with_enough_bytes(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client, connected(either.bootstrap) as producer:
        wanted = 2 * len(batch_of(b"a"))
        waiting = asyncio.create_task(_one(client, topic, 0, max_wait_ms=LONG, min_bytes=wanted))
        for _ in range(2):
            await asyncio.sleep(0)
            assert not waiting.done()
            await produce_to(producer, topic, batch_of(b"a"))
        assert len((await waiting).records or b"") == wanted


async def test_a_long_poll_ends_with_its_time(either: Kafka, topic: str) -> None:
    async with connected(either.bootstrap) as client:
        await produce_to(client, topic, batch_of(b"a"))
        began = asyncio.get_running_loop().time()
        found = await _one(client, topic, 0, max_wait_ms=200, min_bytes=1 << 20)
        assert asyncio.get_running_loop().time() - began >= 0.15  # a broker's clock is not the test's
    assert len(found.records or b"") == len(batch_of(b"a"))


@pytest.mark.every_kafka(since="3.1")  # topic ids in a Fetch (KIP-516)
async def test_sessions_at_their_edges(either: Kafka, topic: str) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    async with connected(either.bootstrap) as client:
        topic_id = await topic_id_of(client, topic)
        by_id, unknown = ([FetchTopic(topic_id=one, partitions=[partition])] for one in (topic_id, UUID(int=9)))

        async def asked(topics: list[FetchTopic], session: int, epoch: int, version: int = 16, **options: Any) -> Any:
            request = FetchRequest(
                topics=topics, max_wait_ms=0, min_bytes=1, session_id=session, session_epoch=epoch, **options
            )
            return await client.ask(request, version)

        session = (await asked(by_id, 0, 0)).session_id
        by_name = [FetchTopic(topic=topic, partitions=[partition])]
        assert (await asked(by_name, session, 1, 12)).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        assert (await asked([], session, 1)).error_code == 0  # the epoch was not used up
        forgotten = [ForgottenTopic(topic_id=topic_id, partitions=[0])]
        ended = await asked([], session, 2, forgotten_topics_data=forgotten)
        assert (ended.error_code, ended.session_id) == (0, 0)  # nothing is left of it
        assert (await asked([], session, 3)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (await asked([], 0, 5)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (await asked([], 0, 0)).session_id > 0  # a request without partitions
        assert (await asked([], 77, 0)).session_id > 0  # whatever the id: epoch 0 begins a new one
        strange = await asked(unknown, 0, 0)
        for _ in range(2):
            codes = [one.error_code for found in strange.responses for one in found.partitions]
            assert codes == [ErrorCode.UNKNOWN_TOPIC_ID]  # in every answer
            strange = await asked([], strange.session_id, 1)


# ListOffsets. An old broker, asked in an older version, takes these timestamps for ordinary ones.

since_3_0, since_3_5, since_3_9 = (pytest.mark.every_kafka(since=since) for since in ("3.0", "3.5", "3.9"))


@pytest.mark.parametrize(
    ("timestamp", "version", "expected"),
    [
        (-1, 1, (0, 1, -1, -1)),
        (-2, 1, (0, 0, -1, -1)),
        (-1, 4, (0, 1, -1, 0)),
        pytest.param(-3, 7, (0, 0, NOW, 0), marks=since_3_0),
        pytest.param(-4, 7, (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1), marks=since_3_0),
        pytest.param(-4, 8, (0, 0, -1, 0), marks=since_3_5),
        pytest.param(-5, 8, (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1), marks=since_3_5),
        pytest.param(-5, 9, (0, -1, -1, -1), marks=since_3_9),
        pytest.param(-6, 10, (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1), marks=since_3_0),
        pytest.param(-6, 11, (0, -1, -1, -1), marks=pytest.mark.every_kafka(since="4.2")),
        pytest.param(-7, 11, (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1), marks=since_3_0),
    ],
)
async def test_special_timestamps(
    either: Kafka, topic: str, timestamp: int, version: int, expected: tuple[int, ...]
) -> None:
    async with connected(either.bootstrap) as client:
        await produce_to(client, topic, batch_of(b"a"))
        found = await offset_at(client, topic, timestamp, version)
    assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == expected


@pytest.mark.parametrize(("suffix", "index"), [("-none", 0), ("", 9)])
async def test_what_has_no_offsets(either: Kafka, topic: str, suffix: str, index: int) -> None:
    name = topic + suffix
    listed = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)])
    asked = OffsetForLeaderPartition(partition=index, leader_epoch=0, current_leader_epoch=-1)
    ends = OffsetForLeaderTopic(topic=name, partitions=[asked])
    async with connected(either.bootstrap) as client:
        offsets = await client.ask(ListOffsetsRequest(replica_id=-1, topics=[listed]), 7)
        epochs = await client.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[ends]))
    assert offsets.topics[0].partitions[0].error_code == UNKNOWN
    found = epochs.topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (UNKNOWN, -1, -1)


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(("epoch", "expected"), [(0, (0, 1)), (4, (-1, -1)), (-5, (-5, 0))])
async def test_ends_of_epochs(either: Kafka, topic: str, version: int, epoch: int, expected: tuple[int, int]) -> None:
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=-1)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    async with connected(either.bootstrap) as client:
        await produce_to(client, topic, batch_of(b"a"))
        (found,) = (await client.ask(request, version)).topics[0].partitions
    assert (found.error_code, (found.leader_epoch, found.end_offset)) == (0, expected)
