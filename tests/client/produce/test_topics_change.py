"""What becomes of records whose topic is recreated, or was forgotten as idle, while they wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Producer
from aiokc.client.produce.delivery import Delivery
from aiokc.errors import RecordRefused, TransactionAborted
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.faults import Hold

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(bootstrap_servers=cluster.bootstrap, **options)


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
            await sender._prepare(sender._channel(cluster.leader("a") or 0))
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
