"""What becomes of records whose topic is recreated, or was forgotten as idle, while they wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest

from aiokc import Producer, TopicPartition
from aiokc.client.produce.delivery import Delivery
from aiokc.error_codes import ErrorCode
from aiokc.errors import MetadataMissing, RecordRefused, TransactionAborted
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

T0 = TopicPartition("t", 0)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(bootstrap_servers=cluster.bootstrap, **options)


async def without_t(exchange: Exchange) -> Any:
    """Answer as if topic "t" were not there."""
    response: Any = await exchange.handle()
    for topic in response.topics:
        if topic.name == "t":
            topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
    return response


async def forgets(producer: Producer[Any, Any], topic: str) -> None:
    metadata = producer._runtime.cluster_client.metadata
    while topic in (metadata.followed or ()):
        await metadata.changed.wait()


def test_a_record_of_a_recreated_topic_fails_as_soon_as_that_is_known() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        async with producing(cluster, linger_ms=80_000, metadata_max_age_ms=30_000) as producer:
            delivery = await producer.send("t", b"", partition=0)
            metadata = producer._runtime.cluster_client.metadata
            await asyncio.sleep(0.1)
            cluster.recreate_topic("t")
            waiting = asyncio.ensure_future(delivery)
            await metadata.changed.wait()
            known_at = loop.time()
            with pytest.raises(RecordRefused, match="created again"):
                await waiting
            assert loop.time() < known_at + 1

    virtually(story)


@pytest.mark.parametrize("transactional_id", [None, "id"])
def test_many_topics_that_live_shortly_are_forgotten(transactional_id: str | None) -> None:
    """Requests whose replies go to topics of their own, for years. A topic that comes back begins in another epoch."""

    async def story(cluster: Cluster) -> None:
        options = {"metadata_max_age_ms": 5_000, "metadata_max_idle_ms": 5_000, "transactional_id": transactional_id}
        async with producing(cluster, **options) as producer:
            known = producer._runtime.accumulator.queues.known
            for number in range(40):
                if transactional_id:
                    await producer.begin_transaction()
                topic = f"reply-{number % 30}"
                sent = [await producer.send(topic, b"%d" % one, partition=0) for one in range(3)]
                offsets = [(await one).offset for one in sent]
                assert offsets[0] == (0 if number < 30 else 4 if transactional_id else 3)
                if transactional_id:
                    await producer.commit_transaction()
                await asyncio.sleep(2.0)
                assert len(known) < 10

    virtually(story, topics={f"reply-{number}": 1 for number in range(30)})


@pytest.mark.parametrize("level", [0, 1])
def test_partitions_of_an_idle_topic_that_keep_the_epoch_go_once_it_has_changed(level: int) -> None:
    async def story(cluster: Cluster) -> None:
        options = {"metadata_max_age_ms": 5_000, "metadata_max_idle_ms": 5_000, "transactional_id": "id"}
        async with producing(cluster, **options) as producer:
            known = producer._runtime.accumulator.queues.known
            async with producer.transaction():
                await producer.send("t", b"0", partition=0)
            await forgets(producer, "t")
            await asyncio.sleep(20)
            assert T0 in known
            async with producer.transaction():
                assert (await (await producer.send("t", b"1", partition=0))).offset == 2
            await forgets(producer, "t")
            await asyncio.sleep(20)
            await producer.begin_transaction()
            await (await producer.send("other", b"", partition=0))
            await producer.abort_transaction()
            await asyncio.sleep(6)
            assert not [tp for tp in known if tp.topic == "t"]
            async with producer.transaction():
                assert (await (await producer.send("t", b"2", partition=0))).offset == 4

    virtually(story, topics={"t": 2, "other": 1}, features={"transaction.version": level})


def test_partitions_that_have_to_be_kept_are_not_looked_at_by_each_refresh_of_the_metadata() -> None:
    """There may be tens of thousands of them, and brokers in trouble are asked for metadata several times a second."""

    async def story(cluster: Cluster) -> None:
        options = {"metadata_max_age_ms": 5_000, "metadata_max_idle_ms": 5_000, "transactional_id": "id"}
        async with producing(cluster, **options) as producer:
            accumulator = producer._runtime.accumulator
            async with producer.transaction():
                await producer.send("t", b"0", partition=0)
            await forgets(producer, "t")
            with patch.object(accumulator, "forget", wraps=accumulator.forget) as forget:
                await asyncio.sleep(60)
            assert forget.call_count == 0
            assert T0 in accumulator.queues.known

    virtually(story, features={"transaction.version": 0})


def test_partitions_that_a_recreated_topic_has_no_more_go_with_it() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(cluster, metadata_max_age_ms=5_000, metadata_max_idle_ms=12_000) as producer:
            known = producer._runtime.accumulator.queues.known
            for partition in range(5):
                await producer.send_and_wait("t", b"", partition=partition)
            cluster.delete_topic("t")
            cluster.create_topic("t", 1)
            await asyncio.sleep(6)
            await producer.send_and_wait("t", b"", partition=0)
            assert T0 in known
            await forgets(producer, "t")
            await asyncio.sleep(6)
            assert not known

    virtually(story, topics={"t": 5})


def test_a_topic_that_was_forgotten_as_idle_is_followed_again() -> None:
    """The snapshot still has it, and no refresh would tell of a new leader."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, metadata_max_age_ms=5_000, metadata_max_idle_ms=6_000) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            await forgets(producer, "t")
            await producer.send_and_wait("t", b"1", partition=0)
            assert "t" in (producer._runtime.cluster_client.metadata.followed or ())

    virtually(story)


def test_a_topic_that_is_forgotten_while_a_send_waits_for_memory_is_followed_again() -> None:
    async def story(cluster: Cluster) -> None:
        async with producing(
            cluster, metadata_max_age_ms=5_000, metadata_max_idle_ms=6_000, buffer_memory=40_000, batch_size=1_000
        ) as producer:
            await producer.send_and_wait("t", b"", partition=0)
            hold = Hold()
            cluster.intercept(ApiKey.PRODUCE, hold)
            for _ in range(15):
                await producer.send("other", bytes(1_000), partition=0)
            waiting: asyncio.Task[Delivery] = asyncio.ensure_future(producer.send("t", bytes(9_000), partition=0))
            await forgets(producer, "t")
            assert not waiting.done()
            hold.release()
            await (await waiting)
            assert "t" in (producer._runtime.cluster_client.metadata.followed or ())

    virtually(story, topics={"t": 1, "other": 1})


def test_a_topic_that_is_lost_and_forgotten_while_a_send_waits_for_memory_is_followed_again() -> None:
    """No request names it by then. It stays away for longer than an idle topic is followed, and then it is back."""

    async def story(cluster: Cluster) -> None:
        async with producing(
            cluster, metadata_max_age_ms=5_000, metadata_max_idle_ms=6_000, buffer_memory=40_000, batch_size=1_000
        ) as producer:
            metadata = producer._runtime.cluster_client.metadata
            await producer.send_and_wait("t", b"", partition=0)
            hold = Hold()
            cluster.intercept(ApiKey.PRODUCE, hold)
            for _ in range(15):
                await producer.send("other", bytes(1_000), partition=0)
            waiting: asyncio.Task[Delivery] = asyncio.ensure_future(producer.send("t", bytes(9_000), partition=0))
            await asyncio.sleep(0.1)
            hidden = cluster.intercept(ApiKey.METADATA, without_t)
            await forgets(producer, "t")
            assert "t" not in metadata.cluster.topics
            assert not waiting.done()
            hold.release()
            delivery = await waiting
            await asyncio.sleep(30)
            assert not delivery.done()
            hidden.cancel()
            assert (await delivery).offset == 1

    virtually(story, topics={"t": 1, "other": 1})


def test_a_send_that_has_waited_does_not_bring_a_former_topic_back() -> None:
    """It began with the former topic. As it ends its wait, the metadata lack the topic for a moment."""

    async def story(cluster: Cluster) -> None:
        async with producing(
            cluster, metadata_max_age_ms=5_000, buffer_memory=40_000, batch_size=1_000, linger_ms=0
        ) as producer:
            runtime = producer._runtime
            metadata, queues = runtime.cluster_client.metadata, runtime.accumulator.queues
            await producer.send_and_wait("t", b"", partition=0)
            hold = Hold()
            cluster.intercept(ApiKey.PRODUCE, hold)
            for _ in range(15):
                await producer.send("other", bytes(1_000), partition=0)
            waiting: asyncio.Task[Delivery] = asyncio.ensure_future(producer.send("t", bytes(9_000), partition=0))
            await asyncio.sleep(0.1)
            cluster.recreate_topic("t")
            await metadata.changed.wait()
            assert runtime.routes.known("t"), "another send looks"
            new = metadata.cluster.topics["t"].topic_id
            assert queues.known[T0].topic_id == new

            hidden = cluster.intercept(ApiKey.METADATA, without_t)
            while "t" in metadata.cluster.topics:
                await metadata.changed.wait()
            assert not waiting.done()
            hold.release()
            delivery = await waiting
            assert queues.known[T0].topic_id == new
            hidden.cancel()
            await delivery
            assert len(cluster.records("t")) == 1

    virtually(story, topics={"t": 1, "other": 1})


def test_a_transaction_fails_by_a_recreated_topic_in_the_step_that_would_send_its_first_batch() -> None:
    """The batch of the other topic, which was ready by then, is not sent any more: it would end the producer."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, transactional_id="id", linger_ms=60_000) as producer:
            await producer.begin_transaction()
            ready = await producer.send("a", b"", partition=0)
            lost = await producer.send("b", b"", partition=0)
            await asyncio.sleep(0.1)
            cluster.recreate_topic("b")
            metadata, sender = producer._runtime.cluster_client.metadata, producer._runtime.sender
            found = await metadata.fetch(frozenset({"a", "b"}), timeout=5)
            await sender._prepare(sender._channels[cluster.leader("a") or 0])
            metadata.cluster = found  # in the same step as the flush
            sender.flush()
            with pytest.raises(RecordRefused, match="created again"):
                await lost
            with pytest.raises(TransactionAborted):
                await ready
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("a", b"next", partition=0)
            assert [record.value for record in cluster.records("a")][:1] == [b"next"]

    virtually(story, topics={"a": 1, "b": 1}, brokers=1, features={"transaction.version": 2})


@pytest.mark.parametrize("version", ["2.8", "3.9", "4.0", "4.4"])
def test_what_is_acknowledged_after_a_recreation_is_in_the_log(version: str) -> None:
    """Produce by name (before Kafka 4.1) may reach the new topic before the metadata name its id.

    Counted from 0 on after that, the next record would have the sequence of the one that is stored already, and the
    broker would acknowledge it without storing it.
    """

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, metadata_max_age_ms=30_000) as producer:
            await producer.partitions_for("t")
            cluster.recreate_topic("t")
            acknowledged = list[tuple[int | None, bytes]]()
            for number in range(6):
                value = b"%d" % number
                with suppress(RecordRefused):  # by id: what was appended before the metadata have the new one
                    acknowledged.append(((await producer.send_and_wait("t", value, partition=0)).offset, value))
                await asyncio.sleep(40 if number == 1 else 1)
            assert len(acknowledged) >= 4
            assert acknowledged == [(at, record.value) for at, record in enumerate(cluster.records("t", 0))]

    virtually(story, brokers=1, as_version=version)


@pytest.mark.parametrize("transactional_id", [None, "id"])
@pytest.mark.parametrize("version", ["3.9", "4.4"])
def test_what_is_appended_for_the_new_topic_does_not_fail_for_the_old_one(
    version: str, transactional_id: str | None
) -> None:
    """Nothing waited when the topic was recreated, and the metadata have had the new one for a minute."""

    async def story(cluster: Cluster) -> None:
        options = {"metadata_max_age_ms": 5_000, "transactional_id": transactional_id}
        async with producing(cluster, **options) as producer:
            for value in (b"old", b"new"):
                if transactional_id:
                    async with producer.transaction():
                        await producer.send("t", value, partition=0)
                        producer.send_soon("t", value, partition=0)
                else:
                    await producer.send_and_wait("t", value, partition=0)
                    await producer.send_soon("t", value, partition=0)
                if value == b"old":
                    cluster.recreate_topic("t")
                    await asyncio.sleep(60)
            assert [record.value for record in cluster.records("t", 0)][:2] == [b"new", b"new"]

    virtually(story, brokers=1, as_version=version)


def test_what_is_appended_for_the_new_topic_does_not_fail_with_what_waits_for_the_old_one() -> None:
    """It is sent in the step in which the metadata change, before the sender has looked at the partition."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=80_000, metadata_max_age_ms=30_000) as producer:
            waiting = await producer.send("t", b"old", partition=0)
            metadata, sent = producer._runtime.cluster_client.metadata, list[Delivery]()
            former = metadata.cluster.topic_id("t")

            class Sending:
                def notify(self) -> None:
                    if not sent and metadata.cluster.topic_id("t") not in (None, former):
                        sent.append(producer.send_soon("t", b"new", partition=0))

            metadata.changed.followed_by(Sending())
            cluster.recreate_topic("t")
            with pytest.raises(RecordRefused, match="created again"):
                await waiting
            assert (await sent[0]).offset == 0
        assert [record.value for record in cluster.records("t", 0)] == [b"new"]

    virtually(story)


def test_a_transaction_goes_on_where_the_new_topic_has_stored_what_was_under_way() -> None:
    """Sent by name, and stored, while the metadata learn the new id. A transaction has no other identity for the next.

    So the partition's next record must not wait for one: the commit would wait for its delivery_timeout_ms.
    """

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        async with producing(cluster, transactional_id="id", metadata_max_age_ms=5_000) as producer:
            async with producer.transaction():
                hold = Hold()
                cluster.intercept(ApiKey.PRODUCE, hold, times=1)
                first = await producer.send("t", b"A", partition=0)
                await hold.arrived()
                cluster.recreate_topic("t")
                await asyncio.sleep(10)
                hold.release()
                await first
                began = loop.time()
                await producer.send("t", b"B", partition=0)
            assert loop.time() - began < 5
        assert [record.value for record in cluster.records("t", 0)][:2] == [b"A", b"B"]

    virtually(story, brokers=1, as_version="3.9")


def test_a_partition_that_the_new_topic_lacks_is_missing() -> None:
    """The topic is recreated with two partitions while a send() to its sixth one waits for memory."""

    async def story(cluster: Cluster) -> None:
        options = {"metadata_max_age_ms": 5_000, "buffer_memory": 40_000, "batch_size": 1_000}
        async with producing(cluster, **options) as producer:
            await producer.partitions_for("t")
            await producer.send_and_wait("other", b"", partition=0)
            hold = Hold()
            cluster.intercept(ApiKey.PRODUCE, hold)
            for _ in range(15):
                await producer.send("other", bytes(1_000), partition=0)
            waiting = asyncio.ensure_future(producer.send("t", bytes(9_000), partition=5))
            await asyncio.sleep(1)
            cluster.delete_topic("t")
            cluster.create_topic("t", partitions=2)
            await asyncio.sleep(15)
            hold.release()
            with pytest.raises(MetadataMissing, match="2 partitions now"):
                await waiting

    virtually(story, brokers=1, topics={"t": 6, "other": 1})
