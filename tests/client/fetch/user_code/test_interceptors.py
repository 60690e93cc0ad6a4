"""Interceptors: what they see and change, and that nothing they do changes positions, commits or anyone's calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from aiokc import (
    Consumer,
    ConsumerConfig,
    ConsumerInterceptor,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from aiokc.error_codes import ErrorCode
from aiokc.errors import CommitFailed, ConfigError, NoBrokersAvailable
from aiokc.testing import ApiKey, Cluster

from ...virtually import virtually

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NUMBERS = tuple(b"%d" % number for number in range(10))


def play(story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    virtually(story, brokers=1)


def consumer(cluster: Cluster, *interceptors: ConsumerInterceptor, **options: Any) -> Consumer[Any, Any]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "group_id": "g", **options}
    return Consumer(bootstrap_servers=cluster.bootstrap, interceptors=interceptors, **settings)


def values(batch: Mapping[TopicPartition, Any]) -> dict[TopicPartition, list[Any]]:
    return {tp: [record.value for record in records] for tp, records in batch.items()}


class Noted(ConsumerInterceptor):
    """Notes what it is told, under its name, in a log that it may share with others."""

    def __init__(self, name: str = "", log: list[tuple[Any, ...]] | None = None) -> None:
        self.name = name
        self.log: list[tuple[Any, ...]] = [] if log is None else log

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        self.log.append((self.name, "consume", values(records)))
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.log.append((self.name, "commit", {tp: offset.offset for tp, offset in offsets.items()}))

    def close(self) -> None:
        self.log.append((self.name, "close"))

    def of(self, what: str) -> list[Any]:
        return [event[2] for event in self.log if event[1] == what]


class Keeping(ConsumerInterceptor):
    """Leaves out records for which a condition does not hold."""

    def __init__(self, condition: Callable[[ConsumerRecord[Any, Any]], bool]) -> None:
        self.condition = condition

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        return {tp: [record for record in some if self.condition(record)] for tp, some in records.items()}


class Marking(ConsumerInterceptor):
    """Replaces records by others."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        for tp, some in records.items():
            records[tp] = [
                ConsumerRecord(one.topic, one.partition, one.offset, value=f"{one.value}{self.mark}") for one in some
            ]
        return records


class Failing(ConsumerInterceptor):
    """Spoils the batch that it is given, and then fails, in one way or another."""

    def __init__(self, how: Callable[[ConsumerRecords[Any, Any]], Any]) -> None:
        self.how = how

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> Any:
        answer = self.how(records)
        records.clear()
        return answer

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise OSError("the tracing backend is away")

    def close(self) -> None:
        raise OSError("the tracing backend is away")


class Unreadable(Exception):
    def __repr__(self) -> str:
        raise asyncio.CancelledError


def mute(records: object) -> None:
    raise Unreadable


def raising(records: object) -> None:
    raise OSError("the tracing backend is away")


def cancelled(records: object) -> None:
    raise asyncio.CancelledError


def closed(records: object) -> None:
    raise GeneratorExit


# on_consume


def test_each_sees_what_those_before_it_left() -> None:
    """They run after the deserializers, in the order of the option, and before anything is returned."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *NUMBERS[:4])
        last = Noted()
        chain = [Keeping(lambda record: record.value != 2), Marking("a"), Marking("b"), last]
        async with consumer(cluster, *chain, value_deserializer=int) as reader:
            reader.assign([T0])
            batch = await reader.getmany()
        assert values(batch) == {T0: ["0ab", "1ab", "3ab"]}
        assert last.of("consume") == [values(batch)]

    play(story)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (raising, "OSError('the tracing backend is away')"),
        (cancelled, "CancelledError()"),
        (closed, "GeneratorExit()"),
        (lambda records: None, "returned NoneType: it must return the records that go on"),
        (lambda records: {tp: some * 2 for tp, some in records.items()}, "returned 4 records, more than it was given"),
        (lambda records: {"t": 5}, "TypeError"),
        (mute, "<Unreadable, whose repr() raised CancelledError>"),
    ],
)
def test_one_that_fails_is_logged_and_passed_over(
    how: Callable[[Any], Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one gets the last good batch, whatever the failed one had done to its own."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1")
        async with consumer(cluster, Marking("a"), Failing(how), Marking("b"), value_deserializer=int) as reader:
            reader.assign([T0])
            assert values(await reader.getmany()) == {T0: ["0ab", "1ab"]}
            await reader.commit()
        assert cluster.committed("g") == {T0: 2}

    with caplog.at_level(logging.ERROR, "aiokc.interceptor"):
        play(story)
    (of_consume, of_commit, of_close) = [record.getMessage() for record in caplog.records]
    assert of_consume.startswith("interceptor Failing.on_consume() failed, and what it was given goes on: ")
    assert said in of_consume
    assert of_commit.startswith("interceptor Failing.on_commit() failed, and the offsets are committed: ")
    assert of_close.startswith("interceptor Failing.close() failed, and the consumer has stopped all the same: ")


def test_an_iterator_that_has_nothing_leaves_nothing() -> None:
    """An iterator is true, whether it has anything or not."""

    class Filtering(ConsumerInterceptor):
        def on_consume(self, records: ConsumerRecords[Any, Any]) -> Any:
            return {tp: filter(lambda record: record.value == 3, some) for tp, some in records.items()}

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *NUMBERS[:5])
        async with consumer(cluster, Filtering(), value_deserializer=int) as reader:
            reader.assign([T0])
            assert (await reader.getone()).value == 3
            assert await reader.getmany(timeout_ms=50) == {}
            assert await reader.position(T0) == 5

    play(story)


def test_what_is_left_out_counts_as_read() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *NUMBERS)
        async with consumer(cluster, Keeping(lambda record: record.value < 3), value_deserializer=int) as reader:
            reader.assign([T0])
            batch = await reader.getmany()
            assert values(batch) == {T0: [0, 1, 2]}
            assert await reader.position(T0) == 10
            assert reader.current_lag(T0) == 0
            await reader.commit(batch)
            assert cluster.committed("g") == {T0: 10}

    play(story)


def test_a_commit_of_a_batch_does_not_depend_on_them() -> None:
    """Given a partition of which the interceptors leave nothing, then its records are committed with the batch all the
    same; but not if the application has deleted a partition from the batch itself.
    """

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *NUMBERS[:3])
        cluster.append("t", *NUMBERS[:5], partition=1)
        async with consumer(cluster, Keeping(lambda record: record.partition == 0)) as reader:
            reader.assign([T0, T1])
            batch = await reader.getmany()
            while T0 not in batch or T1 not in batch.next_offsets:
                reader.seek(T0, 0)
                reader.seek(T1, 0)
                batch = await reader.getmany()
            assert list(batch) == [T0]
            assert {tp: end.offset for tp, end in batch.next_offsets.items()} == {T0: 3, T1: 5}
            del batch[T0]
            await reader.commit(batch)
            assert cluster.committed("g") == {T1: 5}

    play(story)


def test_a_call_of_which_nothing_is_left_goes_on() -> None:
    """This holds for getmany, getone and the iterator. A commit of what is returned in the end covers what was left
    out.
    """

    async def story(cluster: Cluster) -> None:
        for number in range(9):
            cluster.append("t", b"%d" % number)
        options = {"value_deserializer": int, "max_poll_records": 1}
        async with consumer(cluster, Keeping(lambda record: record.value in (2, 5, 7)), **options) as reader:
            reader.assign([T0])
            assert values(await reader.getmany()) == {T0: [2]}
            assert (await reader.getone()).value == 5
            async for record in reader:
                assert record.value == 7
                break
            began = asyncio.get_running_loop().time()
            empty = await reader.getmany(timeout_ms=2_000)
            assert asyncio.get_running_loop().time() - began == pytest.approx(2, abs=0.1)
            assert empty == {}
            assert await reader.position(T0) == 9
            await reader.commit(empty)
            assert cluster.committed("g") == {T0: 9}
            cluster.append("t", b"9")
            await asyncio.sleep(1)
            empty = await reader.getmany(timeout_ms=0)
            assert empty == {}
            assert await reader.position(T0) == 10
            await reader.commit(empty)
            assert cluster.committed("g") == {T0: 10}

    play(story)


def test_passed_over_partitions_are_part_of_the_batch_that_comes() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *NUMBERS)
        passed = asyncio.Event()

        def keep(record: ConsumerRecord[Any, Any]) -> bool:
            passed.set()
            return record.partition == 1

        async with consumer(cluster, Keeping(keep)) as reader:
            reader.assign([T0, T1])
            polling = asyncio.ensure_future(reader.getmany())
            await passed.wait()
            cluster.append("t", b"x", partition=1)
            batch = await polling
            assert values(batch) == {T1: [b"x"]}
            await reader.commit(batch)
            assert cluster.committed("g") == {T0: 10, T1: 1}

    play(story)


@pytest.mark.parametrize("comes", [True, False], ids=["another batch", "the end of the call's time"])
def test_passed_over_partitions_that_were_given_up_are_no_part_of_the_batch_that_comes(comes: bool) -> None:
    """They may have another reader by now: a commit of the batch must not move its position."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *NUMBERS)
        passed = asyncio.Event()

        def keep(record: ConsumerRecord[Any, Any]) -> bool:
            passed.set()
            return record.partition == 1

        async with consumer(cluster, Keeping(keep)) as reader:
            reader.assign([T0, T1])
            polling = asyncio.ensure_future(reader.getmany(timeout_ms=5_000))
            await passed.wait()
            reader.assign([T1])
            if comes:
                cluster.append("t", b"x", partition=1)
            batch = await polling
            assert values(batch) == ({T1: [b"x"]} if comes else {})
            stored = {T1: 1} if comes else {}
            assert {tp: end.offset for tp, end in batch.next_offsets.items()} == stored
            await reader.commit(batch)
            assert cluster.committed("g") == stored

    play(story)


def test_what_was_passed_over_is_not_sent_to_a_transaction_once_another_member_has_it() -> None:
    """Given a call that waits after the interceptors left nothing, when the partition goes to another member, which
    commits, then the batch at the end of the call's time does not set that back, and a commit of it is no error.
    """

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *NUMBERS)
        cluster.append("t", *NUMBERS, partition=1)
        options = {"heartbeat_interval_ms": 100, "partition_assignment_strategy": ["cooperative-sticky"]}
        dropped: set[tuple[int, int]] = set()
        passed = asyncio.Event()

        def keep(record: ConsumerRecord[Any, Any]) -> bool:
            dropped.add((record.partition, record.offset))
            if len(dropped) == 20:
                passed.set()
            return False

        async with (
            consumer(cluster, Keeping(keep), **options) as first,
            Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x") as producer,
        ):
            first.subscribe(["t"])
            polling = asyncio.ensure_future(first.getmany(timeout_ms=20_000))
            await passed.wait()
            async with consumer(cluster, **options) as second:
                second.subscribe(["t"])
                while not second.assignment():
                    await second.getmany(timeout_ms=100)
                (gone,) = second.assignment()
                await second.commit({gone: 50})
                batch = await polling
                assert batch == {}
                assert batch.next_offsets.keys() == {T0, T1} - {gone}
                async with producer.transaction() as transaction:
                    await transaction.send_offsets(batch, first.group_metadata())
                await first.commit(batch)
                (kept,) = first.assignment()
                assert cluster.committed("g") == {gone: 50, kept: 10}

    play(story)


def test_a_rebalance_does_not_wait_for_records_that_were_left_out() -> None:
    """Given a member that waits in getmany(), whose interceptors left out all it has read, then it revokes at once."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", *NUMBERS)
        cluster.append("t", *NUMBERS, partition=1)
        options = {"heartbeat_interval_ms": 100, "enable_auto_commit": True}
        seen: set[tuple[int, int]] = set()
        passed = asyncio.Event()

        def keep(record: ConsumerRecord[Any, Any]) -> bool:
            seen.add((record.partition, record.offset))
            if len(seen) == 20:
                passed.set()
            return False

        async with consumer(cluster, Keeping(keep), **options) as first:
            first.subscribe(["t"])
            polling = asyncio.ensure_future(first.getmany())
            await passed.wait()
            began = asyncio.get_running_loop().time()
            async with consumer(cluster, **options) as second:
                second.subscribe(["t"])
                assert await second.getmany(timeout_ms=10_000) == {}
                assert len(second.assignment()) == 1
                polling.cancel()
        assert asyncio.get_running_loop().time() - began < 12
        assert cluster.committed("g") == {T0: 10, T1: 10}

    play(story)


# on_commit


def test_interceptors_hear_of_every_commit_that_succeeds() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *NUMBERS)
        noted, other = Noted(), Noted()
        async with consumer(cluster, noted, other) as reader:
            reader.assign([T0])
            batch = await reader.getmany(max_records=2)
            await reader.commit()
            assert noted.of("commit") == [{T0: 2}]
            await reader.commit({T0: 1, T1: 0})
            await reader.commit(batch)
            reader.commit_soon({T0: 5})
            await reader.commit({})
            assert noted.of("commit") == [{T0: 2}, {T0: 1, T1: 0}, {T0: 2}, {T0: 5}]
            assert other.of("commit") == noted.of("commit")
            fault = cluster.intercept(ApiKey.OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION)
            with pytest.raises(CommitFailed):
                await reader.commit({T0: 7})
            fault.cancel()
            assert len(noted.of("commit")) == 4

    play(story)


def test_interceptors_hear_of_auto_commits_and_of_the_last_one_before_close() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *NUMBERS)
        noted = Noted()
        options = {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000, "heartbeat_interval_ms": 100}
        reader = consumer(cluster, noted, **options)
        await reader.start()
        reader.subscribe(["t"])
        await reader.getmany(max_records=3)
        await reader.getmany(max_records=3)
        await asyncio.sleep(2)
        assert {T0: 3} in [{tp: at for tp, at in told.items() if tp == T0} for told in noted.of("commit")]
        async with consumer(cluster, **options) as second:  # the revocation commits
            second.subscribe(["t"])
            while second.assignment() != {T1} and second.assignment() != {T0}:
                await reader.getmany(timeout_ms=100)
                await second.getmany(timeout_ms=100)
        assert noted.of("commit")[-1][T0] in (6, 10)
        cluster.append("t", b"last")
        while (await reader.getmany(timeout_ms=5_000)).get(T0, [])[-1:] == []:
            pass
        assert await reader.getmany(timeout_ms=0) == {}
        await reader.stop()
        assert noted.log[-1] == ("", "close")
        assert noted.log[-2][:2] == ("", "commit")
        assert cluster.committed("g")[T0] == 11
        await reader.stop()
        assert [event[1] for event in noted.log].count("close") == 1

    play(story)


# close


def test_interceptors_are_closed_once_however_it_ends() -> None:
    async def story(cluster: Cluster) -> None:
        never_started, no_broker = Noted(), Noted()
        reader = consumer(cluster, never_started)
        await reader.stop()
        await reader.stop()
        assert never_started.log == [("", "close")]
        lonely: Consumer = Consumer(bootstrap_servers="127.0.0.1:1", interceptors=[no_broker])
        with pytest.raises(NoBrokersAvailable):
            await lonely.start(timeout_ms=1_000)
        await lonely.stop()
        assert no_broker.log == [("", "close")]

    play(story)


# Options


class Sleepy(ConsumerInterceptor):
    async def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:  # type: ignore[override]
        return records


def test_what_is_no_interceptor() -> None:
    with pytest.raises(ConfigError, match="interceptors holds the class Noted: give an instance"):
        Consumer(interceptors=[Noted])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"must hold aiokc\.ConsumerInterceptor objects only"):
        Consumer(interceptors=["Noted"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"Sleepy\.on_consume must be a plain function"):
        Consumer(interceptors=[Sleepy()])
    noted = Noted()
    assert ConsumerConfig(interceptors=[noted]).interceptors == (noted,)
    assert Consumer()._runtime.interceptors is None
