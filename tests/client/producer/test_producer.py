"""A Producer against a cluster in Python: what is sent is stored, in order and once, and every Delivery says where."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import pytest

from aiokc import NO_TIMESTAMP, Producer, ProducerRecord, RecordMetadata, TopicPartition
from aiokc.errors import (
    BufferFull,
    ConfigError,
    MessageTooLarge,
    MetadataMissing,
    ProducerClosed,
    RecordRefused,
    UsageError,
)
from aiokc.testing import ApiKey, Cluster, ErrorCode
from aiokc.testing.faults import disconnect, lose_answer

pytestmark = pytest.mark.timeout(30)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(**{"bootstrap_servers": cluster.bootstrap, "retry_backoff_ms": 10, **options})


def values(cluster: Cluster, partition: int = 0, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, partition)]


async def test_a_delivery_says_where_its_record_is() -> None:
    async with Cluster(topics={"t": 3}) as cluster, producing(cluster) as producer:
        cluster.append("t", b"before", partition=2)
        delivery = await producer.send("t", b"value", b"key", partition=2, timestamp_ms=7, headers=[("a", None)])
        assert await delivery == RecordMetadata("t", 2, 1, 7)
        assert await delivery == delivery.result()
        (_, record) = cluster.records("t", 2)
        assert (record.key, record.value, record.timestamp) == (b"key", b"value", 7)
        assert record.headers == (("a", None),)


async def test_headers_may_be_any_iterable_of_pairs() -> None:
    """Of each call, with a timeout or without: a view of a dictionary, or a generator, which is read once."""
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        for wait in (None, 5000.5):
            for _ in range(2):
                pairs = {"a": b"1", "b": None}.items()
                await producer.send("t", b"v", headers=pairs, timeout_ms=wait)
                await producer.send_and_wait("t", b"v", headers=(pair for pair in pairs), timeout_ms=wait)
                producer.send_soon("t", b"v", headers=iter(pairs))
                records = [ProducerRecord[bytes, bytes]("t", b"v", headers=one) for one in (pairs, iter(pairs))]
                await producer.send_many("t", records, timeout_ms=wait)
        await producer.flush()
        assert [record.headers for record in cluster.records("t", 0)] == [(("a", b"1"), ("b", None))] * 20


async def test_ten_thousand_sends_of_a_task_are_stored_in_order() -> None:
    async with Cluster(brokers=3, topics={"t": 3}) as cluster, producing(cluster) as producer:
        sent = [await producer.send("t", b"%d" % number, partition=number % 3) for number in range(10_000)]
        await producer.flush()
        assert [(await one).offset for one in sent] == [number // 3 for number in range(10_000)]
        for partition in range(3):
            assert values(cluster, partition) == [b"%d" % number for number in range(partition, 10_000, 3)]


async def test_sends_of_many_tasks_are_stored_in_the_order_in_which_the_tasks_began() -> None:
    """Also those that had to wait for the topic's metadata."""
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        sent = [producer.send_and_wait("t", b"%d" % number) for number in range(600)]
        found = await asyncio.gather(*sent)
        assert [one.offset for one in found] == list(range(600))
        assert values(cluster) == [b"%d" % number for number in range(600)]


async def test_no_key_no_value_and_empty_ones_are_told_apart() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        for key, value in [(None, None), (b"", b""), (None, b""), (b"", None)]:
            await producer.send_and_wait("t", value, key)
        assert [(record.key, record.value) for record in cluster.records("t")] == [
            (None, None),
            (b"", b""),
            (None, b""),
            (b"", None),
        ]


async def test_a_delivery_is_awaited_by_two_tasks_and_by_one_that_gives_up() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, linger_ms=200) as producer:
        delivery = await producer.send("t", b"value")
        with pytest.raises(asyncio.InvalidStateError):
            delivery.result()
        waiting = [asyncio.ensure_future(delivery) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await producer.flush()
        assert waiting[0].done() or (await waiting[0])
        assert await waiting[2] == await waiting[0] == RecordMetadata("t", 0, 0, delivery.result().timestamp_ms)
        assert waiting[1].cancelled()


async def test_records_that_go_one_by_one_make_no_task_each() -> None:
    """A task takes as long as a tenth of all that sending a record does."""
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first")
        loop, made = asyncio.get_running_loop(), []

        def new_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
            made.append(coro.__qualname__)
            return asyncio.Task(coro, loop=loop, **options)

        loop.set_task_factory(new_task)
        for number in range(20):
            assert (await producer.send_and_wait("t", b"next")).offset == number + 1
        loop.set_task_factory(None)
        assert made == []


async def test_many_awaits_of_one_batch_are_cancelled_in_no_time() -> None:
    """Each of them is found at once among the others: the loop is not held for seconds."""
    hold = asyncio.Event()

    async def stalled(exchange: Any) -> None:
        await hold.wait()

    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, batch_size=1 << 20) as producer:
        await producer.partitions_for("t")
        cluster.intercept(ApiKey.PRODUCE, stalled)
        waiting = [asyncio.ensure_future(producer.send_and_wait("t", b"")) for _ in range(10_000)]
        await asyncio.sleep(0)
        began = time.thread_time()
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert time.thread_time() - began < 1
        hold.set()
        await producer.flush()
        assert len(values(cluster)) == 10_000


async def test_a_lost_answer_makes_no_duplicate() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.intercept(ApiKey.PRODUCE, lose_answer(), times=1)
        assert (await producer.send_and_wait("t", b"1")).offset == 1
        cluster.intercept(ApiKey.PRODUCE, disconnect(), times=1)
        assert (await producer.send_and_wait("t", b"2")).offset == 2
        assert values(cluster) == [b"0", b"1", b"2"]


async def test_a_refused_record_fails_alone() -> None:
    """The broker refuses it for good; what is sent afterwards is stored, and the sequence goes on."""
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
        with pytest.raises(RecordRefused) as refused:
            await producer.send_and_wait("t", b"1")
        assert (refused.value.code, refused.value.persisted) == (ErrorCode.INVALID_TIMESTAMP, "no")
        assert (refused.value.topic, refused.value.partition) == ("t", 0)
        assert (await producer.send_and_wait("t", b"2")).offset == 1
        assert values(cluster) == [b"0", b"2"]


async def test_each_waiter_gets_an_error_of_its_own() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
        delivery = await producer.send("t", b"1")

        async def look() -> RecordMetadata:
            return await delivery

        first, second = await asyncio.gather(look(), look(), return_exceptions=True)
        assert str(first) == str(second)
        assert first is not second


async def test_a_failure_that_nobody_has_seen_is_raised_by_the_next_flush_and_once() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
        await producer.send("t", b"1")
        with pytest.raises(RecordRefused):
            await producer.flush()
        await producer.flush()


async def test_a_failure_that_was_awaited_is_not_raised_again() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
        with pytest.raises(RecordRefused):
            await producer.send_and_wait("t", b"1")
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
        seen: list[object] = []
        producer.send_soon("t", b"2", on_done=lambda metadata, error: seen.append((metadata.offset, error)))
        await producer.flush()
        (told,) = seen
        assert isinstance(told, tuple)
        assert told[0] is None
        assert isinstance(told[1], RecordRefused)


async def test_send_calls_back_once_for_each_record_in_order_also_where_it_waits_for_room() -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        producing(cluster, batch_size=2_000, buffer_memory=20_000) as producer,
    ):
        told: list[tuple[int, int | None, Exception | None]] = []
        for number in range(200):  # the first one finds out about the topic, and many wait for those before them
            on_done = partial(lambda number, metadata, error: told.append((number, metadata.offset, error)), number)
            await producer.send("t", bytes(1_000), on_done=on_done)
        assert len(told) > 100
        await producer.flush()
        assert told == [(number, number, None) for number in range(200)]


async def test_send_calls_back_for_a_record_that_is_refused_by_a_broker_and_goes_on_after_a_callback_that_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, linger_ms=60_000) as producer:
        told: list[Any] = []
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
        await producer.send("t", b"1", on_done=lambda metadata, error: 1 / 0)
        second = asyncio.get_running_loop().create_future()
        await producer.send("t", b"2", on_done=lambda metadata, error: second.set_result((metadata.offset, error)))
        await producer.flush()  # raises nothing: the callbacks were told, or are about to be
        offset, refused = await second
        assert offset is None
        assert isinstance(refused, RecordRefused)
        assert "ZeroDivisionError" in caplog.text
        with pytest.raises(MetadataMissing):
            await producer.send("t", b"3", partition=9, timeout_ms=10, on_done=lambda *outcome: told.append(outcome))
        await producer.flush()
        assert told == [], "what the call raises, no callback is told"


async def test_a_failure_that_nobody_has_seen_is_raised_at_the_end_of_the_block() -> None:
    async with Cluster(topics={"t": 1}) as cluster:

        async def block(own: Exception | None = None) -> None:
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
            async with producing(cluster) as producer:
                await producer.send("t", b"1")
                if own is not None:
                    raise own

        with pytest.raises(RecordRefused):
            await block()
        with pytest.raises(KeyError) as raised:
            await block(KeyError("the block's own"))
        assert "INVALID_TIMESTAMP" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    "too_large",
    [
        {"value": bytes(5000)},
        {"key": bytes(5000)},
        {"headers": [("name", bytes(5000))]},
        {"value": bytes(2000), "key": bytes(2000), "headers": [("n" * 500, bytes(500))]},
    ],
    ids=["value", "key", "headers", "all together"],
)
async def test_a_record_that_is_too_large_is_refused_at_once(too_large: dict[str, Any]) -> None:
    """Header, key and value count."""
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, max_request_size=5000) as producer:
        with pytest.raises(MessageTooLarge, match="max_request_size"):
            await producer.send("t", **too_large)
        with pytest.raises(MessageTooLarge, match="max_request_size"):
            producer.send_soon("t", **too_large)
        await producer.send_and_wait("t", bytes(4900))


async def test_what_the_arguments_may_be() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        for wrong in (
            {"topic": ""},
            {"partition": -1},
            {"partition": True},
            {"timestamp_ms": -2},
            {"headers": [("a", "text")]},
            {"headers": [(b"a", b"")]},
            {"headers": 5},
            {"headers": [("half a pair: \ud800", b"")]},
        ):
            with pytest.raises(ConfigError):
                await producer.send(**{"topic": "t", "value": b"", **wrong})  # type: ignore[arg-type]
        assert values(cluster) == []


async def test_a_record_that_was_read_without_a_time_is_sent_on_with_the_time_of_the_append() -> None:
    async with Cluster(topics={"t": 1, "copy": 1}) as cluster, producing(cluster) as producer:
        cluster.append("t", b"v", timestamp=NO_TIMESTAMP)
        (read,) = cluster.records("t")
        assert read.timestamp == NO_TIMESTAMP
        for _ in range(2):  # the first time each goes the ordinary way
            await producer.send("copy", read.value, timestamp_ms=read.timestamp)
            producer.send_soon("copy", read.value, timestamp_ms=read.timestamp)
            await producer.send_many("copy", [ProducerRecord("copy", read.value, timestamp_ms=read.timestamp)])
        await producer.flush()
        assert len(found := cluster.records("copy")) == 6
        assert all(one.timestamp > 1_700_000_000_000 for one in found)


async def test_an_unknown_topic_is_missing_after_the_time_to_block() -> None:
    async with Cluster(topics={"t": 1}, auto_create_topics_enable=False) as cluster, producing(cluster) as producer:
        with pytest.raises(MetadataMissing) as missing:
            await producer.send("nope", b"", timeout_ms=1_000)
        assert missing.value.topic == "nope"
        assert "no broker knows that topic" in str(missing.value)
        with pytest.raises(MetadataMissing):
            await producer.send("t", b"", partition=1, timeout_ms=100)
        with pytest.raises(MetadataMissing, match="not known: no broker knows that topic"):
            producer.send_soon("nope", b"")
        with pytest.raises(MetadataMissing, match=r"not known yet: await partitions_for\(\)"):
            producer.send_soon("other", b"")


async def test_a_producer_that_does_not_run_says_so() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        producer = producing(cluster)
        with pytest.raises(ProducerClosed):
            await producer.send("t", b"")
        await producer.start()
        delivery = await producer.send("t", b"kept")
        await producer.stop()
        assert (await delivery).offset == 0
        await producer.stop()
        for call in (producer.send("t", b""), producer.flush(), producer.start(), producer.partitions_for("t")):
            with pytest.raises(ProducerClosed):
                await call
        with pytest.raises(ProducerClosed):
            producer.send_soon("t", b"")


async def test_a_start_from_another_loop_changes_nothing() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        with pytest.raises(UsageError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, producer.start())
        assert (await producer.send_and_wait("t", b"1")).offset == 0


async def test_partitions_of_a_topic() -> None:
    async with Cluster(brokers=3, topics={"t": 4}) as cluster, producing(cluster) as producer:
        found = await producer.partitions_for("t")
        assert [one.partition for one in found] == [0, 1, 2, 3]
        assert found[1].leader == cluster.leader("t", 1)


async def test_memory_is_bounded_and_waited_for_in_order() -> None:
    """The broker is silent; send() waits, send_soon() does not, and then all are stored in order."""
    hold = asyncio.Event()

    async def stalled(exchange: Any) -> None:
        await hold.wait()

    async with Cluster(topics={"t": 1}) as cluster:
        async with producing(cluster, buffer_memory=20_000, batch_size=1000, linger_ms=0) as producer:
            await producer.send_and_wait("t", b"0")
            cluster.intercept(ApiKey.PRODUCE, stalled)
            count = 1
            while True:
                try:
                    producer.send_soon("t", b"%d" % count + bytes(500))
                except BufferFull:
                    break
                count += 1
            assert producer._runtime.accumulator.used <= 20_000
            with pytest.raises(BufferFull):
                await producer.send("t", b"late", timeout_ms=20)
            waiting = [asyncio.ensure_future(producer.send("t", b"w%d" % number)) for number in range(5)]
            await asyncio.sleep(0)
            waiting[1].cancel()
            with pytest.raises(BufferFull):
                producer.send_soon("t", b"")  # the others came first, small as it is
            hold.set()
            for number in (0, 2, 3, 4):
                await (await waiting[number])
        stored = [value.rstrip(b"\0") for value in values(cluster) if value is not None]
        assert stored == [b"%d" % number for number in range(count)] + [b"w0", b"w2", b"w3", b"w4"]
        assert producer._runtime.accumulator.used == 0


async def test_stop_ends_within_its_time_and_every_delivery_is_done() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        producer = producing(cluster)
        await producer.start()
        await producer.send_and_wait("t", b"0")
        cluster.intercept(ApiKey.PRODUCE, lambda exchange: asyncio.sleep(100))
        sent = await producer.send("t", b"1")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await producer.stop(timeout_ms=50)
        assert loop.time() - began < 25
        assert sent.done()
        with pytest.raises(Exception, match="stopped") as failed:
            sent.result()
        assert getattr(failed.value, "persisted", None) == "maybe"
        cluster.heal()


async def test_the_leader_moves_while_records_are_sent() -> None:
    async with Cluster(brokers=3, topics={"t": 1}) as cluster, producing(cluster) as producer:
        sent = []
        for number in range(200):
            sent.append(await producer.send("t", b"%d" % number))
            if number % 40 == 20:
                await sent[-1]
                cluster.move_leader("t")
        await producer.flush()
        assert [(await one).offset for one in sent] == list(range(200))
        assert values(cluster) == [b"%d" % number for number in range(200)]
        assert producer._runtime.cluster_client.metadata.cluster.leader(TopicPartition("t", 0)) is not None
