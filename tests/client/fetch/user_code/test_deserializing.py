"""Deserializers: what they are given, errors at their record's place, and calls that wait for a slow deserializer."""

from __future__ import annotations

import asyncio
import json
import pickle
import sysconfig
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow
import pytest

from aiokc import AsyncDeserializer, Consumer, Headers, TopicPartition
from aiokc.client.aio import time_slice
from aiokc.errors import ConfigError, ConsumerClosed, DeserializationFailed, UsageError
from aiokc.records import NATIVE, Codec, NewRecord
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop

from ...virtually import virtually

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NUMBERS = tuple(b"%d" % number for number in range(10))


def play(story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    virtually(story, brokers=1)


def consumer(cluster: Cluster, *topics: str, **options: Any) -> Consumer[Any, Any]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return Consumer(*topics, bootstrap_servers=cluster.bootstrap, **settings)


def values(batch: Mapping[TopicPartition, Sequence[Any]]) -> dict[TopicPartition, list[Any]]:
    return {tp: [record.value for record in records] for tp, records in batch.items()}


class Noted:
    """A deserializer object, shaped like Kafka's own. It notes its arguments."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Headers, bytes]] = []

    def deserialize(self, topic: str, headers: Headers, data: bytes) -> str:
        self.told.append((topic, headers, data))
        return data.decode()


class NotedLater(Noted):
    async def deserialize(self, topic: str, headers: Headers, data: bytes) -> str:  # type: ignore[override]
        await asyncio.sleep(0.01)
        return super().deserialize(topic, headers, data)


class Gate:
    """An async deserializer that waits until it is opened. ``waiting`` is the number of calls that wait."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.entered = asyncio.Event()
        self.calls = 0
        self.cancelled = 0

    async def __call__(self, data: bytes) -> int:
        self.calls += 1
        self.entered.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return int(data)


# What they are given


def test_a_function_of_the_bytes() -> None:
    async def story(cluster: Cluster) -> None:
        given = NewRecord(b'{"a": 1}', key=b"k", headers=(("h", b"1"),), timestamp=1_700_000_000_000)
        cluster.append("t", given, b"[]")
        (raw, _) = cluster.records("t")
        async with consumer(cluster, "t", value_deserializer=json.loads) as reader:
            first, second = (await reader.getmany())[T0]
        assert (first.value, second.value) == ({"a": 1}, [])
        same = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "headers", "leader_epoch")
        assert [getattr(first, name) for name in same] == [getattr(raw, name) for name in same]

    play(story)


@pytest.mark.parametrize("kind", [Noted, NotedLater])
@pytest.mark.parametrize("wrap", [AsyncDeserializer, lambda deserializer: deserializer])
def test_an_object_is_told_topic_and_headers(kind: type[Noted], wrap: Callable[[Any], Any]) -> None:
    async def story(cluster: Cluster) -> None:
        keys, contents = kind(), kind()
        cluster.append("t", NewRecord(b"v", key=b"k", headers=(("h", b"1"), ("h", None))))
        async with consumer(cluster, "t", key_deserializer=wrap(keys), value_deserializer=wrap(contents)) as reader:
            record = await reader.getone()
        assert (record.key, record.value) == ("k", "v")
        assert keys.told == [("t", (("h", b"1"), ("h", None)), b"k")]
        assert contents.told == [("t", (("h", b"1"), ("h", None)), b"v")]

    play(story)


@pytest.mark.parametrize("kind", [Noted, NotedLater])
def test_null_stays_none_and_is_given_to_no_deserializer(kind: type[Noted]) -> None:
    """A tombstone has no value, so that json.loads needs no wrapper for it; empty bytes are a value."""

    async def story(cluster: Cluster) -> None:
        noted = kind()
        cluster.append("t", NewRecord(None, key=b"k"), NewRecord(b"", key=None))
        async with consumer(cluster, "t", key_deserializer=noted, value_deserializer=noted) as reader:
            records = (await reader.getmany())[T0]
        assert [(record.key, record.value) for record in records] == [("k", None), (None, "")]
        assert [data for _, _, data in noted.told] == [b"k", b""]

    play(story)


def test_a_function_that_returns_an_awaitable_is_awaited() -> None:
    async def story(cluster: Cluster) -> None:
        async def later(data: bytes) -> int:
            await asyncio.sleep(0.01)
            return int(data)

        cluster.append("t", b"1", b"2")
        for deserializer in (later, lambda data: later(data), lambda data: asyncio.ensure_future(later(data))):
            async with consumer(cluster, "t", value_deserializer=deserializer) as reader:
                assert values(await reader.getmany()) == {T0: [1, 2]}

    play(story)


def test_what_is_no_deserializer() -> None:
    for wrong in (3, "utf-8", b""):
        with pytest.raises(ConfigError, match="value_deserializer must be a function of the bytes"):
            Consumer(value_deserializer=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="key_deserializer is the class Noted: give an instance"):
        Consumer(key_deserializer=Noted)  # type: ignore[arg-type]


# Errors


def test_an_error_is_held_at_its_record() -> None:
    """The records before it come first, then each call raises the error until a seek past it; commits go along with
    both.
    """

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"1", b"2", NewRecord(b"secret", key=b"k", headers=(("h", b"1"),), timestamp=5), b"4")
        async with consumer(cluster, group_id="g", value_deserializer=int) as reader:
            reader.assign([T0])
            assert values(await reader.getmany()) == {T0: [1, 2]}
            await reader.commit()
            assert cluster.committed("g") == {T0: 2}
            for _ in range(3):
                with pytest.raises(DeserializationFailed) as caught:
                    await reader.getmany()
                with pytest.raises(DeserializationFailed):
                    await reader.getone()
                assert await reader.position(T0) == 2
                await reader.commit()
                assert cluster.committed("g") == {T0: 2}
            error = caught.value
            assert (error.topic, error.partition, error.offset, error.origin) == ("t", 0, 2, "value")
            assert (error.record.key, error.record.value, error.record.headers) == (b"k", b"secret", (("h", b"1"),))
            assert error.record.timestamp == 5
            assert isinstance(error.__cause__, ValueError)
            assert str(error) == (
                "t-0 at offset 2: value_deserializer raised ValueError; "
                "seek() to 3 to skip the record, which is in .record"
            )
            assert "secret" not in str(error) + repr(error)
            copied = pickle.loads(pickle.dumps(error))
            assert (str(copied), copied.record, copied.origin) == (str(error), error.record, "value")
            reader.seek(TopicPartition(error.topic, error.partition), error.offset + 1)
            await reader.commit()
            assert cluster.committed("g") == {T0: 3}
            assert values(await reader.getmany()) == {T0: [4]}

    play(story)


def test_the_iterator_raises_it_and_goes_on_behind_it() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"1", b"poison", b"poison", b"4")
        got: list[Any] = []
        async with consumer(cluster, "t", key_deserializer=int, value_deserializer=int) as reader:
            while len(got) < 2:
                try:
                    async for record in reader:
                        got.append(record.value)
                        if len(got) == 2:
                            break
                except DeserializationFailed as error:
                    reader.seek(T0, error.offset + 1)
        assert got == [1, 4]

    play(story)


def test_a_failure_of_the_moment_needs_no_seek() -> None:
    """Each call tries the record again: perhaps the schema registry was away for a moment."""

    async def story(cluster: Cluster) -> None:
        away = True

        async def look_up(data: bytes) -> int:
            if away and data == b"2":
                raise ConnectionError("the registry does not answer")
            return int(data)

        cluster.append("t", b"1", b"2", b"3")
        async with consumer(cluster, "t", value_deserializer=look_up) as reader:
            assert values(await reader.getmany()) == {T0: [1]}
            for _ in range(2):
                with pytest.raises(DeserializationFailed, match="raised ConnectionError"):
                    await reader.getmany()
            away = False
            assert values(await reader.getmany()) == {T0: [2, 3]}

    play(story)


def test_other_partitions_are_read_between_two_attempts() -> None:
    """The error is not put off for as long as others have records, nor do they wait until it is repaired."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"poison", b"2")
        cluster.append("t", *NUMBERS, partition=1)
        async with consumer(cluster, value_deserializer=int) as reader:
            reader.assign([T0, T1])
            await reader.getone(T0)
            assert values(await reader.getmany(T1, max_records=2)) == {T1: [0, 1]}
            seen: list[Any] = []
            for _ in range(6):
                try:
                    seen.append(values(await reader.getmany(max_records=2)))
                except DeserializationFailed as error:
                    seen.append(error.offset)
            assert seen == [1, {T1: [2, 3]}, 1, {T1: [4, 5]}, 1, {T1: [6, 7]}]
            reader.pause(T0)
            assert values(await reader.getmany()) == {T1: [8, 9]}
            assert not await reader.getmany(timeout_ms=100)
            reader.resume(T0)
            with pytest.raises(DeserializationFailed):
                await reader.getmany(timeout_ms=100)
            reader.seek(T0, 2)
            assert values(await reader.getmany()) == {T0: [2]}

    play(story)


def test_other_partitions_are_fetched_while_the_buffer_is_full_of_what_it_holds_back() -> None:
    """No call gets as far as to wait: each raises the error, until the others' records are there."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"poison")
        for _ in range(100):
            cluster.append("t", b"2" * 4000)
        async with consumer(cluster, value_deserializer=int, fetch_buffer_bytes=128 << 10) as reader:
            reader.assign([T0, T1])
            assert values(await reader.getmany()) == {T0: [0]}
            refused, seen = 0, 0
            for _ in range(20):
                try:
                    seen += sum(map(len, (await reader.getmany(timeout_ms=1000)).values()))
                except DeserializationFailed:
                    refused += 1
                if refused == 5:
                    cluster.append("t", *NUMBERS, partition=1)
                await asyncio.sleep(1)
            assert seen == len(NUMBERS)
            assert refused == 19, "what comes of the others is handed out between two attempts"

    play(story)


def test_other_partitions_are_read_while_its_batch_takes_all_memory() -> None:
    """Open batches come first where the buffer is over its budget, but not one that nothing can be read of."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"poison", *[bytes(10_000)] * 20, codec=Codec.GZIP)
        for number in NUMBERS:
            cluster.append("t", number, partition=1)
        options = {"value_deserializer": int, "fetch_buffer_bytes": 100_000, "max_poll_records": 3}
        async with consumer(cluster, **options) as reader:
            reader.assign([T0, T1])
            assert values(await reader.getmany(T0)) == {T0: [0]}
            seen: list[int] = []
            for _ in range(8):
                try:
                    seen += values(await reader.getmany(timeout_ms=1000))[T1]
                except DeserializationFailed:
                    assert reader._runtime.collector.buffer.is_over_budget
            assert seen == list(range(10))

    play(story)


def test_the_call_after_the_records_before_it_raises_it() -> None:
    """Even if other partitions have more, and the records before it came together with those of others."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1", b"poison")
        cluster.append("t", *NUMBERS, partition=1)
        async with consumer(cluster, value_deserializer=int) as reader:
            reader.assign([T0, T1])
            assert values(await reader.getmany(T1, max_records=1)) == {T1: [0]}
            assert values(await reader.getmany(max_records=4)) == {T0: [0, 1], T1: [1]}
            with pytest.raises(DeserializationFailed):
                await reader.getmany(max_records=4)
            assert values(await reader.getmany(max_records=4)) == {T1: [2, 3, 4, 5]}

    play(story)


def test_a_cancelled_error_without_a_cancellation_is_an_error_of_the_deserializer() -> None:
    async def story(cluster: Cluster) -> None:
        async def cancelled(data: bytes) -> None:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

        cluster.append("t", b"1")
        async with consumer(cluster, "t", value_deserializer=cancelled) as reader:
            with pytest.raises(DeserializationFailed, match="raised CancelledError"):
                await reader.getmany()

    play(story)


@pytest.mark.parametrize("raised", [StopAsyncIteration(), StopIteration(), GeneratorExit()], ids=repr)
@pytest.mark.parametrize("is_async", [True, False])
def test_what_would_end_an_iteration_in_silence_is_an_error_of_the_deserializer(
    raised: BaseException, is_async: bool
) -> None:
    def failing(data: bytes) -> Any:
        raise raised

    async def failing_later(data: bytes) -> None:
        await asyncio.sleep(1)
        raise raised

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"1")
        async with consumer(cluster, "t", value_deserializer=failing_later if is_async else failing) as reader:
            with pytest.raises(DeserializationFailed):
                [record async for record in reader]

    play(story)


# Time


def test_one_that_never_ends_is_cancelled() -> None:
    async def story(cluster: Cluster) -> None:
        gate = Gate()
        loop = asyncio.get_running_loop()
        cluster.append("t", b"1", b"2")
        async with consumer(cluster, "t", value_deserializer=gate, default_api_timeout_ms=7_000) as reader:
            with pytest.raises(DeserializationFailed, match=r"was not done after 7 s \(default_api_timeout_ms\)"):
                await reader.getmany()
            assert gate.cancelled == 1
            began = loop.time()
            with pytest.raises(DeserializationFailed):
                await reader.getmany(timeout_ms=0)
            assert 7 <= loop.time() - began < 7.1
            gate.open.set()
            assert values(await reader.getmany()) == {T0: [1, 2]}

    play(story)


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_ends_just_when_its_time_is_over_is_the_one_that_is_blamed(fails: bool) -> None:
    """Not the record behind it, for which nobody has waited yet."""

    async def story(cluster: Cluster) -> None:
        def ends(result: asyncio.Future[int]) -> None:
            if not result.done():
                result.set_exception(ValueError()) if fails else result.set_result(1)

        def deserialize(data: bytes) -> asyncio.Future[int]:
            loop = asyncio.get_running_loop()
            result: asyncio.Future[int] = loop.create_future()
            loop.call_later(7 if data == b"1" else 0, ends, result)
            return result

        cluster.append("t", b"1", b"2")
        async with consumer(cluster, "t", value_deserializer=deserialize, default_api_timeout_ms=7_000) as reader:
            with pytest.raises(DeserializationFailed, match=r"was not done after 7 s") as caught:
                await reader.getmany()
            assert caught.value.offset == 0
            assert reader._runtime.fetcher.counters.undecodable == 1

    play(story)


def test_waiting_for_it_counts_as_polling() -> None:
    """Given max_poll_interval_ms of 2 s, and a deserializer that takes 1 s for each of five records, then the member
    stays in its generation.
    """

    async def story(cluster: Cluster) -> None:
        async def slow(data: bytes) -> int:
            await asyncio.sleep(1)
            return int(data)

        cluster.append("t", *NUMBERS[:5])
        options = {"group_id": "g", "max_poll_interval_ms": 2_000, "session_timeout_ms": 6_000}
        async with consumer(cluster, "t", value_deserializer=slow, **options) as reader:
            assert values(await reader.getmany()) == {T0: [0, 1, 2, 3, 4]}
            assert reader.health().generation == 1
            await reader.commit()

    play(story)


def test_past_its_time_a_call_returns_what_is_done() -> None:
    async def story(cluster: Cluster) -> None:
        calls = 0

        async def slow(data: bytes) -> int:
            nonlocal calls
            calls += 1
            await asyncio.sleep(1)
            return int(data)

        cluster.append("t", *NUMBERS)
        async with consumer(cluster, value_deserializer=slow) as reader:
            reader.assign([T0])
            assert values(await reader.getmany(max_records=1)) == {T0: [0]}
            assert values(await reader.getmany(timeout_ms=2_500)) == {T0: [1, 2, 3]}
            assert values(await reader.getmany(timeout_ms=0)) == {T0: [4]}
            assert values(await reader.getmany()) == {T0: [5, 6, 7, 8, 9]}
            assert calls == 10

    play(story)


def test_other_tasks_run_between_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a deserializer that takes longer than a time slice, then other tasks run between any two records."""
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", -1.0)

    async def story(cluster: Cluster) -> None:
        turns = 0
        seen: list[int] = []

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def note(data: bytes) -> int:
            seen.append(turns)
            return int(data)

        cluster.append("t", *NUMBERS)
        async with consumer(cluster, "t", value_deserializer=note) as reader:
            counting = asyncio.ensure_future(count_turns())
            assert values(await reader.getmany()) == {T0: [*range(10)]}
            counting.cancel()
        assert all(later > earlier for earlier, later in pairwise(seen))

    play(story)


@pytest.mark.skipif(
    not NATIVE or bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="all others are made when they are decoded"
)
def test_records_are_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make the objects of all records of a long answer in one step would hold the loop, before any other task."""
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", -1.0)

    async def story(cluster: Cluster) -> None:
        made: list[bool] = []

        def look(data: bytes) -> int:
            buffer = reader._runtime.fetcher.collector.buffer.of(T0)
            assert buffer is not None
            made.append(any(isinstance(part, list) for part in buffer.ready.parts))
            return int(data)

        cluster.append("t", *NUMBERS)
        async with consumer(cluster, "t", value_deserializer=look) as reader:
            assert values(await reader.getmany()) == {T0: [*range(10)]}
        assert made == [False] * 10

    play(story)


def test_partitions_share_one_time_slice() -> None:
    """Given a deserializer that takes a quarter of a time slice, when one call has a record of each of many partitions,
    then other tasks run after every few partitions.
    """

    async def story(cluster: Cluster) -> None:
        loop, turns = asyncio.get_running_loop(), 0
        assert isinstance(loop, VirtualLoop)
        seen: list[int] = []

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def works(data: bytes) -> int:
            loop._now += time_slice.SLICE_SECONDS / 4
            seen.append(turns)
            return int(data)

        for partition in range(20):
            cluster.append("t", b"1", partition=partition)
        async with consumer(cluster, "t", value_deserializer=works) as reader:
            counting = asyncio.ensure_future(count_turns())
            assert len(await reader.getmany()) == 20
            counting.cancel()
        assert max(Counter(seen).values()) <= 5

    virtually(story, topics={"t": 20}, brokers=1)


def test_past_its_time_a_call_returns_what_is_done_of_many_partitions() -> None:
    """Given a record of each of twenty partitions, and a deserializer that takes a quarter of a time slice, then a call
    without time returns after one time slice.
    """

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        def works(data: bytes) -> int:
            loop._now += time_slice.SLICE_SECONDS / 4
            return int(data)

        for partition in range(20):
            cluster.append("t", b"1", partition=partition)
        async with consumer(cluster, "t", value_deserializer=works) as reader:
            await asyncio.sleep(1)  # of virtual time, after which all have been fetched
            began = loop.time()
            got = await reader.getmany(timeout_ms=0)
            assert 1 <= len(got) <= 5
            assert loop.time() - began < 1.5 * time_slice.SLICE_SECONDS

    virtually(story, topics={"t": 20}, brokers=1)


# What happens meanwhile


def test_a_cancelled_call_loses_and_repeats_nothing() -> None:
    """Given ten records of a second each, and calls of 1.5 s, then the tenth has gone on from the nine before it."""

    async def story(cluster: Cluster) -> None:
        calls: list[bytes] = []

        async def slow(data: bytes) -> int:
            calls.append(data)
            await asyncio.sleep(1)
            return int(data)

        cluster.append("t", *NUMBERS)
        async with consumer(cluster, group_id="g", value_deserializer=slow) as reader:
            reader.assign([T0])
            await reader.position(T0)
            for _ in range(9):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.getmany(), 1.5)
                await reader.commit()
                assert await reader.position(T0) == 0
            assert cluster.committed("g") == {T0: 0}
            assert values(await reader.getmany()) == {T0: [*range(10)]}
        assert sorted(set(calls)) == [*NUMBERS]
        assert len(calls) <= 19  # the deserializer of the cancelled call is asked again, and no other

    play(story)


def test_a_seek_meanwhile_drops_the_results() -> None:
    async def story(cluster: Cluster) -> None:
        gate = Gate()
        cluster.append("t", *NUMBERS)
        async with consumer(cluster, value_deserializer=gate) as reader:
            reader.assign([T0])
            polling = asyncio.ensure_future(reader.getmany())
            await gate.entered.wait()
            reader.seek(T0, 7)
            gate.open.set()
            assert values(await polling) == {T0: [7, 8, 9]}
            assert gate.calls == 4

    play(story)


def test_an_error_of_a_record_is_dropped_after_a_seek_away_from_it() -> None:
    async def story(cluster: Cluster) -> None:
        gate = Gate()
        cluster.append("t", b"poison", b"1")
        async with consumer(cluster, value_deserializer=gate) as reader:
            reader.assign([T0])
            polling = asyncio.ensure_future(reader.getmany())
            await gate.entered.wait()
            reader.seek(T0, 1)
            gate.open.set()
            assert values(await polling) == {T0: [1]}

    play(story)


def test_a_pause_meanwhile_keeps_them() -> None:
    async def story(cluster: Cluster) -> None:
        gate = Gate()
        cluster.append("t", *NUMBERS[:2])
        cluster.append("t", b"5", partition=1)
        async with consumer(cluster, value_deserializer=gate) as reader:
            reader.assign([T0])
            polling = asyncio.ensure_future(reader.getmany(timeout_ms=1_000))
            await gate.entered.wait()
            reader.pause(T0)
            gate.open.set()
            assert not await polling
            reader.resume(T0)
            assert values(await reader.getmany()) == {T0: [0, 1]}
            assert gate.calls == 2

    play(story)


def test_stop_waits_for_no_deserializer() -> None:
    async def story(cluster: Cluster) -> None:
        gate = Gate()
        cluster.append("t", *NUMBERS)
        reader = consumer(cluster, "t", value_deserializer=gate, group_id="g")
        await reader.start()
        polling = asyncio.ensure_future(reader.getmany())
        await gate.entered.wait()
        began = asyncio.get_running_loop().time()
        await reader.stop()
        with pytest.raises(ConsumerClosed):
            await polling
        assert asyncio.get_running_loop().time() - began < 1
        assert gate.cancelled == 1
        assert cluster.committed("g") == {}

    play(story)


def test_what_is_done_when_stop_begins_is_not_handed_out() -> None:
    """stop() commits what is processed, and leaves the group: the next owner of the partition hands out the rest."""

    async def story(cluster: Cluster) -> None:
        gate = Gate()
        cluster.append("t", *NUMBERS)

        def second_waits(data: bytes) -> object:
            return 0 if data == b"0" else gate(data)

        reader = consumer(cluster, "t", value_deserializer=second_waits, group_id="g", enable_auto_commit=True)
        await reader.start()
        polling = asyncio.ensure_future(reader.getmany())
        await gate.entered.wait()
        stopping = asyncio.ensure_future(reader.stop())
        with pytest.raises(ConsumerClosed, match="nothing more is handed out"):
            await polling
        await stopping
        assert cluster.committed("g") == {T0: 0, T1: 0}

    play(story)


def test_a_partition_that_is_taken_away_meanwhile_is_said_to_be_gone() -> None:
    async def story(cluster: Cluster) -> None:
        gate = Gate()
        cluster.append("t", *NUMBERS)
        async with consumer(cluster, value_deserializer=gate) as reader:
            reader.assign([T0])
            await asyncio.sleep(1)  # the records have come
            polling = asyncio.ensure_future(reader.getmany(T0, timeout_ms=0))
            await gate.entered.wait()
            reader.assign([T1])
            gate.open.set()
            with pytest.raises(UsageError, match="t-0 is not assigned"):
                await polling

    play(story)


def test_a_partition_that_is_revoked_meanwhile_is_its_new_owners() -> None:
    async def story(cluster: Cluster) -> None:
        gate = Gate()
        cluster.append("t", *NUMBERS)
        cluster.append("t", *NUMBERS, partition=1)
        options = {"group_id": "g", "heartbeat_interval_ms": 100, "partition_assignment_strategy": ["range"]}
        async with consumer(cluster, "t", value_deserializer=gate, **options) as first:
            polling = asyncio.ensure_future(first.getmany())
            await gate.entered.wait()
            async with consumer(cluster, "t", value_deserializer=int, **options) as second:
                theirs = await second.getmany()  # the first member's wait does not hold up the group
                gate.open.set()
                mine = await polling
            assert len(theirs) == len(mine) == 1
            assert {**values(theirs), **values(mine)} == {T0: [*range(10)], T1: [*range(10)]}

    play(story)


def test_columns_alternate_with_records() -> None:
    """Columns hold bytes, and so records that were deserialized ahead are in them, too, and one that cannot be."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1", b"poison", b"3", b"4")
        async with consumer(cluster, value_deserializer=int) as reader:
            reader.assign([T0])
            assert (await reader.getone()).value == 0
            columns = await reader.getmany_columns(columns=["offset", "value"], max_records=1)
            assert pyarrow.record_batch(columns).to_pydict() == {"offset": [1], "value": [b"1"]}
            with pytest.raises(DeserializationFailed):
                await reader.getmany()
            columns = await reader.getmany_columns(columns=["value"], max_records=2)
            assert pyarrow.record_batch(columns).to_pydict() == {"value": [b"poison", b"3"]}
            assert values(await reader.getmany()) == {T0: [4]}
            assert await reader.position(T0) == 5

    play(story)


def test_records_that_a_cancelled_call_has_deserialized_come_once_whatever_the_next_calls_ask_for() -> None:
    """Columns take the record that was ready; a call for records goes on behind it."""
    opened = asyncio.Event()

    async def number(data: bytes) -> int:
        if data == b"1":
            await opened.wait()
        return int(data)

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1", b"2")
        async with consumer(cluster, value_deserializer=number) as reader:
            reader.assign([T0])
            call = asyncio.create_task(reader.getmany())
            await asyncio.sleep(1)
            call.cancel()
            await asyncio.wait([call])
            columns = await reader.getmany_columns(columns=["offset", "value"], max_records=1)
            assert pyarrow.record_batch(columns).to_pydict() == {"offset": [0], "value": [b"0"]}
            opened.set()
            assert values(await reader.getmany()) == {T0: [1, 2]}
            assert await reader.position(T0) == 3

    play(story)


def test_the_raw_consumer_knows_nothing_of_all_this() -> None:
    with_none = Consumer(key_deserializer=None, value_deserializer=None)
    assert with_none._runtime.deserializing is None
