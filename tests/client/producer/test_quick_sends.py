"""send() and send_soon() in C: what they append is stored as ever, and all else still goes the ordinary way."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from functools import partial
from typing import Any

import pytest

from aiokc import (
    Delivery,
    Producer,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    StoredRecords,
    TopicPartition,
)
from aiokc.client.producer.quick_sends import QuickSends
from aiokc.core.cluster.snapshot import NewLeader
from aiokc.errors import BufferFull, ConfigError, MessageTooLarge, ProducerClosed, UsageError
from aiokc.native import NATIVE
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.faults import lose_answer

from .test_producer import producing, values

pytestmark = [
    pytest.mark.timeout(30),
    pytest.mark.skipif(not NATIVE, reason="without the extension every record goes the ordinary way"),
]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each send was done in C."""
    taken: list[bool] = []
    append = QuickSends.append

    def noted(self: QuickSends, *record: Any) -> Any:
        delivery = append(self, *record)
        taken.append(delivery is not None)
        return delivery

    monkeypatch.setattr(QuickSends, "append", noted)
    return taken


def fill(producer: Producer[Any, Any]) -> int:
    """Send until memory is used up; return how many records there was room for."""
    count = 0
    with contextlib.suppress(BufferFull):
        while True:
            producer.send_soon("t", bytes(100))
            count += 1
    return count


async def test_sends_within_a_transaction_are_quick_too_and_belong_to_theirs(ways: list[bool]) -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        async with producing(cluster, transactional_id="id") as producer:
            for number in range(4):
                await producer.begin_transaction()
                for one in range(500):
                    last = await producer.send("t", b"%d-%d" % (number, one), partition=one % 2)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    assert last.done()
                with pytest.raises(UsageError, match="no transaction is open"):
                    producer.send_soon("t", b"late", partition=0)
        assert sum(ways) > 0.9 * len(ways)
        for partition in range(2):
            wanted = [b"%d-%d" % (number, one) for number in (0, 2) for one in range(partition, 500, 2)]
            found = [value for value in values(cluster, partition) if value and value[:1] in b"02"]
            assert found == wanted
            assert b"late" not in values(cluster, partition)


async def test_records_are_stored_in_the_order_of_the_sends_whichever_way_they_went(ways: list[bool]) -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.partitions_for("t")
        sent = []
        for number in range(2_000):
            value = bytearray(b"%d" % number) if number % 100 == 7 else b"%d" % number  # a bytearray needs a look
            if number % 3:
                sent.append(producer.send_soon("t", value))
            else:
                sent.append(await producer.send("t", value))
            if number % 500 == 0:
                await producer.send_many("t", [b"many"])
        places = [await one for one in sent]
        assert [value for value in values(cluster) if value != b"many"] == [b"%d" % number for number in range(2_000)]
        assert [place.offset for place in places] == [
            number for number, value in enumerate(values(cluster)) if value != b"many"
        ]
        assert 1_800 < ways.count(True) < 2_000


async def test_a_record_has_all_that_it_was_given(ways: list[bool]) -> None:
    async with Cluster(topics={"t": 3}) as cluster, producing(cluster) as producer:
        await producer.send("t", b"first", partition=2)
        delivery = producer.send_soon("t", b"value", b"key", partition=2, timestamp_ms=7, headers=[("ü", None)])
        assert type(delivery) is Delivery
        assert await delivery == RecordMetadata("t", 2, 1, 7)
        (_, record) = cluster.records("t", 2)
        assert (record.key, record.value, record.timestamp, record.headers) == (b"key", b"value", 7, (("ü", None),))
        assert ways == [False, True]


async def test_headers_may_be_none_by_name(ways: list[bool]) -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.send("t", b"0", headers=None)
        await producer.send_and_wait("t", b"1", headers=None)
        await producer.send_soon("t", b"2", headers=None)
        assert [record.headers for record in cluster.records("t")] == [()] * 3
        assert ways == [False, True, True]


async def test_a_key_goes_to_the_same_partition_either_way(ways: list[bool]) -> None:
    async with Cluster(topics={"t": 7}) as cluster, producing(cluster) as producer:
        for _ in range(2):
            sent = [await producer.send("t", b"v", b"key-%d" % number) for number in range(300)]
            places = [await one for one in sent]
        assert ways.count(True) > 500
        for partition in range(7):
            keys = {record.key for record in cluster.records("t", partition)}
            assert {b"key-%d" % number for number in range(300) if places[number].partition == partition} == keys


async def test_callbacks_come_in_order_with_the_records(ways: list[bool]) -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.partitions_for("t")
        told: list[int] = []

        def on_done(metadata: RecordMetadata, error: Exception | None) -> None:
            assert error is None
            assert metadata.offset is not None
            told.append(metadata.offset)

        for _ in range(300):
            producer.send_soon("t", b"v", on_done=on_done)
        assert told == []
        await producer.flush()
        await asyncio.sleep(0.01)
        assert told == list(range(300))
        assert ways.count(True) == 299


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"topic": ["t"]}, ConfigError),
        ({"topic": ""}, ConfigError),
        ({"partition": -1}, ConfigError),
        ({"timestamp_ms": -2}, ConfigError),
        ({"headers": (("h", 5),)}, ConfigError),
        ({"headers": 5}, ConfigError),
        ({"value": bytes(2_000_000)}, MessageTooLarge),
    ],
    ids=lambda one: str(one)[:40],
)
async def test_what_is_wrong_is_refused_as_ever(wrong: dict[str, Any], error: type[Exception]) -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.send("t", b"v")
        with pytest.raises(error):
            producer.send_soon(**{"topic": "t", "value": b"v", **wrong})
        with pytest.raises(error):
            await producer.send(**{"topic": "t", "value": b"v", **wrong})
        await producer.flush()
        assert values(cluster) == [b"v"]


async def not_awaited(metadata: Any, error: Any) -> None: ...


@pytest.mark.parametrize("on_done", [5, not_awaited, partial(not_awaited), [print]], ids=repr)
async def test_what_is_no_callback_is_refused_before_anything_is_appended(on_done: Any) -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.send("t", b"v")
        with pytest.raises(ConfigError, match="on_done must be a"):
            producer.send_soon("t", b"w", on_done=on_done)
        with pytest.raises(ConfigError, match="on_done must be a"):
            await producer.send("t", b"w", on_done=on_done)
        told: asyncio.Queue[Any] = asyncio.Queue()
        producer.send_soon("t", b"x", on_done=partial(lambda *outcome: told.put_nowait(outcome)))
        assert (await told.get())[1] is None
        await producer.send("t", b"y", on_done=partial(lambda *outcome: told.put_nowait(outcome)))
        assert (await told.get())[1] is None
        assert values(cluster) == [b"v", b"x", b"y"]


async def test_memory_is_bounded_and_comes_back(ways: list[bool]) -> None:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        producing(cluster, batch_size=5_000, buffer_memory=20_000) as producer,
    ):
        await producer.partitions_for("t")
        sent = fill(producer)
        assert sent > 100
        assert 18_000 < producer._runtime.accumulator.used <= 20_000
        await producer.flush()
        assert producer._runtime.accumulator.used == 0
        assert len(values(cluster)) == sent
        assert ways.count(True) > 100


async def test_who_waits_for_memory_comes_first() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, batch_size=500, buffer_memory=3_000) as producer:
        await producer.partitions_for("t")
        fill(producer)
        waiting = asyncio.ensure_future(producer.send("t", b"waited" * 10, partition=0))
        await asyncio.sleep(0)
        with pytest.raises(BufferFull):
            producer.send_soon("t", b"", partition=0)
        await waiting
        await producer.flush()
        assert values(cluster)[-1] == b"waited" * 10


async def test_after_stop_nothing_is_taken() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        async with producing(cluster) as producer:
            await producer.send("t", b"v")
            producer.send_soon("t", b"v")
        with pytest.raises(ProducerClosed):
            producer.send_soon("t", b"v")
        with pytest.raises(ProducerClosed):
            await producer.send("t", b"v")
        assert len(values(cluster)) == 2


async def test_another_loop_is_refused() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.send("t", b"v")
        raised: list[BaseException] = []

        async def elsewhere() -> None:
            with pytest.raises(UsageError) as caught:
                producer.send_soon("t", b"v")
            raised.append(caught.value)

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await asyncio.to_thread(thread.join, 10)
        assert len(raised) == 1


async def test_send_soon_in_a_thread_without_a_loop_says_how_to_call(ways: list[bool]) -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        for sent in range(2):  # the first time the topic is not known, the second one it is sent to in C
            with pytest.raises(UsageError, match="run_coroutine_threadsafe"):
                await asyncio.to_thread(producer.send_soon, "t", b"v")
            assert values(cluster) == [b"v"] * sent
            await producer.send_and_wait("t", b"v")


@pytest.mark.parametrize(
    "options",
    [
        {"interceptors": [ProducerInterceptor()]},
        {"value_serializer": bytes},
        {"partitioner": lambda *_: 0},
    ],
    ids=lambda options: next(iter(options)),
)
async def test_what_must_see_each_record_sees_it(options: dict[str, Any], ways: list[bool]) -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, **options) as producer:
        for _ in range(20):
            await producer.send("t", b"v")
        await producer.flush()
        assert ways == [False] * 20


async def test_records_are_sent_again_like_others(ways: list[bool]) -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.partitions_for("t")
        cluster.intercept(ApiKey.PRODUCE, lose_answer(), times=2)
        sent = [producer.send_soon("t", b"%d" % number) for number in range(500)]
        await producer.flush()
        assert [(await one).offset for one in sent] == list(range(500))
        assert ways.count(True) > 490


async def test_sticky_batches_are_full_and_all_partitions_get_some() -> None:
    async with Cluster(topics={"t": 4}) as cluster, producing(cluster, batch_size=2_000) as producer:
        await producer.partitions_for("t")
        sent = []
        for number in range(2_000):
            sent.append(producer.send_soon("t", bytes(100)))
            if number % 200 == 0:
                await asyncio.sleep(0)
        await producer.flush()
        counts = [len(values(cluster, partition)) for partition in range(4)]
        assert sum(counts) == 2_000
        assert min(counts) > 200


async def test_a_task_that_sends_on_and_on_lets_others_run() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.partitions_for("t")
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        running = asyncio.ensure_future(other())
        await asyncio.sleep(0)
        before = turns
        for _ in range(3_000):
            await producer.send("t", b"v")
        assert turns - before >= 10
        running.cancel()


@pytest.mark.parametrize("change", ["a leader that an answer names", "another leader", "another partition"])
async def test_records_of_others_do_not_become_those_of_a_send_many_when_the_metadata_change(change: str) -> None:
    """They share a batch. Its BatchDelivery would tell their places, too, and count as who sees that they fail."""
    async with Cluster(brokers=2, topics={"t": 1}) as cluster, producing(cluster, linger_ms=60_000) as producer:
        await producer.partitions_for("t")
        metadata = producer._runtime.cluster_client.metadata
        deliveries = []
        for round_number in range(2):
            for _ in range(3):  # by the route of before the change, both times where an answer has changed it
                producer.send_soon("t", b"by itself", partition=0)
            if round_number == 0 and change == "a leader that an answer names":
                leader = metadata.cluster.leader(TopicPartition("t", 0))
                assert leader is not None
                other = NewLeader(3 - leader.node_id, 1, metadata.cluster.topic_id("t"))
                assert metadata.learn_leaders({TopicPartition("t", 0): other}, {})
            elif round_number == 0:
                if change == "another leader":
                    cluster.move_leader("t")
                else:
                    cluster.add_partitions("t", 2)
                metadata.request_update()
                assert await metadata.changed.wait(10)
            many = [ProducerRecord("t", b"of many", partition=0)] * 2
            deliveries.append(await producer.send_many("t", many))
        assert [delivery.count for delivery in deliveries] == [2, 2]
        metadata.request_update()
        await producer.flush()
        places = [(await delivery)[TopicPartition("t", 0)] for delivery in deliveries]
        assert places == [[StoredRecords(3, 2)], [StoredRecords(8, 2)]]
