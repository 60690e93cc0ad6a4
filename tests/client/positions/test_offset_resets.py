"""Where a partition starts without a position: policies for the first start and for out of range, and precedence."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from aiokc import Consumer, Producer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.config import ConsumerConfig, duration_ms
from aiokc.core.subscription.offset_reset import OffsetReset
from aiokc.core.subscription.position import PositionState
from aiokc.core.subscription.state import Subscription
from aiokc.error_codes import ErrorCode
from aiokc.errors import ConfigError, NoOffsetForPartition, OffsetOutOfRange
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, disconnect
from aiokc.testing.kafka import LocalKafka
from aiokc.types import EARLIEST, LATEST
from aiokc.wire.messages.offsets import ListOffsetsRequest, OffsetFetchRequest
from tests.producing import Message, produce
from tests.suite.unused_faults import may_be_unused

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

T0 = TopicPartition("t", 0)


def reading(cluster: Cluster, **options: Any) -> ConsumerType:
    consumer = Consumer(
        **{"bootstrap_servers": cluster.bootstrap, "fetch_max_wait_ms": 50, "retry_backoff_ms": 10, **options}
    )
    consumer.assign([T0])
    return consumer


async def values(consumer: ConsumerType, count: int) -> list[bytes]:
    async with asyncio.timeout(20):
        return [(await consumer.getone()).value or b"" for _ in range(count)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("by_duration:PT0S", 0),
        ("by_duration:PT1.5S", 1_500),
        ("by_duration:PT0,25S", 250),
        ("by_duration:P1DT2H3M4.005S", 93_784_005),
        ("by_duration:p7d", 604_800_000),
        ("earliest", None),
    ],
)
def test_durations(policy: str, expected: int | None) -> None:
    assert duration_ms(policy) == expected


@pytest.mark.parametrize("name", ["auto_offset_reset", "offset_out_of_range_reset"])
@pytest.mark.parametrize(
    "wrong",
    [
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:1H",
        "by_duration:PT-1H",
        pytest.param("by_duration:P" + "9" * 5000 + "D", id="by_duration:P999…D"),
        "early",
        "",
    ],
)
def test_what_is_no_policy_is_refused(name: str, wrong: str) -> None:
    options: dict[str, Any] = {name: wrong}
    with pytest.raises(ConfigError, match="by_duration"):
        ConsumerConfig(**options)


def test_policies_as_timestamps() -> None:
    assert [OffsetReset(policy).timestamp(100.0) for policy in ("earliest", "latest", "none")] == [
        EARLIEST,
        LATEST,
        None,
    ]
    assert OffsetReset("by_duration:PT10S").timestamp(100.0) == 90_000
    assert OffsetReset("by_duration:PT10M").timestamp(100.0) == 0, "never one of the special timestamps"


async def test_by_duration_starts_at_the_first_record_that_is_young_enough() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        now = cluster._state.now_ms()
        for hours in (3, 2, 1):
            cluster.append("t", NewRecord(b"%d" % hours, timestamp=now - hours * 3_600_000))
        async with reading(cluster, auto_offset_reset="by_duration:PT150M") as consumer:
            assert await values(consumer, 2) == [b"2", b"1"]


async def test_by_duration_starts_at_the_end_where_nothing_is_young_enough() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", NewRecord(b"old", timestamp=cluster._state.now_ms() - 7_200_000))
        async with reading(cluster, auto_offset_reset="by_duration:PT1H") as consumer:
            assert await consumer.position(T0) == 1
            cluster.append("t", b"new")
            assert await values(consumer, 1) == [b"new"]


def asks_for_the_end(exchange: Exchange) -> bool:
    return any(part.timestamp == LATEST for topic in exchange.request.topics for part in topic.partitions)


HOUR = 3_600_000


@pytest.mark.parametrize("when", ["before the end is known", "after the end is known", "while the end is refused"])
@pytest.mark.parametrize("is_lost", [False, True], ids=["no position", "out of range"])
def test_by_duration_skips_nothing_that_is_written_while_positions_are_looked_up(when: str, is_lost: bool) -> None:
    """The first answer says that nothing is young enough. A record that comes next is younger than the duration."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", NewRecord(b"old", timestamp=cluster._state.now_ms() - 2 * HOUR))

        def write(exchange: Exchange) -> ErrorCode | None:
            cluster.append("t", NewRecord(b"young", timestamp=cluster._state.now_ms()))
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if when == "while the end is refused" else None

        def write_next(exchange: Exchange) -> None:
            cluster.intercept(ListOffsetsRequest, write, times=1)

        meanwhile = write_next if when == "after the end is known" else write
        cluster.intercept(ListOffsetsRequest, meanwhile, times=1, where=asks_for_the_end)
        async with reading(cluster, auto_offset_reset="by_duration:PT1H") as consumer:
            if is_lost:
                consumer.seek(T0, 99)
            assert await values(consumer, 1) == [b"young"]

    virtually(story)


def test_by_duration_skips_no_transaction_that_ends_while_positions_are_looked_up() -> None:
    """With read_committed, none of its records counts before it ends, and from then on all of them do."""

    async def story(cluster: Cluster) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x") as producer:
            transaction = producer.transaction()
            await transaction.__aenter__()
            await producer.send_and_wait("t", b"young", partition=0)

            async def end(exchange: Exchange) -> None:
                await transaction.__aexit__(None, None, None)

            cluster.intercept(ListOffsetsRequest, end, times=1, where=asks_for_the_end)
            options = {"auto_offset_reset": "by_duration:PT1H", "isolation_level": "read_committed"}
            async with reading(cluster, **options) as consumer:
                assert await values(consumer, 1) == [b"young"]

    virtually(story)


def test_by_duration_goes_on_at_the_end_from_before_it_has_looked_twice() -> None:
    """What comes behind the end that was asked for is read, also if the second look finds that it is old."""

    async def story(cluster: Cluster) -> None:
        old = cluster._state.now_ms() - 2 * HOUR
        cluster.append("t", NewRecord(b"old", timestamp=old))
        asked: list[int] = []

        def write(exchange: Exchange) -> None:
            asked.append(exchange.request.topics[0].partitions[0].timestamp)
            if len(asked) == 3:
                cluster.append("t", NewRecord(b"written late, and old", timestamp=old))

        cluster.intercept(ListOffsetsRequest, write)
        async with reading(cluster, auto_offset_reset="by_duration:PT1H") as consumer:
            assert await values(consumer, 1) == [b"written late, and old"]
        assert asked == [asked[0], LATEST, asked[0]]

    virtually(story)


@pytest.mark.every_kafka
async def test_by_duration_with_kafka(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, 2)
    hour, now = 3_600_000, round(time.time() * 1000)
    old = [Message(b"%d" % age, timestamp=now - age * hour, partition=0) for age in (3, 2, 1)]
    nothing_young = Message(b"old", timestamp=now - 4 * hour, partition=1)
    await asyncio.to_thread(produce, kafka.bootstrap, topic_name, [*old, nothing_young])
    young, behind_all = (TopicPartition(topic_name, number) for number in (0, 1))
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="by_duration:PT150M")
    consumer.assign([young, behind_all])
    async with consumer:
        assert [await consumer.position(tp) for tp in (young, behind_all)] == [1, 1]
        assert await values(consumer, 2) == [b"2", b"1"]
        late = Message(b"written later, and older", timestamp=now - 5 * hour, partition=1)
        await asyncio.to_thread(produce, kafka.bootstrap, topic_name, [late])
        assert await values(consumer, 1) == [late.value]


async def test_out_of_range_has_a_policy_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """First it starts at the end, but after a loss it continues with what is left; the log names both offsets."""
    async with Cluster(topics={"t": 1}) as cluster:
        for number in range(5):
            cluster.append("t", b"%d" % number)
        async with reading(cluster, offset_out_of_range_reset="earliest") as consumer:
            assert await consumer.position(T0) == 5
            consumer.seek(T0, 0)
            cluster.trim("t", to=3)
            with caplog.at_level(logging.WARNING, "aiokc.offsets"):
                assert await values(consumer, 2) == [b"3", b"4"]
            assert "t-0: offset 0 is not in the log (so says broker " in caplog.text
            assert "t-0: position reset from offset 0 to offset 3 (earliest)" in caplog.text


async def test_what_was_lost_is_told_of_one_partition_of_a_topic_and_where_it_goes_on_of_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "aiokc.offsets")
    async with Cluster(topics={"t": 50}) as cluster:
        partitions = [TopicPartition("t", number) for number in range(50)]
        async with reading(cluster, offset_out_of_range_reset="latest") as consumer:
            consumer.assign(partitions)
            for tp in partitions:
                consumer.seek(tp, 7)
            while any([await consumer.position(tp) for tp in partitions]):
                await consumer.getmany(timeout_ms=10)
    assert len([text for text in caplog.messages if "offset 7 is not in the log" in text]) == 1
    assert len([text for text in caplog.messages if "position reset from offset 7 to offset 0" in text]) == 50


async def test_an_error_for_out_of_range_only() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        for number in range(5):
            cluster.append("t", b"%d" % number)
        async with reading(cluster, auto_offset_reset="earliest", offset_out_of_range_reset="none") as consumer:
            assert await values(consumer, 1) == [b"0"]
            consumer.seek(T0, 99)
            with pytest.raises(OffsetOutOfRange, match=r"t-0 at 99: .*so says broker 1"):
                await values(consumer, 1)


async def test_a_seek_wins_over_a_lookup_that_is_under_way() -> None:
    """The offset that the lookup finds later is dropped."""
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        hold = Hold()
        cluster.intercept(ListOffsetsRequest, hold, times=1)
        async with reading(cluster, auto_offset_reset="earliest") as consumer:
            await hold.arrived()
            consumer.seek(T0, 2)
            hold.release()
            assert await values(consumer, 1) == [b"2"]


async def test_a_seek_wins_over_committed_offsets_that_come_late() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        async with reading(cluster, group_id="g", auto_offset_reset="earliest") as first:
            assert await values(first, 1) == [b"0"]
            await first.commit()
        hold = Hold()
        held = cluster.intercept(OffsetFetchRequest, hold, times=1)
        async with reading(cluster, group_id="g", auto_offset_reset="earliest") as consumer:
            await hold.arrived()
            consumer.seek(T0, 2)
            hold.release()
            assert await values(consumer, 1) == [b"2"]
            assert held.hits == 1


async def test_a_seek_answers_the_question_for_a_missing_offset() -> None:
    """The error was found before the application's seek, and is not raised after it."""
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with reading(cluster, auto_offset_reset="none") as consumer:
            async with asyncio.timeout(10):
                while not consumer._runtime.finder.errors._kept:
                    await consumer._runtime.finder.found.wait()
            consumer.seek(T0, 0)
            assert await values(consumer, 1) == [b"0"]
        async with reading(cluster, auto_offset_reset="none") as consumer:
            with pytest.raises(NoOffsetForPartition, match="t-0"):
                await values(consumer, 1)


@pytest.mark.parametrize(
    "trouble",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH, disconnect()],
    ids=["not coordinator", "loading", "stale member epoch", "connection lost"],
)
async def test_trouble_with_the_coordinator_never_becomes_a_reset(trouble: Any) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0", b"1")
        async with reading(cluster, group_id="g", auto_offset_reset="earliest") as first:
            assert await values(first, 1) == [b"0"]
            await first.commit()
        failing = cluster.intercept(OffsetFetchRequest, trouble, times=2)
        listed = may_be_unused(cluster.intercept(ListOffsetsRequest, lambda exchange: None))
        async with reading(cluster, group_id="g", auto_offset_reset="earliest") as consumer:
            assert await values(consumer, 1) == [b"1"]
            assert (failing.hits, listed.hits) == (2, 0)


def test_without_a_group_the_first_offsets_of_thousands_are_asked_for_in_small_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One after the other of 250: to name all of them at once would hold the loop."""
    named: list[int] = []
    in_state = Subscription.in_state

    def counted(self: Subscription, state: PositionState, *rest: Any) -> dict[TopicPartition, int]:
        found = in_state(self, state, *rest)
        if state is PositionState.INITIALIZING and found:
            named.append(len(found))
        return found

    monkeypatch.setattr(Subscription, "in_state", counted)

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", partition=599)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("t", number) for number in range(600)])
        async with consumer:
            assert (await consumer.getone()).partition == 599
        assert named == [250, 250, 100]

    virtually(story, topics={"t": 600}, brokers=1)


def test_a_partition_of_a_topic_that_is_known_is_begun_at_once() -> None:
    """No metadata come that would have its first offset looked up, and of a paused partition no Fetch does."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"one", partition=1)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        consumer.assign([T0])
        consumer.pause(T0)
        async with consumer:
            await consumer.position(T0)
            await asyncio.sleep(10)  # so that all is quiet
            began = asyncio.get_running_loop().time()
            consumer.assign([T0, TopicPartition("t", 1)])
            assert (await consumer.getone()).value == b"one"
            assert asyncio.get_running_loop().time() < began + 0.1

    virtually(story, topics={"t": 2}, brokers=1)
