"""What was sought, assigned or resumed while a broker parks a Fetch comes at once, and not when that Fetch ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import disconnect
from aiokc.testing.kafka import LocalKafka
from aiokc.wire.messages.fetch import FetchRequest, FetchResponse
from tests.producing import Message, produce

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
PARKED_MS = 60_000

Story = Callable[[Cluster], Coroutine[Any, Any, None]]


def alone(story: Story) -> None:
    virtually(story, topics={"t": 2}, brokers=1)


def reading(cluster: Cluster, *partitions: TopicPartition, **options: Any) -> ConsumerType:
    consumer = Consumer(
        **{
            "bootstrap_servers": cluster.bootstrap,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": PARKED_MS,
            "request_timeout_ms": 2 * PARKED_MS,
            **options,
        }
    )
    consumer.assign(partitions)
    return consumer


def fill(cluster: Cluster, count: int = 100) -> None:
    for partition in (0, 1):
        cluster.append("t", *(b"%d" % number for number in range(count)), partition=partition)


async def all_of(consumer: ConsumerType, count: int) -> None:
    """Take so many records, and wait until the broker parks a Fetch that asks for what is behind them."""
    while count:
        count -= sum(map(len, (await consumer.getmany()).values()))
    await asyncio.sleep(1.0)


async def first_offset(consumer: ConsumerType, tp: TopicPartition) -> tuple[int, float]:
    """The offset of the next record, which must be one of ``tp``, and how many seconds it took to come."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    ((found, records),) = (await consumer.getmany()).items()
    assert found == tp
    return records[0].offset, loop.time() - began


def _is_beside(request: object) -> bool:
    assert isinstance(request, FetchRequest)
    return (request.session_id, request.session_epoch) == (0, -1)


class Fetches:
    """All Fetch requests, and how many of those beside others are in flight."""

    def __init__(self, cluster: Cluster) -> None:
        self.parked: list[FetchRequest] = []
        self.beside: list[FetchRequest] = []
        self.most_at_once = self._at_once = 0
        cluster.intercept(FetchRequest, self._note)

    async def _note(self, exchange: Exchange) -> Any:
        request = exchange.request
        assert isinstance(request, FetchRequest)
        if not _is_beside(request):
            self.parked.append(request)
            return await exchange.handle()
        assert request.max_wait_ms == 0
        self.beside.append(request)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await exchange.handle()
        finally:
            self._at_once -= 1


def test_a_seek() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with reading(cluster, ZERO, ONE) as consumer:
            await all_of(consumer, 200)
            fetches = Fetches(cluster)
            for number in range(20):
                tp = (ZERO, ONE)[number % 2]
                consumer.seek(tp, 50 + number)
                offset, seconds = await first_offset(consumer, tp)
                assert offset == 50 + number
                assert seconds < 0.02
                await asyncio.sleep(number / 100)
            assert fetches.parked == [], "the parked Fetch is still the same"
            assert len(fetches.beside) <= 40, "one for the records, one to see that there are no more"
            cluster.append("t", b"new", b"new")
            assert (await first_offset(consumer, ZERO))[0] == 100
            await asyncio.sleep(2 * PARKED_MS / 1e3)
            assert {request.session_epoch > 0 for request in fetches.parked} == {True}, "in the same session"

    alone(story)


def test_a_new_assignment() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with reading(cluster, ZERO) as consumer:
            await all_of(consumer, 100)
            consumer.assign([ZERO, ONE])
            offset, seconds = await first_offset(consumer, ONE)
            assert (offset, seconds < 0.02) == (0, True)

    alone(story)


def test_a_partition_that_another_member_gave_up() -> None:
    async def story(cluster: Cluster) -> None:
        options: Any = {"bootstrap_servers": cluster.bootstrap, "group_id": "g", "auto_offset_reset": "earliest"}
        options |= {"fetch_max_wait_ms": PARKED_MS, "request_timeout_ms": 2 * PARKED_MS}
        options |= {"partition_assignment_strategy": ["cooperative-sticky"]}
        async with Consumer("t", **options) as first:
            await first.wait_assigned()
            async with Consumer("t", **options) as second:
                both = asyncio.gather(first.getmany(timeout_ms=20_000), second.getmany(timeout_ms=20_000))
                assert not any(await both)
                assert len(first.assignment()) == 1
            fill(cluster)
            seen = set(await first.getmany())
            while seen != {ZERO, ONE}:
                seen |= set(await first.getmany())
            health = first.metrics()
            assert health.fetches.max_ms < PARKED_MS

    alone(story)


def test_resuming() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with reading(cluster, ZERO, ONE) as consumer:
            await all_of(consumer, 200)
            consumer.pause(ONE)
            cluster.append("t", b"new")
            await all_of(consumer, 1)  # the Fetch that is parked now does not ask for the other one any more
            cluster.append("t", b"new", partition=1)
            assert await consumer.getmany(timeout_ms=1000) == {}
            consumer.resume(ONE)
            offset, seconds = await first_offset(consumer, ONE)
            assert (offset, seconds < 0.02) == (100, True)

    alone(story)


def test_a_position_that_was_looked_up() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with reading(cluster, ZERO, ONE) as consumer:
            await all_of(consumer, 200)
            await consumer.seek_to_beginning(ONE)
            offset, seconds = await first_offset(consumer, ONE)
            assert (offset, seconds < 0.02) == (0, True)

    alone(story)


def test_columns() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with reading(cluster, ZERO, ONE) as consumer:
            await all_of(consumer, 200)
            consumer.seek(ZERO, 40)
            began = asyncio.get_running_loop().time()
            assert len(await consumer.getmany_columns()) == 60
            assert asyncio.get_running_loop().time() - began < 0.02

    alone(story)


def test_a_consumer_that_seeks_all_the_time_is_no_storm() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with reading(cluster, ZERO, ONE) as consumer:
            await all_of(consumer, 200)
            fetches = Fetches(cluster)
            for number in range(2_000):
                consumer.seek(ZERO, number % 90)
                consumer.seek(ONE, number % 90)
                await asyncio.sleep(0.0005)
            assert 100 <= len(fetches.beside) <= 210, "in one second"
            assert fetches.most_at_once == 1

    alone(story)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_read_twice_or_left_out(seed: int) -> None:
    """Seeks and pauses at any time, also while answers of both kinds are under way, and a log that grows."""

    async def story(cluster: Cluster) -> None:
        random = Random(seed)
        fill(cluster)
        options = {"fetch_max_wait_ms": random.choice([30, 100, 1000]), "max_partition_fetch_bytes": 500}
        async with reading(cluster, ZERO, ONE, **options) as consumer:
            await all_of(consumer, 200)
            fetches = Fetches(cluster)
            expected = {ZERO: 100, ONE: 100}
            for _ in range(300):
                match random.randrange(5):
                    case 0:
                        tp, offset = random.choice([ZERO, ONE]), random.randrange(100)
                        consumer.seek(tp, offset)
                        expected[tp] = offset
                    case 1:
                        cluster.append("t", *[b"more"] * random.randrange(1, 20), partition=random.randrange(2))
                    case 2:
                        consumer.pause(random.choice([ZERO, ONE]))
                    case 3:
                        consumer.resume(*consumer.paused())
                    case 4:
                        await asyncio.sleep(random.choice([0.0, 0.001, 0.006, 0.05]))
                batch = await consumer.getmany(timeout_ms=random.choice([0, 1, 10]), max_records=30)
                for tp, records in batch.items():
                    assert [record.offset for record in records] == list(range(expected[tp], records[-1].offset + 1))
                    expected[tp] = records[-1].offset + 1
            assert len(fetches.beside) > 5
            consumer.resume(*consumer.paused())
            ends = await consumer.end_offsets([ZERO, ONE])
            while expected != ends:
                for tp, records in (await consumer.getmany()).items():
                    assert [record.offset for record in records] == list(range(expected[tp], records[-1].offset + 1))
                    expected[tp] = records[-1].offset + 1

    alone(story)


def test_memory_stays_within_the_budget() -> None:
    async def story(cluster: Cluster) -> None:
        for partition in (0, 1):
            for _ in range(100):
                cluster.append("t", bytes(1000), partition=partition)
        options = {"fetch_buffer_bytes": 40_000, "max_partition_fetch_bytes": 5_000}
        async with reading(cluster, ZERO, ONE, **options) as consumer:
            await all_of(consumer, 200)
            fetcher, most = consumer._runtime.fetcher, 0
            for _ in range(30):
                consumer.seek(ZERO, 0)
                consumer.seek(ONE, 0)
                for _ in range(10):
                    await consumer.getmany(max_records=1)
                    under_way = sum(fetcher._busy.values()) + sum(fetcher._beside.values())
                    most = max(most, consumer.metrics().buffered_bytes + under_way)
            assert 10_000 < most <= 40_000 + 1_100, "a broker sends a whole batch at least"

    alone(story)


@pytest.mark.parametrize("trouble", [disconnect(), ErrorCode.UNKNOWN_SERVER_ERROR])
def test_one_that_fails_costs_no_more_than_time(trouble: Callable[[Exchange], None] | ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with reading(cluster, ZERO, ONE, fetch_max_wait_ms=500) as consumer:
            await all_of(consumer, 200)

            async def fail(exchange: Exchange) -> FetchResponse | None:
                if isinstance(trouble, ErrorCode) and _is_beside(exchange.request):
                    return FetchResponse(error_code=trouble, responses=[])
                if not isinstance(trouble, ErrorCode) and _is_beside(exchange.request):
                    trouble(exchange)
                    return None
                return await exchange.handle()  # type: ignore[return-value]

            caught = cluster.intercept(FetchRequest, fail)
            for number in range(5):
                consumer.seek(ZERO, number)
                offset, seconds = await first_offset(consumer, ZERO)
                assert (offset, seconds < 1.0) == (number, True)
            assert caught.hits > 5

    alone(story)


async def test_kafka(kafka: LocalKafka, topic_name: str) -> None:
    """Seeks, a new assignment and resuming, beside a Fetch that a real broker parks for half a minute."""
    kafka.create_topic(topic_name, partitions=2)
    zero, one = (TopicPartition(topic_name, number) for number in range(2))
    messages = [Message(b"%d" % number, partition=part) for number in range(50) for part in range(2)]
    await asyncio.to_thread(produce, kafka.bootstrap, topic_name, messages)
    options: Any = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 30_000, "request_timeout_ms": 60_000}
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, **options)
    consumer.assign([zero])
    async with consumer, asyncio.timeout(20):
        count = 0
        while count < 50:
            count += len((await consumer.getmany(zero))[zero])
        consumer.assign([zero, one])
        while count < 100:
            count += len((await consumer.getmany(one))[one])
        for number in range(20):
            consumer.seek((zero, one)[number % 2], number)
            ((tp, records),) = (await consumer.getmany()).items()
            assert (tp, records[0].offset) == ((zero, one)[number % 2], number)
            count = 50 - number - len(records)
            while count:
                count -= sum(map(len, (await consumer.getmany()).values()))
        assert consumer.metrics().fetches.max_ms < 30_000
