"""Each fault of the Cluster that a producer meets: as a client on the wire sees it."""

from __future__ import annotations

import asyncio

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.faults import (
    Fault,
    Hold,
    Interception,
    delay,
    deliver_late,
    refuse_afterwards,
    refuse_partition,
    reject_records,
)
from aiokc.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.client.virtually import virtually

from ..questions import add_to_transaction, batch_of, end_transaction, new_producer, produce_to, topic_id_of
from ..wire_client import WireClient, connected

AFTER_APPEND = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
BROKEN = (asyncio.IncompleteReadError, ConnectionError)


def to_both(*names: str, acks: int = -1, **options: object) -> ProduceRequest:
    """Return a Produce to the partitions 0 and 1 of each topic."""
    data = [PartitionProduceData(index=index, records=memoryview(batch_of(b"a"))) for index in (0, 1)]
    topics = [TopicProduceData(name=name, partition_data=data) for name in names]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)


async def test_refused_and_appended_all_the_same() -> None:
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        cluster.intercept(ApiKey.PRODUCE, refuse_afterwards(AFTER_APPEND), times=1)
        assert (await produce_to(client, "events", batch_of(b"a"))).error_code == AFTER_APPEND
        assert cluster.end_offset("events") == 1


async def test_what_is_refused_after_the_append_comes_with_its_offset() -> None:
    """Kafka's DelayedProduce replaces the error only; a batch that it did not append has its own error, and -1."""
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        await produce_to(client, "events", batch_of(b"a"))
        cluster.intercept(ApiKey.PRODUCE, refuse_afterwards(NOT_LEADER), times=2)
        stored = await produce_to(client, "events", batch_of(b"b"))
        assert (stored.error_code, stored.base_offset) == (NOT_LEADER, 1)
        missing = await produce_to(client, "nowhere", batch_of(b"b"))
        assert (missing.error_code, missing.base_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


async def test_one_partition_is_refused() -> None:
    async with Cluster(topics={"events": 2, "others": 2}) as cluster, connected(cluster.bootstrap) as client:
        cluster.intercept(ApiKey.PRODUCE, refuse_partition("events", 1, NOT_LEADER), times=2)
        answer = await client.ask(to_both("others", "events"), 11)
        codes = [{one.index: one.error_code for one in topic.partition_responses} for topic in answer.responses]
        assert codes == [{0: 0, 1: 0}, {0: 0, 1: NOT_LEADER}]
        ends = [cluster.end_offset(topic, index) for topic in ("others", "events") for index in (0, 1)]
        assert ends == [1, 1, 1, 0]
        data = [PartitionProduceData(index=index, records=memoryview(batch_of(b"b"))) for index in (0, 1)]
        topics = [TopicProduceData(topic_id=await topic_id_of(client, "events"), partition_data=data)]
        by_id = await client.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 13)
        assert [one.error_code for one in by_id.responses[0].partition_responses] == [0, NOT_LEADER]


async def test_a_refused_partition_without_acks_closes_the_connection() -> None:
    async with Cluster(topics={"events": 2}) as cluster, connected(cluster.bootstrap) as client:
        cluster.intercept(ApiKey.PRODUCE, refuse_partition("events", 1, NOT_LEADER), times=1)
        client.send(to_both("events", acks=0), 11)
        with pytest.raises(BROKEN):
            await client.frame()
        assert [cluster.end_offset("events", index) for index in (0, 1)] == [1, 0]


@pytest.mark.parametrize("fault", [ErrorCode.INVALID_RECORD, reject_records({0: "no such schema"})])
async def test_an_error_without_acks_closes_the_connection(fault: Fault) -> None:
    """A client with acks=0 waits for no answer: it would take one for that of its next request."""
    async with Cluster(topics={"events": 2}) as cluster, connected(cluster.bootstrap) as client:
        cluster.intercept(ApiKey.PRODUCE, fault, times=1)
        client.send(to_both("events", acks=0), 11)
        with pytest.raises(BROKEN):
            await client.frame()
        assert cluster.end_offset("events") == 0


async def test_records_that_are_to_blame() -> None:
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        cluster.intercept(ApiKey.PRODUCE, reject_records({1: "no such schema"}), times=1)
        answer = await produce_to(client, "events", batch_of(b"a", b"b"))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [(one.batch_index, one.batch_index_error_message) for one in answer.record_errors] == [
            (1, "no such schema")
        ]
        assert cluster.end_offset("events") == 0


def test_a_request_that_is_delivered_after_its_connection_has_ended() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.PRODUCE, deliver_late(2.0), times=1)
        async with connected(cluster.bootstrap) as client:
            with pytest.raises(BROKEN):
                await produce_to(client, "t", batch_of(b"a"))
        await asyncio.sleep(1.9)
        assert cluster.end_offset("t") == 0
        await asyncio.sleep(0.2)
        assert cluster.end_offset("t") == 1

    virtually(story, brokers=1)


@pytest.mark.parametrize("seconds", [3.0, 0.5], ids=["down", "up again"])
def test_a_late_request_is_not_handled_by_a_broker_that_was_taken_down_or_a_cluster_that_stops(seconds: float) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.PRODUCE, deliver_late(2.0), times=2)
        for wait in (1.0, 0.0):
            async with connected(cluster.bootstrap) as client:
                with pytest.raises(BROKEN):
                    await produce_to(client, "t", batch_of(b"a"))
            if wait:
                cluster.take_down(1)
                await asyncio.sleep(seconds)
                cluster.bring_up(1)
                await asyncio.sleep(3.0)
                assert cluster.end_offset("t") == 0

    virtually(story, brokers=1)


async def send_and_hang_up(cluster: Cluster, caught: Interception, hits: int = 1) -> None:
    """Send a Produce, and close the connection once the broker has read it."""
    async with connected(cluster.bootstrap) as client:
        client.send(to_both("t"), 11)
        await caught.caught(hits)


def test_a_request_that_is_delayed_outlasts_its_connection() -> None:
    async def story(cluster: Cluster) -> None:
        await send_and_hang_up(cluster, cluster.intercept(ApiKey.PRODUCE, delay(2.0), times=1))
        async with connected(cluster.bootstrap) as client:
            await produce_to(client, "t", batch_of(b"sent", b"again"))
            assert cluster.end_offset("t") == 2
            await asyncio.sleep(2.0)
            assert cluster.end_offset("t") == 3

    virtually(story, brokers=1)


def test_a_request_that_is_held_outlasts_its_connection() -> None:
    async def story(cluster: Cluster) -> None:
        hold = Hold()
        await send_and_hang_up(cluster, cluster.intercept(ApiKey.PRODUCE, hold, times=1))
        await asyncio.sleep(1.0)
        assert cluster.end_offset("t") == 0
        hold.release()
        await asyncio.sleep(0.1)
        assert cluster.end_offset("t") == 1

    virtually(story, brokers=1)


def test_a_request_that_waits_is_not_handled_by_a_broker_that_was_down_or_a_cluster_that_stops() -> None:
    async def story(cluster: Cluster) -> None:
        caught = cluster.intercept(ApiKey.PRODUCE, delay(2.0), times=2)
        await send_and_hang_up(cluster, caught)
        cluster.take_down(1)
        cluster.bring_up(1)
        await asyncio.sleep(3.0)
        assert cluster.end_offset("t") == 0
        await send_and_hang_up(cluster, caught, 2)

    virtually(story, brokers=1)


async def open_transaction(client: WireClient, version: int) -> tuple[int, int]:
    """Begin a transaction of the id "app" with one record, in a version of Produce; return the producer's identity."""
    _, producer_id, epoch = await new_producer(client, "app")
    if version < 12:
        assert await add_to_transaction(client, "app", (producer_id, epoch), "t", 0) == [0]
    batch = batch_of(b"a", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    assert (await produce_to(client, "t", batch, txn="app", version=version)).error_code == 0
    return producer_id, epoch


def test_slow_markers_end_with_heal() -> None:
    async def story(cluster: Cluster) -> None:
        async with connected(cluster.bootstrap) as client:
            cluster.slow_markers(60.0)
            own = await open_transaction(client, 11)
            assert await end_transaction(client, "app", own, committed=True) == 0
            assert cluster.end_offset("t") == 1
            cluster.heal()
            await asyncio.sleep(0.1)
            assert cluster.end_offset("t") == 2
            assert await add_to_transaction(client, "app", own, "t", 1) == [0]

    virtually(story, brokers=1)


def test_features_are_finalized_at_other_levels() -> None:
    Cluster(features={"transaction.version": 1})
    with pytest.raises(ValueError, match=r"'transaction\.version': 3.*Kafka 4\.4 has transaction\.version to 2"):
        Cluster(features={"transaction.version": 3})
    with pytest.raises(ValueError, match=r"Kafka 3\.9 has none"):
        Cluster(as_version="3.9", features={"transaction.version": 1})


def test_below_version_2_a_timeout_fences() -> None:
    async def story(cluster: Cluster) -> None:
        async with connected(cluster.bootstrap) as client:
            producer_id, epoch = await open_transaction(client, 11)
            await asyncio.sleep(61.0)
            assert (await new_producer(client, "app", producer_id, epoch))[0] == ErrorCode.PRODUCER_FENCED

    virtually(story, brokers=1, features={"transaction.version": 1})
