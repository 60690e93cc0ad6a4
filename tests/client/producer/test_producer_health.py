"""health() and metrics() of a producer: what they say while all is well, in trouble, and after the end."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import fields
from typing import Any

import pytest

from aiokc import Producer, ProducerHealth, ProducerMetrics, TopicPartition
from aiokc.core.produce.batch import ProducerBatch
from aiokc.core.produce.partition_queue import PartitionQueue
from aiokc.errors import DeliveryTimedOut, ProduceError
from aiokc.testing import ApiKey, Cluster, ErrorCode
from aiokc.testing.faults import Hold, disconnect, drop
from tests.client.virtually import virtually

pytestmark = pytest.mark.timeout(30)

T0 = TopicPartition("t", 0)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(**{"bootstrap_servers": cluster.bootstrap, **options})


@pytest.mark.parametrize("cls", [ProducerHealth, ProducerMetrics])
def test_each_field_is_explained(cls: type) -> None:
    words = {word.rstrip(",") for line in (cls.__doc__ or "").splitlines() for word in line.split()[:3]}
    assert {field.name for field in fields(cls)} <= words


def test_a_producer_that_is_well() -> None:
    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, compression_type="gzip")
        assert not producer.health().running
        assert producer.metrics().records == 0
        await producer.start()
        for number in range(100):
            await producer.send("t", b"value %d" % number, partition=0)
        assert producer.metrics().buffered_records == producer.metrics().records == 100
        assert producer.health().oldest_unanswered_age_ms == 0.0
        await producer.flush()
        health, metrics = producer.health(), producer.metrics()
        assert health.running
        assert (health.error, health.last_error, health.oldest_unanswered_age_ms) == (None, None, None)
        assert (health.producer_id >= 0, health.epoch) == (True, 0)
        assert health.transaction_state is None
        assert health.troubled == {}
        assert health.buffered_bytes == health.memory_waiters == 0
        assert health.cluster_id
        assert (metrics.records, metrics.acknowledged, metrics.failed) == (100, 100, {})
        assert metrics.batches == metrics.linger.count == 1
        assert metrics.records_per_batch == 100
        assert metrics.compression_ratio is not None
        assert 0 < metrics.compression_ratio < 0.6
        assert metrics.batch_fill == metrics.bytes / producer.config.batch_size
        assert metrics.requests.count == 1
        assert metrics.nodes[1].connected
        await producer.stop()
        assert not producer.health().running

    virtually(story, brokers=1, topics={"t": 1})


async def test_records_are_counted_once_while_another_thread_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prometheus takes a figure that falls for a new beginning, and what was counted twice for a burst."""
    loop, counted, is_stored = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    snapshot = PartitionQueue.snapshot

    def slowly(queue: PartitionQueue) -> list[ProducerBatch]:
        found = snapshot(queue)
        loop.call_soon_threadsafe(counted.set)
        assert is_stored.wait(20)
        return found

    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        hold = Hold()
        cluster.intercept(ApiKey.PRODUCE, hold, times=1)
        delivery = await producer.send("t", b"")
        await hold.arrived()
        monkeypatch.setattr(PartitionQueue, "snapshot", slowly)
        asked = asyncio.ensure_future(asyncio.to_thread(producer.metrics))
        await counted.wait()
        hold.release()
        await delivery
        is_stored.set()
        assert (await asked).records == producer.metrics().records == producer.metrics().acknowledged == 1


def test_a_producer_in_trouble() -> None:
    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, retry_backoff_ms=500, request_timeout_ms=1000, delivery_timeout_ms=9000)
        await producer.start()
        await producer.send_and_wait("t", b"0")
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)
        sent = await producer.send("t", b"1")
        await asyncio.sleep(0.2)
        health = producer.health()
        trouble = health.troubled[T0]
        assert "NOT_ENOUGH_REPLICAS" in trouble.error
        assert trouble.batches == 1
        assert trouble.age_ms == health.oldest_unanswered_age_ms
        assert trouble.retry_in_ms is not None
        assert 0 < trouble.retry_in_ms <= 600
        with pytest.raises(ProduceError):
            await sent
        cluster.heal()
        cluster.take_down(1)
        lost = await producer.send("t", b"2")
        await asyncio.sleep(3)
        health = producer.health()
        assert "broker 1" in health.troubled[T0].error
        assert health.last_error is not None
        with pytest.raises(ProduceError):
            await lost
        metrics = producer.metrics()
        assert metrics.records == 3
        assert metrics.acknowledged == 1
        assert metrics.failed == {"NOT_ENOUGH_REPLICAS": 1, "EXPIRED": 1}
        assert metrics.expired == 2
        assert metrics.retries > 2
        assert metrics.unobserved_failures == 0
        await producer.stop()

    virtually(story, brokers=1, topics={"t": 1})


def test_a_record_whose_answers_were_lost_has_failed_by_its_time() -> None:
    """No broker has said anything of it: it is no NETWORK_EXCEPTION that a broker answered."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, request_timeout_ms=1_000, delivery_timeout_ms=9_000) as producer:
            await producer.send_and_wait("t", b"0")
            cluster.intercept(ApiKey.PRODUCE, disconnect())
            lost = await producer.send("t", b"1")
            with pytest.raises(DeliveryTimedOut):
                await lost
            assert producer.metrics().failed == {"EXPIRED": 1}
            cluster.heal()

    virtually(story, brokers=1, topics={"t": 1})


def test_what_nobody_looked_at_and_who_waits_for_memory_is_counted() -> None:
    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, buffer_memory=16_384, batch_size=0)
        await producer.start()
        await producer.partitions_for("t")
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
        await producer.send("t", b"refused")
        await asyncio.sleep(1)
        assert producer.metrics().unobserved_failures == 1
        with pytest.raises(ProduceError):
            await producer.flush()
        assert producer.metrics().unobserved_failures == 1
        assert producer.metrics().epoch_bumps == 0, "the partition begins anew with its next record"
        await producer.send_and_wait("t", b"next")
        assert producer.metrics().epoch_bumps == 1
        assert producer.health().epoch == 1
        cluster.intercept(ApiKey.PRODUCE, drop(), times=1)
        await producer.send("t", bytes(14_000))
        waits = asyncio.ensure_future(producer.send("t", bytes(14_000)))
        await asyncio.sleep(0.1)
        assert producer.metrics().memory_waiters == producer.health().memory_waiters == 1
        assert producer.health().buffered_bytes == producer.metrics().buffered_bytes > 14_000
        await (await waits)
        await producer.stop()

    virtually(story, brokers=1, topics={"t": 1})


def test_a_refused_producer_says_why_nothing_goes_on() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.INIT_PRODUCER_ID, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        producer = producing(cluster)
        await producer.start()
        await asyncio.sleep(1)
        assert "CLUSTER_AUTHORIZATION_FAILED" in str(producer.health().error)
        with pytest.raises(Exception, match="CLUSTER_AUTHORIZATION_FAILED"):
            await producer.send("t", b"")
        await producer.stop()

    virtually(story, brokers=1, topics={"t": 1})


def test_a_producer_id_that_is_not_there_yet_is_asked_for_again() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=3)
        async with producing(cluster) as producer:
            assert producer.health().producer_id == -1
            assert (await producer.send_and_wait("t", b"")).offset == 0

    virtually(story, brokers=1, topics={"t": 1})


def test_records_that_wait_for_a_producer_id_are_in_trouble() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        async with producing(cluster) as producer:
            assert producer.health().troubled == {}
            sent = await producer.send("t", b"")
            await asyncio.sleep(10)
            trouble = producer.health().troubled[T0]
            assert trouble.error == "asking for a producer id: COORDINATOR_LOAD_IN_PROGRESS"
            assert (trouble.batches, trouble.retry_in_ms) == (1, None)
            cluster.heal()
            await sent
            assert producer.health().troubled == {}

    virtually(story, brokers=1, topics={"t": 1})


@pytest.mark.parametrize("api", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN])
def test_health_tells_of_a_transaction_that_is_refused_for_now(api: ApiKey) -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, transactional_id="id") as producer:
            refused = cluster.intercept(api, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            await producer.begin_transaction()
            await producer.send("t", b"")
            ending = asyncio.ensure_future(producer.commit_transaction())
            await asyncio.sleep(10)
            for _ in range(20):
                await asyncio.sleep(0.1)
                assert "COORDINATOR_LOAD_IN_PROGRESS" in str(producer.health().last_error)
            refused.cancel()
            await ending
            assert producer.health().last_error is None

    virtually(story, brokers=1, topics={"t": 1}, features={"transaction.version": 1})


def test_brokers_that_give_no_producer_id_for_an_hour_are_warned_of_twice_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: Cluster) -> None:
        refused = cluster.intercept(ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        async with producing(cluster):
            await asyncio.sleep(3_600)
            assert refused.hits > 3_000

    virtually(story, brokers=1, topics={"t": 1})
    warnings = [one.getMessage() for one in caplog.records if "asking for a producer id" in one.getMessage()]
    assert 110 <= len(warnings) <= 130
    assert "more since the last such message" in warnings[-1]
