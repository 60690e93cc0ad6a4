"""Health.stalled: partitions that bring no records although there are some, and nothing else than that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.contrib.health import Probe
from aiokc.core.fetch.stall_watch import NO_TURN, NO_WAIT, SILENT, UNKNOWN, StallWatch, Turn
from aiokc.core.subscription.position import PartitionPosition
from aiokc.error_codes import ErrorCode
from aiokc.errors import DeserializationFailed, RecordError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Fault, delay, drop, throttle
from aiokc.wire.messages.fetch import FetchRequest, PartitionData

from ...virtually import virtually

pytestmark = pytest.mark.timeout(30)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def consumer(cluster: Cluster, **options: Any) -> Consumer[Any, Any]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return Consumer(bootstrap_servers=cluster.bootstrap, **settings)


def answered_by(change: Callable[[PartitionData], None], *, after: float = 0.0) -> Fault:
    """A fault for Fetch that changes what is said of each partition; the broker works after so many seconds."""

    async def fault(exchange: Exchange) -> Any:
        await asyncio.sleep(after)
        response: Any = await exchange.handle()
        for topic in response.responses:
            for partition in topic.partitions:
                change(partition)
        return response

    return fault


async def stalls(reader: Consumer[Any, Any], seconds: float, every: float = 1.0) -> set[TopicPartition]:
    """All partitions that were ever stalled for 5 s or more in this time."""
    found: set[TopicPartition] = set()
    for _ in range(int(seconds / every)):
        await asyncio.sleep(every)
        found |= {tp for tp, ms in reader.health().stalled.items() if ms >= 5_000}
    return found


def test_a_stall_begins_with_the_first_look_and_ends_when_the_position_moves() -> None:
    watch, position = StallWatch(), PartitionPosition(1, position=7)
    still = (T0, position, NO_TURN)
    assert watch.look([still], 10.0) == {T0: 0.0}
    assert watch.look([still, (T1, position, NO_TURN)], 12.0) == {T0: 2_000.0, T1: 0.0}
    position.position = 8
    assert watch.look([still], 13.0) == {T0: 0.0}
    position.token = 2  # sought to where it was
    assert watch.look([still], 14.0) == {T0: 0.0}
    assert watch.look([], 15.0) == {}
    assert watch.look([still], 16.0) == {T0: 0.0}, "it was not still in between"


def test_a_partition_waits_for_as_many_answers_as_there_are_partitions() -> None:
    watch, position = StallWatch(), PartitionPosition(1, position=7)

    def look(turn: Turn, now: float) -> float | None:
        return watch.look([(T0, position, turn)], now).get(T0)

    assert look(Turn(1, 100, 3), 10.0) is None
    assert look(Turn(1, 103, 3), 20.0) is None
    assert look(Turn(1, 104, 3), 30.0) == 0.0
    assert look(Turn(1, 105, 3), 31.0) == 1_000.0
    assert look(NO_TURN, 32.0) == 2_000.0, "another reason is no other stall"
    assert look(Turn(1, 106, 3), 33.0) == 3_000.0, "nor does it begin the count anew"
    assert look(Turn(2, 900, 3), 40.0) is None, "another broker, another queue"
    assert look(Turn(2, 904, 3), 41.0) == 0.0
    assert look(Turn(2, 4, 3), 42.0) is None, "the broker was gone, and counts anew"
    assert look(Turn(2, 4, NO_WAIT), 43.0) == 0.0, "its last answer had room"
    position.position = 8
    assert look(Turn(2, 9, 3), 44.0) is None, "it had its turn"


def test_looks_that_tell_nothing_end_no_stall_and_count_no_time() -> None:
    watch, position = StallWatch(), PartitionPosition(1, position=7)

    def look(turn: Turn, now: float) -> float | None:
        return watch.look([(T0, position, turn)], now).get(T0)

    assert look(UNKNOWN, 0.0) is None
    assert look(Turn(1, 100, 3), 10.0) is None
    assert look(UNKNOWN, 20.0) is None
    assert look(Turn(1, 104, 3), 30.0) == 0.0, "the answers were counted all the same"
    assert look(Turn(1, 105, 3), 32.0) == 2_000.0
    assert [look(UNKNOWN, now) for now in (40.0, 90.0)] == [None, None]
    assert look(Turn(1, 106, 3), 93.0) == 5_000.0
    assert look(SILENT, 94.0) is None
    assert look(Turn(1, 106, 3), 95.0) == 0.0, "it begins anew, but not its count"
    assert look(UNKNOWN, 95.0) is None
    position.position = 8
    assert look(UNKNOWN, 95.0) is None
    position.position = 7
    assert look(Turn(1, 107, 3), 96.0) is None, "it has moved meanwhile"


def test_a_partition_that_is_not_fetched_any_more_is_stalled() -> None:
    """One partition stops while others flow, and all other figures look well."""

    async def story(cluster: Cluster) -> None:
        async with consumer(cluster) as reader:
            reader.assign([T0, T1])
            await reader.getmany(timeout_ms=1_000)
            reader._runtime.subscription[T0].high_watermark = 10
            for node in reader._runtime.fetcher._planner._nodes.values():
                node.wanted.pop(T0, None)  # a bug: the planner has forgotten it
            poll = asyncio.ensure_future(application(reader))
            assert await stalls(reader, 20) == {T0}
            assert reader.health().stalled[T0] >= 15_000
            reader.seek(T0, 0)
            cluster.append("t", b"v")
            await asyncio.sleep(1.0)
            assert reader.health().stalled == {}
            poll.cancel()

    virtually(story, brokers=1)


def test_a_broker_that_answers_without_the_records_stalls_their_partition() -> None:
    async def story(cluster: Cluster) -> None:
        def empty(partition: PartitionData) -> None:
            partition.records = memoryview(b"")

        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster) as reader:
            reader.assign([T0, T1])
            await reader.getmany(max_records=5)
            reader.seek(T0, 0)
            fault = cluster.intercept(FetchRequest, answered_by(empty, after=0.5))
            poll = asyncio.ensure_future(application(reader))
            assert await stalls(reader, 20) == {T0}
            fault.cancel()
            await asyncio.sleep(2.0)
            assert reader.health().stalled == {}
            poll.cancel()

    virtually(story, brokers=1)


def test_a_record_that_no_deserializer_takes_stalls_its_partition() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster, value_deserializer=int) as reader:
            reader.assign([T0, T1])

            async def persistent() -> None:
                while True:
                    with suppress(DeserializationFailed):
                        await reader.getmany()
                    await asyncio.sleep(0.1)

            task = asyncio.ensure_future(persistent())
            assert await stalls(reader, 20) == {T0}
            task.cancel()

    virtually(story)


def test_a_corrupt_batch_stalls_its_partition() -> None:
    async def story(cluster: Cluster) -> None:
        def corrupt(partition: PartitionData) -> None:
            if partition.records:
                partition.records = memoryview(bytes(partition.records)[:-1] + b"?")

        cluster.append("t", *[b"v"] * 10)
        cluster.intercept(FetchRequest, answered_by(corrupt))
        async with consumer(cluster) as reader:
            reader.assign([T0, T1])

            async def persistent() -> None:
                while True:
                    with suppress(RecordError):
                        await reader.getmany()
                    await asyncio.sleep(0.1)

            task = asyncio.ensure_future(persistent())
            assert await stalls(reader, 20) == {T0}
            task.cancel()

    virtually(story)


def outage(cluster: Cluster) -> None:
    for broker in range(1, 4):
        cluster.take_down(broker)


def silence(cluster: Cluster) -> None:
    cluster.intercept(FetchRequest, drop())


def quota(cluster: Cluster) -> None:
    cluster.intercept(FetchRequest, throttle(20_000))


def nothing(cluster: Cluster) -> None:
    pass


@pytest.mark.parametrize("trouble", [outage, silence, quota, nothing])
def test_what_ends_with_the_brokers_trouble_is_no_stall(trouble: Callable[[Cluster], None]) -> None:
    async def story(cluster: Cluster) -> None:
        for partition in (0, 1):
            cluster.append("t", *[b"v"] * 10, partition=partition)
        async with consumer(cluster) as reader:
            reader.assign([T0, T1])
            await reader.getmany(T0)
            await reader.getmany(T1)
            for partition in (0, 1):
                cluster.append("t", *[b"v"] * 10, partition=partition)
                reader._runtime.subscription[TopicPartition("t", partition)].high_watermark = 20
            trouble(cluster)
            poll = asyncio.ensure_future(application(reader))
            assert await stalls(reader, 60) == set()
            poll.cancel()

    virtually(story)


def test_a_partition_that_waits_for_its_turn_is_no_stall() -> None:
    """Over a slow network each answer fills one partition, and a broker serves them one after the other (KIP-227)."""

    async def story(cluster: Cluster) -> None:
        partitions = [TopicPartition("many", number) for number in range(20)]
        for tp in partitions:
            for _ in range(10):
                cluster.append(tp.topic, bytes(2_000), partition=tp.partition)
        cluster.intercept(FetchRequest, delay(5))
        async with consumer(cluster, fetch_max_bytes=1_000) as reader:
            reader.assign(partitions)
            probe = Probe(reader)
            poll = asyncio.ensure_future(application(reader))
            for _ in range(60):
                await asyncio.sleep(5)
                assert probe.look() == (True, True, ())
            assert {reader.current_lag(tp) for tp in partitions} <= {5, 6, 7, 8}, "all had their turn, again and again"
            poll.cancel()

    virtually(story, brokers=1, topics={"many": 20})


@pytest.mark.parametrize(
    ("pause", "seconds", "options"),
    [(0.0, 1, {}), (4.0, 3, {"fetch_buffer_bytes": 4_000})],
    ids=["a quick application", "a slow one"],
)
def test_a_partition_that_never_has_its_turn_is_stalled(pause: float, seconds: int, options: dict[str, int]) -> None:
    """Its broker always has more of another one. That one's records say nothing of this one. Nor does a full buffer."""

    async def story(cluster: Cluster) -> None:
        def empty(partition: PartitionData) -> None:
            if partition.partition_index == 1:
                partition.records = memoryview(b"")

        for _ in range(130):
            cluster.append("t", bytes(1_000))
        cluster.append("t", *[b"v"] * 10, partition=1)
        async with consumer(cluster, max_partition_fetch_bytes=1_000, **options) as reader:
            reader.assign([T0, T1])
            await reader.getmany(T1, max_records=5)
            reader.seek(T1, 0)
            cluster.intercept(FetchRequest, answered_by(empty, after=1.0))
            probe = Probe(reader)
            poll = asyncio.ensure_future(application(reader, pause, max_records=1))
            assert await stalls(reader, 40 * seconds) == {T1}
            for _ in range(60 * seconds):
                await asyncio.sleep(1)
                found = probe.look()
            assert not found.live
            assert reader.current_lag(T0), "it is not for the room in the last answers"
            poll.cancel()

    virtually(story, brokers=1)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_partition_that_its_broker_refuses_is_no_stall(code: ErrorCode) -> None:
    """No restart cures that. A broker that is slow to say so leaves no pause in which it would be found."""

    async def story(cluster: Cluster) -> None:
        def refused(partition: PartitionData) -> None:
            partition.error_code, partition.records = code, None

        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster) as reader:
            reader.assign([T0, T1])
            await reader.getmany(max_records=5)
            reader.seek(T0, 0)
            cluster.intercept(FetchRequest, answered_by(refused, after=3.0))
            poll = asyncio.ensure_future(application(reader))
            assert await stalls(reader, 60) == set()
            assert code.name in str(reader.health().last_error)
            poll.cancel()

    virtually(story, brokers=1)


def test_a_refusal_that_has_passed_hides_no_stall() -> None:
    """A broker that is elected refuses a partition once, and answers without a word of it from then on."""

    async def story(cluster: Cluster) -> None:
        async def refused_and_left_out(exchange: Exchange) -> Any:
            await asyncio.sleep(0.1)
            response: Any = await exchange.handle()
            for topic in response.responses:
                if is_led:
                    topic.partitions = [each for each in topic.partitions if each.partition_index != 0]
                for partition in topic.partitions:
                    if partition.partition_index == 0:
                        partition.error_code, partition.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, None
            return response

        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster) as reader:
            reader.assign([T0, T1])
            await reader.getmany(max_records=5)
            is_led = False
            cluster.intercept(FetchRequest, refused_and_left_out)
            reader.seek(T0, 0)
            poll = asyncio.ensure_future(application(reader))
            await asyncio.sleep(2)
            assert "NOT_LEADER" in str(reader.health().last_error)
            is_led = True
            assert await stalls(reader, 30) == {T0}
            assert reader.health().last_error is None
            poll.cancel()

    virtually(story, brokers=1)


async def application(reader: Consumer[Any, Any], pause: float = 0.0, **options: Any) -> None:
    while True:
        await reader.getmany(**options)
        await asyncio.sleep(pause)


def test_lag_and_a_slow_application_are_no_stall() -> None:
    async def story(cluster: Cluster) -> None:
        for partition in (0, 1):
            for _ in range(20):
                cluster.append("t", *[b"v" * 1_000] * 100, partition=partition)
        async with consumer(cluster, fetch_buffer_bytes=200_000, max_partition_fetch_bytes=100_000) as reader:
            reader.assign([T0, T1])
            poll = asyncio.ensure_future(application(reader, 30.0, max_records=1))
            assert await stalls(reader, 120) == set()
            poll.cancel()

    virtually(story)


def test_a_partition_that_is_paused_or_not_asked_for_is_no_stall() -> None:
    async def story(cluster: Cluster) -> None:
        for partition in (0, 1):
            cluster.append("t", *[b"v"] * 10, partition=partition)
        async with consumer(cluster) as reader:
            reader.assign([T0, T1])
            await reader.getmany(T0)
            reader.pause(T0)
            cluster.append("t", *[b"v"] * 10)
            assert await stalls(reader, 30) == set()

    virtually(story)


def test_a_rebalance_is_no_stall() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v"] * 10)
        async with consumer(cluster, group_id="g") as reader:
            reader.subscribe("t")
            poll = asyncio.ensure_future(application(reader, 1.0, max_records=1))
            watching = asyncio.ensure_future(stalls(reader, 60))
            for _ in range(5):
                await asyncio.sleep(8)
                if cluster.members("g"):
                    cluster.expire_member("g")
            assert await watching == set()
            poll.cancel()

    virtually(story)
