"""Partitions that change hands in a KIP-848 group: each record is read once, whatever answer is lost on the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from aiokc import Client, TopicPartition
from aiokc.core.group.consumer import heartbeats
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.kafka import LocalKafka
from tests.written.losing_proxy import LosingProxy

from .readers import PARTITIONS, WITHIN, Broker, Reader, reading, write

pytestmark = [pytest.mark.every_kafka(since="4.0"), pytest.mark.timeout(120)]


@pytest.fixture
def topic(broker: Broker, topic_name: str) -> str:
    broker.create_topic(topic_name, PARTITIONS)
    return topic_name


def read_by(*readers: Reader) -> Counter[tuple[TopicPartition, int]]:
    got = Counter[tuple[TopicPartition, int]]()
    for reader in readers:
        got.update(reader.got)
    return got


async def all_read(count: int, *readers: Reader) -> None:
    """Return when these have read so many records together; fail where one was read twice. The first one polls on."""
    async with asyncio.timeout(WITHIN):
        while len(read_by(*readers)) < count:
            await readers[0].has_polled(1)
    assert set(read_by(*readers).values()) == {1}


async def test_members_come_and_go_and_each_record_is_read_once(broker: Broker, topic: str) -> None:
    write(broker, topic, 40)
    async with reading(broker, topic, [topic]) as one:
        await one.has_read(40)
        assert one.heard.calls == [("assigned", PARTITIONS)]
        async with reading(broker, topic, [topic]) as two:
            await one.holds(2)
            await two.holds(2)
            assert ("revoked", 2) in one.heard.calls
            write(broker, topic, 40)
            await all_read(80, one, two)
        await one.holds(PARTITIONS)
        write(broker, topic, 40)
        await all_read(120, one, two)
    assert "lost" not in {what for what, _ in (*one.heard.calls, *two.heard.calls)}
    async with Client(bootstrap_servers=broker.bootstrap) as client:
        committed = await client.committed(topic, [TopicPartition(topic, number) for number in range(PARTITIONS)])
    assert [offset.offset for offset in committed.values() if offset is not None] == [30] * PARTITIONS


@pytest.mark.parametrize("instance", [None, "i"], ids=["dynamic", "static"])
async def test_a_join_whose_answer_is_lost_costs_no_session(broker: Broker, topic: str, instance: str | None) -> None:
    """The coordinator refuses a static member that joins under its own id twice, until its session ends."""
    write(broker, topic, 8)
    async with LosingProxy(broker.bootstrap) as proxy:
        proxy.lose(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        options: dict[str, Any] = {"resolve": proxy.resolve, "group_instance_id": instance}
        async with reading(broker, topic, [topic], **options) as reader:
            await reader.has_heard()
            assert asyncio.get_running_loop().time() - proxy.lost_at < 5.5, "a session is 6 s"
            await reader.has_read(8)
            assert reader.heard.calls == [("assigned", PARTITIONS)]
            async with Client(bootstrap_servers=broker.bootstrap) as client:
                assert len((await client.describe_groups([topic]))[topic].members) == 1  # type: ignore[union-attr]
    assert proxy.lost == {ApiKey.CONSUMER_GROUP_HEARTBEAT: 1}


async def test_each_second_answer_may_be_lost(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that raise the epoch among them, and those that take partitions away.

    Where a busy machine has no time for a heartbeat within a second, its answer is lost, too. Behind two in a row the
    coordinator may have raised the epoch twice, and fences the member. So here they have all the time.
    """
    monkeypatch.setattr(heartbeats, "_LEAST_PATIENCE", 60.0)
    write(broker, topic, 40)
    losses, lost = 10, ApiKey.CONSUMER_GROUP_HEARTBEAT
    async with LosingProxy(broker.bootstrap) as proxy, reading(broker, topic, [topic], resolve=proxy.resolve) as one:
        await one.has_read(40)
        for _ in range(losses):
            proxy.lose(lost, after=1)
        while proxy.lost[lost] < losses:
            async with reading(broker, topic, [topic]) as two:
                await one.holds(2)
                await two.holds(2)
            await one.holds(PARTITIONS)
        write(broker, topic, 40)
        await all_read(80, one)
        assert "lost" not in {what for what, _ in one.heard.calls}


async def test_the_coordinator_waits_for_a_batch_as_long_as_it_may_take(broker: Broker, topic: str) -> None:
    """Heartbeats do not prolong that: the member has told the coordinator how long it may take when it joined."""
    write(broker, topic, 40)
    async with reading(broker, topic, [topic], max_poll_interval_ms=60_000, enable_auto_commit=False) as one:
        one.keeps_its_batch()
        await one.has_read(1)
        async with reading(broker, topic, [topic]) as two:
            await two.has_heard()
            await asyncio.sleep(3.0)
            assert two.consumer.assignment().isdisjoint(tp for tp, _ in one.got), "the first one works on these"
            await one.consumer.commit()
            one.goes_on()
            await two.holds(2)
            await one.holds(2)
            await all_read(40, one, two)
        assert "lost" not in {what for what, _ in one.heard.calls}


@pytest.fixture(params=["cluster", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.long])])
def leisurely(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker that assigns once a second at most, as brokers do where nobody has changed it (KIP-1263)."""
    if request.param == "cluster":
        cluster = Cluster(
            auto_create_topics_enable=False,
            group_consumer_heartbeat_interval_ms=500,
            group_consumer_assignment_interval_ms=1000,
        )
        with cluster.in_thread() as running:
            yield running
        return
    with LocalKafka(config={"group.consumer.assignment.interval.ms": "1000"}) as kafka:
        yield kafka


async def test_a_second_member_begins_with_nothing(leisurely: Broker, topic_name: str) -> None:
    """The coordinator has assigned just now: what it gives comes with a later heartbeat."""
    leisurely.create_topic(topic_name, PARTITIONS)
    async with reading(leisurely, topic_name, [topic_name]) as one:
        await one.holds(PARTITIONS)
        async with reading(leisurely, topic_name, [topic_name]) as two:
            await two.holds(2)
            await one.holds(2)
            assert two.heard.calls[0] == ("assigned", 0)
            assert one.consumer.assignment().isdisjoint(two.consumer.assignment())


class Crowd:
    """Members of one group, and what they and those that have left have read."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._topic = broker, topic
        self._members: list[tuple[Reader, AsyncExitStack]] = []
        self._left: list[Reader] = []

    def __len__(self) -> int:
        return len(self._members)

    @property
    def read(self) -> Counter[tuple[TopicPartition, int]]:
        return read_by(*self._left, *(reader for reader, _ in self._members))

    async def joins(self) -> None:
        life = AsyncExitStack()
        options = {"metadata_max_age_ms": 300_000}
        reader = await life.enter_async_context(reading(self._broker, self._topic, [self._topic], **options))
        self._members.append((reader, life))

    async def leaves(self, index: int) -> None:
        reader, life = self._members.pop(index)
        await life.aclose()
        self._left.append(reader)

    async def end(self) -> None:
        while self._members:
            await self.leaves(0)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_crowd_of_fifty_that_comes_and_goes_reads_each_record_once(broker: Broker, topic_name: str) -> None:
    partitions, at_once, random = 60, 60, Random(1)
    broker.create_topic(topic_name, partitions)
    crowd, written = Crowd(broker, topic_name), 0
    try:
        await asyncio.gather(*(crowd.joins() for _ in range(50)))
        for _ in range(60):
            if random.random() < len(crowd) / 100:
                await crowd.leaves(random.randrange(len(crowd)))
            else:
                await crowd.joins()
            await asyncio.to_thread(write, broker, topic_name, at_once, partitions)
            written += at_once
        async with asyncio.timeout(WITHIN):
            while len(crowd.read) < written:  # noqa: ASYNC110 - so many members have no common event
                await asyncio.sleep(0.1)
    finally:
        await crowd.end()
    assert set(crowd.read.values()) == {1}
