"""send_many(): what send() of each record would have done, and one BatchDelivery for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from aiokc import (
    AsyncSerializer,
    BatchDelivery,
    Delivery,
    Producer,
    ProducerInterceptor,
    ProducerRecord,
    StoredRecords,
    TopicPartition,
)
from aiokc.client.aio import time_slice
from aiokc.client.producer import send_many as sending_many
from aiokc.client.producer.appending import Appending
from aiokc.errors import BufferFull, ConfigError, MessageTooLarge, RecordRefused, SerializationFailed, UsageError
from aiokc.records.encoding.batch_builder import append_records
from aiokc.testing import ApiKey, Cluster, ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from tests.client.virtually import virtually

from .test_producer import producing, values

pytestmark = pytest.mark.timeout(30)


async def all_values(cluster: Cluster, partitions: int) -> list[bytes | None]:
    return [value for partition in range(partitions) for value in values(cluster, partition)]


async def test_all_records_are_stored_and_the_delivery_says_where() -> None:
    async with Cluster(brokers=3, topics={"t": 2}) as cluster, producing(cluster) as producer:
        records = [ProducerRecord("t", b"%d" % number, partition=number % 2) for number in range(3000)]
        delivery = await producer.send_many("t", records)
        assert delivery.count == 3000
        stored = [StoredRecords(0, 1500)]
        assert await delivery == {TopicPartition("t", 0): stored, TopicPartition("t", 1): stored} == delivery.result()
        assert values(cluster, 1) == [b"%d" % number for number in range(1, 3000, 2)]


async def test_repr_says_how_far_the_delivery_is() -> None:
    async with Cluster(topics={"t": 2}) as cluster, producing(cluster, linger_ms=60_000) as producer:
        delivery = await producer.send_many("t", [ProducerRecord("t", b"v", partition=n % 2) for n in range(4)])
        assert repr(delivery) == "<BatchDelivery of 4 records waiting>"
        await producer.flush()
        assert repr(delivery) == "<BatchDelivery of 4 records stored>"
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        refused = await producer.send_many("t", [b"v", b"v"])
        with pytest.raises(RecordRefused):
            await producer.flush()
        assert repr(refused) == "<BatchDelivery of 2 records failed>"


def test_what_a_delivery_offers_is_safe_to_call_at_any_time() -> None:
    """The producer's own calls must come before the outcome, and count a failure as seen: they are not public."""
    offered = {kind: {name for name in dir(kind) if not name.startswith("_")} for kind in (Delivery, BatchDelivery)}
    assert offered == {Delivery: {"done", "result"}, BatchDelivery: {"count", "done", "failures", "result"}}


async def test_each_key_goes_where_send_would_take_it() -> None:
    async with Cluster(topics={"t": 7}) as cluster, producing(cluster) as producer:
        keys = [b"%d" % number for number in range(200)]
        await (await producer.send_many("t", [ProducerRecord("t", b"many", key) for key in keys]))
        for key in keys:
            await producer.send("t", b"one", key)
        await producer.flush()
        for partition in range(7):
            found = cluster.records("t", partition)
            assert [r.key for r in found if r.value == b"many"] == [r.key for r in found if r.value == b"one"]


@pytest.mark.parametrize(
    "options",
    [
        {"partitioner": lambda topic, key, value, partitions, available: 2},
        {"partitioner": "consistent_random"},
        {"partitioner_ignore_keys": True},
        {"value_serializer": str.encode},
        {"value_serializer": AsyncSerializer(lambda text: asyncio.sleep(0, text.encode()))},
        {"interceptors": [ProducerInterceptor()]},
        {"batch_size": 0},
        {"compression_type": "gzip"},
    ],
    ids=lambda options: str(next(iter(options))),
)
async def test_with_every_option_nothing_is_lost(options: dict[str, Any]) -> None:
    text = "value_serializer" in options
    given = [f"{number}" if text else b"%d" % number for number in range(300)]
    async with Cluster(topics={"t": 3}) as cluster, producing(cluster, **options) as producer:
        delivery = await producer.send_many("t", iter(given))
        found = await delivery
        assert sum(piece.count for pieces in found.values() for piece in pieces) == 300
        stored = await all_values(cluster, 3)
        assert sorted(stored, key=str) == sorted((b"%d" % number for number in range(300)), key=str)


async def test_records_out_of_the_ordinary_keep_their_place() -> None:
    """Some end the fast way: a bytearray, headers in a list, a record with another type of key."""
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        records = [
            b"0",
            bytearray(b"1"),
            None,
            ProducerRecord("t", b"3", headers=[("a", b"b")]),
            ProducerRecord("t", b"4", memoryview(b"key"), timestamp_ms=5),
            b"5",
        ]
        await (await producer.send_many("t", records))
        found = cluster.records("t")
        assert [one.value for one in found] == [b"0", b"1", None, b"3", b"4", b"5"]
        assert found[3].headers == (("a", b"b"),)
        assert (found[4].key, found[4].timestamp) == (b"key", 5)


async def test_an_error_says_how_many_records_were_appended_before() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, max_request_size=1000) as producer:
        with pytest.raises(MessageTooLarge) as refused:
            await producer.send_many("t", [b"0", b"1", bytes(2000), b"3"])
        assert refused.value.appended == 2
        assert "2 records" in refused.value.__notes__[0]
        with pytest.raises(ConfigError, match="one topic"):
            await producer.send_many("t", [ProducerRecord("u", b"")])
        await producer.flush()
        assert values(cluster) == [b"0", b"1"]


async def test_every_error_of_aiokc_says_how_many_records_were_appended_before() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        async with producing(cluster) as producer:
            with pytest.raises(ConfigError, match="one topic") as refused:
                await producer.send_many("t", [b"0", b"1", ProducerRecord("u", b"")])
            assert refused.value.appended == 2

        async with producing(cluster, transactional_id="x") as producer:
            async with producer.transaction():
                pass
            with pytest.raises(UsageError) as outside:
                await producer.send_many("t", [b"4"])
            assert outside.value.appended == 0


@pytest.mark.parametrize("options", [{}, {"value_serializer": bytes}], ids=["bytes", "serialized"])
async def test_what_an_iterator_gave_before_it_raised_is_appended(options: dict[str, Any]) -> None:
    """Nobody else has these records any more."""

    def rows() -> Iterator[bytes]:
        for number in range(702):
            yield b"%d" % number
        raise ConnectionResetError("the database went away")

    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, **options) as producer:
        with pytest.raises(ConnectionResetError) as raised:
            await producer.send_many("t", rows())
        assert "702 records" in raised.value.__notes__[0]
        await producer.flush()
        assert values(cluster) == [b"%d" % number for number in range(702)]


@pytest.mark.parametrize("options", [{}, {"value_serializer": bytes}], ids=["bytes", "serialized"])
async def test_an_iterator_that_asks_a_cancelled_job_fails_as_any_other(options: dict[str, Any]) -> None:
    """Nobody has cancelled the task that sends. It must not end as if somebody had."""
    job = asyncio.ensure_future(asyncio.Event().wait())
    job.cancel()
    await asyncio.wait([job])

    def rows() -> Iterator[bytes]:
        yield b"0"
        yield b"1"
        job.result()

    class Rows:
        def __iter__(self) -> Iterator[bytes]:
            job.result()
            return iter([b"2"])

    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, **options) as producer:
        with pytest.raises(UsageError, match="the iterable of records ended by a CancelledError") as raised:
            await producer.send_many("t", rows())
        assert "2 records" in raised.value.__notes__[0]
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)
        with pytest.raises(UsageError, match="the iterable of records ended by a CancelledError"):
            await producer.send_many("t", Rows())
        await producer.flush()
        assert values(cluster) == [b"0", b"1"]


async def test_what_holds_no_records_is_refused() -> None:
    async def later() -> Any:
        yield b"0"

    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        for given in (b"0", "0", 5, None, later()):
            with pytest.raises(ConfigError, match="give a list of values"):
                await producer.send_many("t", given)  # type: ignore[arg-type]


async def test_it_waits_for_memory_and_gives_up_in_time() -> None:
    hold = asyncio.Event()

    async def stalled(exchange: Any) -> None:
        await hold.wait()

    async with Cluster(topics={"t": 1}) as cluster:
        async with producing(cluster, buffer_memory=20_000, batch_size=1000) as producer:
            await producer.send_and_wait("t", b"")
            cluster.intercept(ApiKey.PRODUCE, stalled)
            with pytest.raises(BufferFull) as full:
                await producer.send_many("t", [bytes(100)] * 1000, timeout_ms=20)
            assert 20 < full.value.appended < 200
            assert producer._runtime.accumulator.used <= 20_000
            sending = asyncio.ensure_future(producer.send_many("t", [b"%d" % number for number in range(1000)]))
            await asyncio.sleep(0)
            hold.set()
            await (await sending)
        assert [value for value in values(cluster) if value and len(value) < 100] == [b"%d" % n for n in range(1000)]


async def test_failures_are_raised_once_all_is_known() -> None:
    """The first partition of the call fails. The second one's answer is held back, and so is the failure."""
    known, held = asyncio.Event(), asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        held.set()
        await known.wait()
        await exchange.go_on()

    async with Cluster(brokers=2, topics={"t": 2}) as cluster, producing(cluster) as producer:
        failing, holding = cluster.leader("t", 0), cluster.leader("t", 1)
        assert failing != holding
        await producer.partitions_for("t")
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, where=lambda one: one.broker == failing)
        cluster.intercept(ApiKey.PRODUCE, hold, where=lambda one: one.broker == holding)
        records = [ProducerRecord("t", b"", partition=number % 2) for number in range(10)]
        delivery = await producer.send_many("t", records)
        awaited = asyncio.ensure_future(_awaited(delivery))
        try:
            async with asyncio.timeout(20):
                await held.wait()
                with pytest.raises(RecordRefused):  # it comes behind those of the call
                    await producer.send_and_wait("t", b"", partition=0)
            for _ in range(5):  # who is told of the failure could go on by now
                await asyncio.sleep(0)
            assert not awaited.done()
            assert list(delivery.failures()) == [TopicPartition("t", 0)]
            assert not delivery.done()
            with pytest.raises(asyncio.InvalidStateError, match="not all records are acknowledged yet"):
                delivery.result()
        finally:
            known.set()
        with pytest.raises(RecordRefused) as refused:
            await awaited
        assert (refused.value.code, refused.value.partition) == (ErrorCode.INVALID_TIMESTAMP, 0)
        assert list(delivery.failures()) == [TopicPartition("t", 0)]
        assert len(values(cluster, 1)) == 5
        await producer.flush()  # it was seen


async def _awaited(delivery: BatchDelivery) -> None:
    await delivery


async def test_what_nobody_awaits_is_raised_by_flush() -> None:
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.partitions_for("t")
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_TIMESTAMP, times=1)
        await producer.send_many("t", [b"0", b"1"])
        with pytest.raises(RecordRefused):
            await producer.flush()


@pytest.mark.parametrize("gives_up", [False, True])
async def test_who_awaits_is_told_of_every_failure(gives_up: bool, caplog: pytest.LogCaptureFixture) -> None:
    """All batches fail while the first one is waited for. One of two waiters may give up before."""
    async with Cluster(topics={"t": 3}) as cluster, producing(cluster, linger_ms=20) as producer:
        await producer.partitions_for("t")
        cluster.intercept(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
        records = [ProducerRecord("t", b"v", partition=number % 3) for number in range(30)]
        delivery = await producer.send_many("t", records)

        async def awaited() -> None:
            await delivery

        waiting = [asyncio.ensure_future(awaited()) for _ in range(2)]
        await asyncio.sleep(0)
        for one in waiting[: 2 if gives_up else 1]:
            one.cancel()
        if gives_up:
            with pytest.raises(RecordRefused):
                await producer.flush()
        else:
            await producer.flush()
            with pytest.raises(RecordRefused):
                await waiting[1]
        assert ("nothing awaits" in caplog.text) == gives_up


async def test_it_lets_other_tasks_run() -> None:
    """No turn of the loop is much longer than 2 ms, however many records are given."""
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster) as producer:
        await producer.partitions_for("t")
        sending = asyncio.ensure_future(producer.send_many("t", [b"value"] * 300_000))
        turns = 0
        while not sending.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10
        assert (await sending).count == 300_000


def test_a_producer_of_strings_is_typed() -> None:
    producer: Producer[bytes | None, str] = Producer(value_serializer=str.encode)
    assert producer.config.client_id is not None


@pytest.mark.parametrize("partitions", [1, 50])
@pytest.mark.parametrize("has_keys", [True, False])
async def test_what_is_simple_never_goes_the_way_of_a_single_send(
    partitions: int, has_keys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for one record after each turn of the loop: here is only one turn."""
    looked_at = 0
    send = Appending.send

    async def counted(self: Appending, record: Any, **how: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return await send(self, record, **how)

    monkeypatch.setattr(Appending, "send", counted)
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", 60.0)
    async with Cluster(topics={"t": partitions}) as cluster, producing(cluster, batch_size=4_000) as producer:
        given = [b"%d" % number for number in range(10_000)]
        records = [ProducerRecord("t", value, value) for value in given] if has_keys else given
        delivery = await producer.send_many("t", [*records, ProducerRecord("t", b"", headers=[("h", None)])])
        await delivery
        assert looked_at == 1
        stored = await all_values(cluster, partitions)
        assert sorted(stored, key=str) == sorted([*given, b""], key=str)


@pytest.mark.parametrize("slow", ["the iterable", "the serializer"])
def test_others_run_while_the_records_are_made(slow: str) -> None:
    """A parser or a serializer may take a while for each record."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        took, rounds, made = 0.0, 0, dict[int, int]()

        def takes_a_while() -> None:
            nonlocal took
            took += 0.000_2
            made[rounds] = made.get(rounds, 0) + 1

        def serialize(value: bytes) -> bytes:
            takes_a_while()
            return value

        def given() -> Iterator[bytes]:
            for _ in range(500):
                takes_a_while()
                yield b"value"

        async def count() -> None:
            nonlocal rounds
            while True:
                await asyncio.sleep(0)
                rounds += 1

        options: dict[str, Any] = {"value_serializer": serialize} if slow == "the serializer" else {}
        async with producing(cluster, **options) as producer:
            await producer.partitions_for("t")
            counting = asyncio.create_task(count())
            time = loop.time
            with patch.object(loop, "time", lambda: time() + took):
                delivery = await producer.send_many("t", [b"value"] * 500 if options else given())
            counting.cancel()
            assert delivery.count == sum(made.values()) == 500
            assert max(made.values()) <= 16, "the loop is looked at after so many"

    virtually(story, topics={"t": 1})


async def test_no_batch_is_left_without_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker would refuse it."""

    def no_memory(appenders: Any, *call: Any) -> tuple[int, int]:
        if any(one is not None and not one.count for one in appenders):
            raise MemoryError
        return append_records(appenders, *call)

    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, linger_ms=1000) as producer:
        with monkeypatch.context() as patched:
            patched.setattr(sending_many, "append_records", no_memory)
            patched.setattr(time_slice, "SLICE_SECONDS", 60.0)  # when it is over, a record goes the ordinary way
            with pytest.raises(MemoryError):
                await producer.send_many("t", [b"0"])
            assert producer._runtime.accumulator.queues.unanswered == 0
        assert (await producer.send_many("t", [b"1"])).count == 1
        await producer.flush()
        assert values(cluster) == [b"1"]


class RunsOut:
    """Finds no memory behind two records of the first call that appends some. ``notes``: that call says where to."""

    def __init__(self, *, notes: bool) -> None:
        self.notes, self.has_failed = notes, False

    def __call__(self, *call: Any) -> tuple[int, int]:
        if self.has_failed:
            return append_records(*call)
        given = list(call)
        start, stop = given[3:5]
        given[4] = min(start + 2, stop)
        if not self.notes:
            given[-1] = []
        at, room = append_records(*given)
        if at > start:
            self.has_failed = True
            raise MemoryError
        return at, room


@pytest.mark.parametrize("notes", [True, False])
@pytest.mark.parametrize("begins", [False, True], ids=["an open batch", "a new batch"])
def test_what_is_appended_before_there_is_no_memory_belongs_to_its_call(
    notes: bool, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends the rest again, as the note says, stores nothing twice; and the next call has its own records only."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=30_000) as producer:
            await producer.partitions_for("t")
            if not begins:
                await producer.send_many("t", [b"0"])
            with monkeypatch.context() as patched:
                patched.setattr(sending_many, "append_records", RunsOut(notes=notes))
                with pytest.raises(MemoryError) as raised:
                    await producer.send_many("t", [b"1", b"2", b"3"])
            assert raised.value.__notes__ == ["aiokc: 2 records of this send_many() were appended before this one"]
            again = await producer.send_many("t", [b"3"])
            assert again.count == 1
            await producer.flush()
            assert values(cluster) == [b"0", b"1", b"2", b"3"][begins:]
            assert await again == {TopicPartition("t", 0): [StoredRecords(2 if begins else 3, 1)]}

    virtually(story, topics={"t": 1})


def test_what_is_appended_before_there_is_no_memory_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no other record comes, and nobody flushes."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=0) as producer:
            await producer.partitions_for("t")
            with monkeypatch.context() as patched:
                patched.setattr(sending_many, "append_records", RunsOut(notes=True))
                with pytest.raises(MemoryError):
                    await producer.send_many("t", [b"1", b"2", b"3"])
            await asyncio.sleep(1)
            assert values(cluster) == [b"1", b"2"]

    virtually(story, topics={"t": 1})


async def test_serializers_are_asked_once_for_each_record_and_in_order() -> None:
    asked: list[object] = []

    def serialize(number: int) -> bytes:
        asked.append(number)
        if number == 1_234:
            raise ValueError("not this one")
        return b"%d" % number

    async with Cluster(topics={"t": 2}) as cluster:
        async with producing(cluster, value_serializer=serialize, batch_size=500, buffer_memory=5_000) as producer:
            records = [
                ProducerRecord("t", number, partition=1, headers=(("h", None),)) if number % 10 == 0 else number
                for number in range(2_000)
            ]
            with pytest.raises(SerializationFailed) as caught:
                await producer.send_many("t", records)
            assert caught.value.appended == 1_234
            assert asked == list(range(1_235))
            await producer.flush()
        assert sorted(int(value or b"") for value in await all_values(cluster, 2)) == list(range(1_234))
        stored = [one for one in cluster.records("t", 1) if one.headers]
        assert [one.value for one in stored] == [b"%d" % number for number in range(0, 1_234, 10)]


@pytest.mark.parametrize("serializer", [None, bytes], ids=["no-serializer", "serializer"])
async def test_headers_that_raise_do_not_take_the_records_before_with_them(serializer: Any) -> None:
    def failing() -> Iterator[tuple[str, bytes]]:
        yield "name", b""
        raise ZeroDivisionError

    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, value_serializer=serializer) as producer:
        last = ProducerRecord("t", b"4", headers=failing())
        with pytest.raises(ZeroDivisionError) as raised:
            await producer.send_many("t", [b"1", b"2", b"3", last])
        assert raised.value.__notes__ == ["aiokc: 3 records of this send_many() were appended before this one"]
        await producer.flush()
        assert values(cluster) == [b"1", b"2", b"3"]
