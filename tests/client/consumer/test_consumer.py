"""The public Consumer on a real Apache Kafka, with records from the producer of another library."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from aiokc import (
    LOG_APPEND_TIME,
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from aiokc.errors import (
    CommitFailed,
    ConcurrentCall,
    ConfigError,
    ConsumerClosed,
    KafkaError,
    NoOffsetForPartition,
    OffsetOutOfRange,
    UsageError,
)
from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, add_partitions, produce, produce_in_transaction

pytestmark = [pytest.mark.any_loop, pytest.mark.every_kafka, pytest.mark.timeout(60)]


async def read(consumer: Consumer, count: int, **options: int) -> list[ConsumerRecord[bytes | None, bytes | None]]:
    """Read until ``count`` records have come; fail if more come than that."""
    records: list[ConsumerRecord[bytes | None, bytes | None]] = []
    while len(records) < count:
        for part in (await consumer.getmany(timeout_ms=20_000, **options)).values():
            records += part
    assert len(records) == count
    return records


def values(records: Iterable[ConsumerRecord[bytes | None, bytes | None]]) -> list[bytes | None]:
    return [record.value for record in records]


async def test_every_field_of_a_record(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    headers = [("trace", b"1"), ("trace", b"2"), ("null", None), ("empty", b"")]
    produce(
        kafka.bootstrap,
        topic_name,
        [
            Message(b"value", b"key", headers, timestamp=1_700_000_000_123),
            Message(None, b"", timestamp=1_700_000_000_124),
            Message(b"", None, timestamp=1_700_000_000_125),
        ],
    )
    async with Consumer(topic_name, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        assert await read(consumer, 3) == [
            ConsumerRecord(topic_name, 0, 0, 1_700_000_000_123, 0, b"key", b"value", tuple(headers), 0),
            ConsumerRecord(topic_name, 0, 1, 1_700_000_000_124, 0, b"", None, (), 0),
            ConsumerRecord(topic_name, 0, 2, 1_700_000_000_125, 0, None, b"", (), 0),
        ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec(kafka: LocalKafka, topic_name: str, codec: str) -> None:
    kafka.create_topic(topic_name, partitions=2)
    sent = [b"%d %s" % (number, bytes(200)) for number in range(2000)]
    produce(kafka.bootstrap, topic_name, sent, codec=codec)
    async with Consumer(topic_name, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        assert sorted(values(await read(consumer, 2000))) == sorted(sent)  # type: ignore[type-var]


async def test_log_append_time(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, config={"message.timestamp.type": "LogAppendTime"})
    produce(kafka.bootstrap, topic_name, [Message(b"x", timestamp=1000)])
    async with Consumer(topic_name, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        record = await consumer.getone()
        assert record.timestamp_type == LOG_APPEND_TIME
        assert record.timestamp > 1_600_000_000_000


async def test_a_large_batch_is_decoded_off_the_loop_and_completely(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    sent = [b"%06d" % number + bytes(1000) for number in range(3000)]
    produce(kafka.bootstrap, topic_name, sent, codec="lz4", batch_size=8_000_000, linger_ms=500)
    async with Consumer(topic_name, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        assert values(await read(consumer, 3000, max_records=700)) == sent


async def test_a_record_larger_than_every_limit_is_still_returned(kafka: LocalKafka, topic_name: str) -> None:
    """Size limits are soft for the first batch: otherwise a large record would stop its partition for ever."""
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"a", bytes(500_000), b"b"], batch_num_messages=1)
    async with Consumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        fetch_max_bytes=1000,
        max_partition_fetch_bytes=1000,
        fetch_buffer_bytes=1000,
    ) as consumer:
        assert [len(value or b"") for value in values(await read(consumer, 3))] == [1, 500_000, 1]


async def test_max_records_and_order(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    sent = [b"%d" % number for number in range(120)]
    produce(kafka.bootstrap, topic_name, sent)
    async with Consumer(
        topic_name, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest", max_poll_records=50
    ) as consumer:
        tp = TopicPartition(topic_name, 0)
        first = await consumer.getmany()
        assert values(first[tp]) == sent[:50]
        assert values((await consumer.getmany(max_records=7))[tp]) == sent[50:57]
        assert values(await read(consumer, 63)) == sent[57:]
        assert await consumer.getmany(timeout_ms=0) == {}
        with pytest.raises(ConfigError, match="max_records=0"):
            await consumer.getmany(max_records=0)


async def test_getone_and_the_iterator(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"0", b"1", b"2"])
    async with Consumer(topic_name, bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        assert (await consumer.getone()).value == b"0"
        seen = []
        async for record in consumer:
            seen.append(record.value)
            if len(seen) == 2:
                await consumer.stop()
        assert seen == [b"1", b"2"]


async def test_only_some_partitions(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=2)
    produce(kafka.bootstrap, topic_name, [Message(b"0", partition=0), Message(b"1", partition=1)])
    zero, one = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    async with Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([zero, one])
        assert values((await consumer.getmany(one))[one]) == [b"1"]
        assert (await consumer.getone(zero)).value == b"0"
        with pytest.raises(UsageError, match="not assigned"):
            await consumer.getone(TopicPartition(topic_name, 2))


async def test_a_buffer_full_of_others_starves_no_partition(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=2)
    produce(kafka.bootstrap, topic_name, [Message(bytes(1000), partition=0) for _ in range(500)])
    produce(kafka.bootstrap, topic_name, [Message(b"1", partition=1)])
    zero, one = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    async with Consumer(
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        fetch_buffer_bytes=10_000,
        max_partition_fetch_bytes=100_000,
    ) as consumer:
        consumer.assign([zero, one])
        assert (await consumer.getone(one)).value == b"1"
        assert (await consumer.getone(zero)).partition == 0
        produce(kafka.bootstrap, topic_name, [Message(b"2", partition=1)])
        assert (await consumer.getone(one)).value == b"2"


# Without a group


async def test_without_a_group_all_partitions_are_read_new_ones_from_their_beginning(
    kafka: LocalKafka, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=2)
    produce(kafka.bootstrap, topic_name, [Message(b"old", partition=1)])
    async with Consumer(
        topic_name, bootstrap_servers=kafka.bootstrap, metadata_max_age_ms=200, auto_offset_reset="latest"
    ) as consumer:
        assert await consumer.getmany(timeout_ms=300) == {}
        assert len(consumer.assignment()) == 2
        add_partitions(kafka.bootstrap, topic_name, 3)
        produce(kafka.bootstrap, topic_name, [Message(b"new", partition=2)])
        assert values(await read(consumer, 1)) == [b"new"]
        with pytest.raises(UsageError, match="group_id"):
            await consumer.commit()
        with pytest.raises(UsageError, match="group_id"):
            await consumer.committed()


async def test_a_topic_that_is_created_later(
    kafka: LocalKafka, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Consumer(topic_name, bootstrap_servers=kafka.bootstrap, allow_auto_create_topics=False) as consumer:
        assert await consumer.getmany(timeout_ms=500) == {}
        assert f"topic '{topic_name}': UNKNOWN_TOPIC_OR_PARTITION" in caplog.text
        kafka.create_topic(topic_name)
        produce(kafka.bootstrap, topic_name, [b"first"])
        assert values(await read(consumer, 1)) == [b"first"], (
            "with auto_offset_reset=latest: it was written after start"
        )


# Positions


async def test_seek_and_position(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(10)])
    tp = TopicPartition(topic_name, 0)
    async with Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        assert await consumer.position(tp) == 0
        assert (await consumer.getone()).offset == 0
        assert await consumer.position(tp) == 1
        consumer.seek(tp, 7)
        assert await consumer.position(tp) == 7
        assert [record.offset for record in await read(consumer, 3)] == [7, 8, 9]
        await consumer.seek_to_beginning(tp)
        assert (await consumer.getone()).offset == 0
        await consumer.seek_to_end()
        assert await consumer.position(tp) == 10
        consumer.seek(tp, OffsetAndMetadata(3, "", 0))
        assert (await consumer.getone()).offset == 3
        with pytest.raises(UsageError, match="not assigned"):
            consumer.seek(TopicPartition(topic_name, 1), 0)
        with pytest.raises(ConfigError, match="must not be negative"):
            consumer.seek(tp, -1)


async def test_a_seek_wins_over_everything_that_is_buffered_or_in_flight(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(100)])
    tp = TopicPartition(topic_name, 0)
    async with Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        for offset in (50, 3, 99, 0, 98, 1):
            consumer.seek(tp, offset)
            assert (await consumer.getone()).offset == offset


async def test_offsets_of_the_log(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [Message(b"x", timestamp=ms) for ms in (10, 20, 30)])
    tp = TopicPartition(topic_name, 0)
    async with Consumer(bootstrap_servers=kafka.bootstrap) as consumer:
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp]) == {tp: 3}
        for wanted, found in ((15, OffsetAndTimestamp(1, 20, 0)), (20, OffsetAndTimestamp(1, 20, 0)), (31, None)):
            assert await consumer.offsets_for_times({tp: wanted}) == {tp: found}
        assert await consumer.partitions_for_topic(topic_name) == {0}
        assert (await consumer.list_topics())[topic_name].partitions[0].leader == 1
        with pytest.raises(ConfigError, match="not negative"):
            await consumer.offsets_for_times({tp: -1})


async def test_an_offset_that_the_log_does_not_hold(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"0", b"1"])
    tp = TopicPartition(topic_name, 0)
    for policy, expected in (("earliest", 0), ("none", None)):
        async with Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset=policy) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, 1000)
            if expected is not None:
                assert (await consumer.getone()).offset == expected
                continue
            with pytest.raises(OffsetOutOfRange, match=f"{topic_name}-0 at 1000"):
                await consumer.getone()
            with pytest.raises(OffsetOutOfRange):
                await consumer.getone()
            consumer.seek(tp, 1)
            assert (await consumer.getone()).offset == 1


async def test_no_offset_and_no_policy(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"0"])
    async with Consumer(
        topic_name, bootstrap_servers=kafka.bootstrap, group_id=topic_name, auto_offset_reset="none"
    ) as consumer:
        with pytest.raises(NoOffsetForPartition, match=f"{topic_name}-0") as raised:
            await consumer.getmany(timeout_ms=20_000)
        assert raised.value.partitions == {TopicPartition(topic_name, 0)}
        consumer.seek(TopicPartition(topic_name, 0), 0)
        assert (await consumer.getone()).offset == 0


async def test_pause_and_resume(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=2)
    produce(kafka.bootstrap, topic_name, [Message(b"x", partition=number % 2) for number in range(20)])
    zero, one = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    async with Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([zero, one])
        await consumer.getone(zero)
        consumer.pause(zero)
        assert consumer.paused() == {zero}
        assert {record.partition for record in await read(consumer, 10)} == {1}
        assert await consumer.getmany(timeout_ms=100) == {}
        consumer.resume(zero)
        assert [record.offset for record in await read(consumer, 9)] == list(range(1, 10))


async def test_transactions_at_both_isolation_levels(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"plain"])
    produce_in_transaction(kafka.bootstrap, topic_name, [b"aborted 1", b"aborted 2"], commit=False)
    produce_in_transaction(kafka.bootstrap, topic_name, [b"committed"])
    produce_in_transaction(kafka.bootstrap, topic_name, [b"aborted 3"], commit=False)
    tp = TopicPartition(topic_name, 0)
    expected = {
        "read_committed": [b"plain", b"committed"],
        "read_uncommitted": [b"plain", b"aborted 1", b"aborted 2", b"committed", b"aborted 3"],
    }
    for level, wanted in expected.items():
        async with Consumer(
            bootstrap_servers=kafka.bootstrap,
            auto_offset_reset="earliest",
            isolation_level=level,  # type: ignore[arg-type]
        ) as consumer:
            consumer.assign([tp])
            assert values(await read(consumer, len(wanted))) == wanted
            assert await consumer.getmany(timeout_ms=200) == {}
            assert await consumer.position(tp) == (await consumer.end_offsets([tp]))[tp] == 8, (
                "past the control records"
            )


# Commits


async def test_what_the_last_call_returned_is_not_committed_by_auto_commit(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(10)])
    tp = TopicPartition(topic_name, 0)
    options = {"bootstrap_servers": kafka.bootstrap, "group_id": topic_name, "auto_offset_reset": "earliest"}
    consumer = Consumer(topic_name, **options)  # type: ignore[arg-type]
    await consumer.start()
    assert len((await consumer.getmany(timeout_ms=20_000, max_records=3))[tp]) == 3
    assert len((await consumer.getmany(timeout_ms=20_000, max_records=4))[tp]) == 4
    await consumer.stop()
    async with Consumer(topic_name, **options) as consumer:  # type: ignore[arg-type]
        assert (await consumer.getone()).offset == 3, (
            "the first call's records were committed at stop, the second's not"
        )
    async with Consumer(topic_name, **options) as consumer:  # type: ignore[arg-type]
        assert (await consumer.getone()).offset == 4, "a block that ends cleanly is done with what it has read"


async def test_every_way_to_commit(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"%d" % number for number in range(10)])
    tp = TopicPartition(topic_name, 0)
    done: list[KafkaError | None] = []
    async with Consumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap,
        group_id=topic_name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        first = await consumer.getmany(timeout_ms=20_000, max_records=3)
        second = await consumer.getmany(timeout_ms=20_000, max_records=3)
        await consumer.commit(first)
        assert await consumer.committed(tp) == {tp: OffsetAndMetadata(3, "", 0)}
        await consumer.commit({tp: OffsetAndMetadata(4, "half of the second", 0)})
        assert await consumer.committed(tp) == {tp: OffsetAndMetadata(4, "half of the second", 0)}
        consumer.commit_soon({tp: 5}, lambda offsets, error: done.append(error))
        consumer.commit_soon(second, lambda offsets, error: done.append(error))
        await consumer.commit({})
        assert await consumer.committed(tp) == {tp: OffsetAndMetadata(6, "", 0)}
        assert done == [None, None]


async def test_a_commit_of_what_was_lost_meanwhile_fails(kafka: LocalKafka, topic_name: str) -> None:
    """A member that did not poll in time is out of its group; its partitions may have another reader by now."""
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"0", b"1"])
    tp = TopicPartition(topic_name, 0)
    async with Consumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap,
        group_id=topic_name,
        auto_offset_reset="earliest",
        max_poll_interval_ms=3000,
    ) as consumer:
        assert (await consumer.getone()).offset == 0
        async with asyncio.timeout(20):
            while consumer.assignment():
                await consumer._runtime.changed.wait()
        with pytest.raises(CommitFailed, match=f"{topic_name}-0"):
            await consumer.commit()
        with pytest.raises(CommitFailed, match=f"{topic_name}-0"):
            await consumer.commit({tp: 1})
        assert (await consumer.getone()).offset == 0, "it rejoined, and gets the record again"
        await consumer.commit()
        assert (await consumer.committed(tp))[tp] == OffsetAndMetadata(1, "", 0)


# Life cycle and use


async def test_closed_and_not_started(kafka: LocalKafka, topic_name: str) -> None:
    consumer = Consumer(topic_name, bootstrap_servers=kafka.bootstrap)
    with pytest.raises(ConsumerClosed, match="start"):
        await consumer.getmany()
    await consumer.start()
    await consumer.start()
    await consumer.stop()
    await consumer.stop()
    for call in (consumer.getmany(), consumer.getone(), consumer.list_topics(), consumer.start()):
        with pytest.raises(ConsumerClosed, match="stopped"):
            await call
    assert [record async for record in consumer] == []


async def test_stop_ends_a_waiting_call_of_another_task(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    consumer = Consumer(topic_name, bootstrap_servers=kafka.bootstrap)
    await consumer.start()

    async def wait() -> None:
        with pytest.raises(ConsumerClosed):
            await consumer.getone()

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(wait())
        await asyncio.sleep(0)  # let it begin
        await consumer.stop()


async def test_one_task_at_a_time(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    async with Consumer(topic_name, bootstrap_servers=kafka.bootstrap) as consumer, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(consumer.getmany(timeout_ms=500), name="the first")
        await asyncio.sleep(0)  # let it begin
        with pytest.raises(ConcurrentCall, match="the first"):
            await consumer.getone()
        assert await first == {}


async def test_nothing_to_read(kafka: LocalKafka) -> None:
    async with Consumer(bootstrap_servers=kafka.bootstrap) as consumer:
        with pytest.raises(UsageError, match=r"subscribe\(\) or assign\(\)"):
            await consumer.getmany()


async def test_topics_or_partitions(kafka: LocalKafka, topic_name: str) -> None:
    async with Consumer("a", bootstrap_servers=kafka.bootstrap) as consumer:
        with pytest.raises(UsageError, match="mutually exclusive"):
            consumer.assign([TopicPartition("a", 0)])
        assert consumer.subscription() == {"a"}
        consumer.unsubscribe()
        consumer.assign([TopicPartition("a", 0)])
        assert consumer.assignment() == {TopicPartition("a", 0)}
        for wrong in (["", "b"], [" "], [1]):
            with pytest.raises(ConfigError, match="non-empty strings"):
                consumer.subscribe(wrong)  # type: ignore[arg-type]


async def test_a_loop_of_empty_polls_lets_other_tasks_run(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async with Consumer(topic_name, bootstrap_servers=kafka.bootstrap) as consumer, asyncio.TaskGroup() as tasks:
        other = tasks.create_task(tick())
        for _ in range(200):
            assert await consumer.getmany(timeout_ms=0) == {}
        other.cancel()
    assert ticks >= 200


async def test_a_fetch_that_the_broker_holds_back_delays_nothing_else(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [Message(b"a")])
    tp = TopicPartition(topic_name, 0)
    async with Consumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=120_000,  # longer than this test may take
        request_timeout_ms=180_000,
    ) as consumer:
        await read(consumer, 1)  # by now the next Fetch is on its way
        assert await consumer.end_offsets([tp]) == {tp: 1}
        assert await consumer.partitions_for_topic(topic_name) == {0}
        await consumer.seek_to_beginning(tp)
        assert await consumer.position(tp) == 0
