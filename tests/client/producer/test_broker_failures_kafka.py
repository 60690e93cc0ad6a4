"""A Producer while brokers of a real Kafka are killed, frozen and restarted: nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokc import Delivery, Producer
from aiokc.errors import ProduceError
from aiokc.testing.kafka import LocalKafka

from .test_producer_kafka import read

pytestmark = [pytest.mark.timeout(120), pytest.mark.long]


async def sending(producer: Producer[Any, Any], topic: str, sent: list[tuple[int, bytes, Delivery]]) -> None:
    """Send to two partitions, some hundred records a second, until cancelled."""
    number = 0
    while True:
        for _ in range(5):
            value = b"%d" % number
            sent.append((number % 2, value, await producer.send(topic, value, partition=number % 2)))
            number += 1
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("trouble", ["kill", "pause", "terminate"])
@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_what_is_acknowledged_is_stored_once_and_in_order(
    three_nodes: LocalKafka, topic_name: str, trouble: str, codec: Any
) -> None:
    await asyncio.to_thread(three_nodes.create_topic, topic_name, 2, 3, {"min.insync.replicas": "2"})
    sent: list[tuple[int, bytes, Delivery]] = []
    async with Producer(
        bootstrap_servers=three_nodes.bootstrap, request_timeout_ms=3000, delivery_timeout_ms=60_000,
        compression_type=codec, linger_ms=2,
    ) as producer:  # fmt: skip
        task = asyncio.ensure_future(sending(producer, topic_name, sent))
        await asyncio.sleep(1)
        for partition in range(2):
            node = await asyncio.to_thread(three_nodes.leader_of, topic_name, partition)
            await asyncio.to_thread(getattr(node, trouble))
            await asyncio.sleep(4 if trouble == "pause" else 2)
            await asyncio.to_thread(three_nodes.heal)
        await asyncio.sleep(1)
        task.cancel()
        await producer.flush()
        metrics = producer.metrics()
    assert metrics.retries + metrics.failed_requests > 0
    places = Counter[tuple[int, int | None]]()
    known: dict[int, list[tuple[int, bytes]]] = {0: [], 1: []}
    for partition, value, delivery in sent:
        offset = (await delivery).offset
        if offset is not None:
            places[partition, offset] += 1
            known[partition].append((offset, value))
    assert max(places.values()) == 1
    for partition in range(2):
        values = [value for at, value, _ in sent if at == partition]
        assert known[partition] == sorted(known[partition])
        messages = await asyncio.to_thread(read, three_nodes.bootstrap, topic_name, partition, len(values))
        stored = [message.value() for message in messages]
        assert stored == values
        assert all(stored[offset] == value for offset, value in known[partition])


async def test_a_leaderless_partition_fails_after_its_delivery_timeout_and_works_again(
    three_nodes: LocalKafka, topic_name: str
) -> None:
    """Its only replica is dead; the other partition goes on, and so does this one with the broker."""
    await asyncio.to_thread(three_nodes.create_topic, topic_name, 3, 1)
    leaders = [await asyncio.to_thread(three_nodes.leader_of, topic_name, partition) for partition in range(3)]
    dead = leaders[0]
    alive = next(partition for partition in range(3) if leaders[partition] is not dead)
    async with Producer(
        bootstrap_servers=three_nodes.bootstrap, request_timeout_ms=2000, delivery_timeout_ms=6000
    ) as producer:
        await producer.send_and_wait(topic_name, b"0", partition=0)
        await asyncio.to_thread(dead.kill)
        lost = await producer.send(topic_name, b"lost", partition=0)
        await producer.send_and_wait(topic_name, b"alive", partition=alive)
        with pytest.raises(ProduceError) as late:
            await lost
        assert producer.health().troubled == {}
        await asyncio.to_thread(three_nodes.heal)
        assert (await producer.send_and_wait(topic_name, b"1", partition=0)).partition == 0
        stored = await asyncio.to_thread(read, three_nodes.bootstrap, topic_name, 0, 2)
        second = {b"1"} if late.value.persisted == "no" else {b"1", b"lost"}
        assert stored[0].value() == b"0"
        assert stored[1].value() in second
