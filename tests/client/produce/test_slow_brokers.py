"""What takes no records for a while: partitioner_availability_timeout_ms, for a broker; a loop that something holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Producer
from aiokc.errors import DeliveryTimedOut
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.faults import Hold, drop
from tests.client.virtually import virtually

pytestmark = pytest.mark.timeout(30)


def producing(cluster: Cluster, request_timeout_ms: int = 30_000) -> Producer[bytes, bytes]:
    return Producer(
        bootstrap_servers=cluster.bootstrap,
        batch_size=500,
        linger_ms=5,
        metadata_max_age_ms=10_000,
        partitioner_availability_timeout_ms=1_000,
        request_timeout_ms=request_timeout_ms,
    )


def hang(cluster: Cluster, broker: int) -> Callable[[], None]:
    """Have a broker answer no Produce; return what ends that."""
    hold = Hold()
    cluster.intercept(ApiKey.PRODUCE, hold, where=lambda exchange: exchange.broker == broker)

    def end() -> None:
        hold.release()
        cluster.heal()

    return end


async def chosen(producer: Producer[bytes, bytes], seconds: float) -> Counter[int]:
    """Send 300 records a second; return how many went to each partition."""
    loop = asyncio.get_running_loop()
    until, to = loop.time() + seconds, Counter[int]()
    while loop.time() < until:
        for _ in range(15):
            to[(await producer.send("t", bytes(50)))._place()[0].tp.partition] += 1
        await asyncio.sleep(0.05)
    return to


@pytest.mark.parametrize("partitions", [3, 6])
def test_a_hung_broker_is_left_out_however_many_partitions_it_leads(partitions: int) -> None:
    """With one, the requests in flight are that partition's window: nobody asks whether the broker takes another one.

    Once it answers, and has taken what waited for it, it gets its share again.
    """

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await chosen(producer, 2)
            mine = [number for number in range(partitions) if cluster.leader("t", number) == 1]
            end = hang(cluster, 1)
            await chosen(producer, 2)
            assert not (await chosen(producer, 10)).keys() & mine
            end()
            await chosen(producer, 1)
            to = await chosen(producer, 10)
            assert all(to[number] > 1_500 / partitions for number in range(partitions))

    virtually(story, topics={"t": partitions})


@pytest.mark.parametrize("partitions", [3, 6])
def test_a_hung_broker_is_left_out_though_its_requests_have_timed_out(partitions: int) -> None:
    """Then there is one batch in flight for each of its partitions, until one is stored; its window is not full.

    And it takes that batch: over a new connection, each time.
    """

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, request_timeout_ms=5_000) as producer:
            await chosen(producer, 2)
            mine = [number for number in range(partitions) if cluster.leader("t", number) == 1]
            end = hang(cluster, 1)
            await chosen(producer, 2)
            assert not (await chosen(producer, 30)).keys() & mine
            end()
            await chosen(producer, 1)
            to = await chosen(producer, 10)
            assert all(to[number] > 1_500 / partitions for number in range(partitions))

    virtually(story, topics={"t": partitions})


def test_a_broker_that_hangs_from_the_first_batch_on_is_left_out() -> None:
    """The first batch of a producer id goes alone to each partition."""

    async def story(cluster: Cluster) -> None:
        end = hang(cluster, 1)
        async with producing(cluster) as producer:
            mine = [number for number in range(3) if cluster.leader("t", number) == 1]
            await chosen(producer, 2)
            assert not (await chosen(producer, 10)).keys() & mine
            end()

    virtually(story, topics={"t": 3})


def test_a_broker_that_was_slow_and_lost_what_waited_for_it_gets_records_again() -> None:
    """Its partitions move, and the batches that wait go with them: no write to the former leader shows that it is well.

    Then the partitions come back.
    """

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            await chosen(producer, 2)
            mine = [number for number in range(6) if cluster.leader("t", number) == 1]
            end = hang(cluster, 1)
            sending = asyncio.create_task(chosen(producer, 20))
            await asyncio.sleep(4)
            for number in mine:
                cluster.move_leader("t", number)
            await asyncio.sleep(12)  # refreshed metadata tell of it before the held answers come
            end()
            await sending
            await producer.flush()
            for number in mine:
                cluster.move_leader("t", number, to=1)
            await asyncio.sleep(15)
            to = await chosen(producer, 10)
            assert all(to[number] > 250 for number in range(6))

    virtually(story, topics={"t": 6})


# A loop that the application holds


def compute(seconds: float) -> None:
    asyncio.get_running_loop()._now += seconds  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "options",
    [
        {"linger_ms": 0},
        {"linger_ms": 5},
        {"linger_ms": 0, "acks": 0, "enable_idempotence": False},
        {"linger_ms": 5, "max_in_flight_requests_per_connection": 1},
    ],
)
def test_records_are_stored_though_the_loop_is_held_for_longer_than_they_may_take(options: dict[str, Any]) -> None:
    """The sender's task runs before the loop has read what lies in the socket, and before it has sent all."""

    async def story(cluster: Cluster) -> None:
        limits: dict[str, Any] = {"delivery_timeout_ms": 2_000, "request_timeout_ms": 1_500}
        async with Producer(bootstrap_servers=cluster.bootstrap, **limits, **options) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(1, 4)]
            compute(3.0)
            await producer.flush()
            for one in sent:
                await one
            await asyncio.sleep(1)  # with acks=0 the broker reads them later
            assert [record.value for record in cluster.records("t", 0)] == [b"0", b"1", b"2", b"3"]
            assert producer.metrics().expired == 0

    virtually(story, brokers=1)


@pytest.mark.parametrize("release", ["3.9", "4.1"])
def test_a_transaction_commits_though_the_loop_is_held_for_longer_than_its_records_may_take(release: str) -> None:
    """Before Kafka 4.0 the partition has to be added to it before anything is sent."""

    async def story(cluster: Cluster) -> None:
        limits: dict[str, Any] = {"delivery_timeout_ms": 2_000, "request_timeout_ms": 1_500}
        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="id", **limits) as producer:
            async with producer.transaction():
                await producer.send("t", b"1", partition=0)
                compute(3.0)
            assert [record.value for record in cluster.records("t", 0)] == [b"1"]

    virtually(story, brokers=1, as_version=release)


def test_a_silent_broker_is_not_waited_for_without_end_where_the_loop_is_held_again_and_again() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        limits: dict[str, Any] = {"delivery_timeout_ms": 2_000, "request_timeout_ms": 1_500}
        async with Producer(bootstrap_servers=cluster.bootstrap, **limits) as producer:
            await producer.send_and_wait("t", b"0", partition=0)
            cluster.intercept(ApiKey.PRODUCE, drop())
            began, sent = loop.time(), await producer.send("t", b"1", partition=0)
            while not sent.done():
                compute(0.9)
                await asyncio.sleep(0.1)
            assert loop.time() - began < 2.0 + 3 * (0.9 + 1.0) + 1.0
            with pytest.raises(DeliveryTimedOut):
                await sent

    virtually(story, brokers=1)


def test_single_records_at_rest_leave_no_alarm_by_which_a_later_one_waits_longer() -> None:
    async def story(cluster: Cluster) -> None:
        async with Producer[bytes, bytes](
            bootstrap_servers=cluster.bootstrap, linger_ms=0, request_timeout_ms=2_000, delivery_timeout_ms=2_000
        ) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"v", partition=0)
                await asyncio.sleep(1.2)
            cluster.intercept(ApiKey.PRODUCE, drop())
            began = asyncio.get_running_loop().time()
            with pytest.raises(DeliveryTimedOut):
                await producer.send_and_wait("t", b"v", partition=0)
            assert asyncio.get_running_loop().time() - began < 2.1
            cluster.heal()

    virtually(story, brokers=1)
