"""Positions: seeking, asking for offsets, pausing, and ending a wait."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest

from aiokc import EARLIEST, LATEST, Client, OffsetAndTimestamp, TopicPartition
from aiokc.errors import ConcurrentCall, UsageError
from aiokc.records import NewRecord
from aiokc.testing import ApiKey
from aiokc.testing.faults import Hold

from ..stage import T0, T1, Stage, scenario

TEN = tuple(b"%d" % number for number in range(10))


@scenario(topics={"t": 1})
async def test_a_seek_back_drops_what_is_buffered_and_what_is_on_its_way(stage: Stage) -> None:
    """Given buffered records and a Fetch in flight for those after them, when the application seeks back, then the next
    poll returns records from the new offset only, and the old answer is dropped.
    """
    stage.cluster.append("t", *TEN)
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        assert [r.offset for r in (await consumer.getmany(max_records=6))[T0]] == [0, 1, 2, 3, 4, 5]
        await stage.until(lambda: len(stage.names("aiokc", "Fetch")) == 2)
        stage.cluster.append("t", *TEN)
        hold = Hold()
        late = stage.cluster.intercept(ApiKey.FETCH, hold, times=1)
        await late.caught()
        [topic] = stage.of("aiokc", "Fetch")[-1].topics
        assert topic.partitions[0].fetch_offset == 20, "14 records are buffered"
        stage.cluster.append("t", b"20")
        consumer.seek(T0, 3)
        hold.release()
        offsets: list[int] = []
        while len(offsets) < 18:
            offsets += [record.offset for record in (await consumer.getmany(max_records=5))[T0]]
        assert offsets == [*range(3, 21)]


@scenario(topics={"t": 1})
async def test_seeking(stage: Stage) -> None:
    """Given no assignment, seek() raises; after assign() and seek(5) the first record is the first one at or after 5; a
    seek in on_partitions_assigned wins over the committed offset; offsets kept in a file continue without a gap.
    """
    stage.cluster.append("t", NewRecord(b"0"), NewRecord(b"1"), NewRecord(b"7", offset_delta=7))
    stage.cluster.append("t", *TEN)
    async with stage.consumer(group_id="g") as consumer:
        with pytest.raises(UsageError, match="not assigned"):
            consumer.seek(T0, 5)
        consumer.assign([T0])
        consumer.seek(T0, 5)
        assert (await consumer.getone()).offset == 7
        await consumer.commit({T0: 9})
        kept = json.dumps(await consumer.position(T0))  # the application's own file
    async with stage.member("c1") as member:
        member.on_assigned = lambda partitions: member.consumer.seek(T0, 12)
        assert (await member.consumer.getone()).offset == 12
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        consumer.seek(T0, json.loads(kept))
        assert (await consumer.getone()).offset == 8


@scenario(topics={"t": 2})
async def test_what_is_committed_may_be_the_very_beginning(stage: Stage) -> None:
    """Given offset 0 committed for one partition and none for another, when the application seeks to the committed
    offsets, then the first continues at 0, and the other stays at its position.
    """
    for tp in (T0, T1):
        stage.cluster.append("t", *TEN, partition=tp.partition)
    async with stage.consumer(group_id="g") as consumer:
        consumer.assign([T0, T1])
        await consumer.commit({T0: 0})
        assert (await consumer.getmany(T0, max_records=6))[T0][-1].offset == 5
        assert (await consumer.getmany(T1, max_records=6))[T1][-1].offset == 5
        found = await consumer.seek_to_committed()
        assert {tp: offset and offset.offset for tp, offset in found.items()} == {T0: 0, T1: None}
        assert [await consumer.position(tp) for tp in (T0, T1)] == [0, 6]
        assert (await consumer.getone(T0)).offset == 0


@scenario(topics={"t": 2})
async def test_asking_for_offsets_moves_nothing(stage: Stage) -> None:
    """Given timestamps 10, 20, 30 at offsets 0, 1, 2, then 15 and 20 give offset 1, and 31 none; an empty partition
    begins where it ends, after retention a log begins after 0; no position changes, and no assignment is needed.
    """
    stage.cluster.append("t", *(NewRecord(b"x", timestamp=when) for when in (10, 20, 30)))
    found = {15: OffsetAndTimestamp(1, 20, 0), 20: OffsetAndTimestamp(1, 20, 0), 31: None}
    async with stage.consumer() as consumer:
        for when, expected in found.items():
            assert await consumer.offsets_for_times({T0: when}) == {T0: expected}
        assert await consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
        assert await consumer.end_offsets([T0, T1]) == {T0: 3, T1: 0}
        consumer.assign([T0])
        consumer.seek(T0, 2)
        stage.cluster.trim("t", to=1)
        assert await consumer.beginning_offsets([T0]) == {T0: 1}
        assert await consumer.offsets_for_times({T0: 0}) == {T0: OffsetAndTimestamp(1, 20, 0)}
        assert await consumer.position(T0) == 2
    async with Client(bootstrap_servers=stage.cluster.bootstrap) as client:
        begin = await client.list_offsets({T0: EARLIEST, T1: EARLIEST})
        end = await client.list_offsets({T0: LATEST, T1: LATEST})
        assert [place.offset for place in begin.values()] == [1, 0]
        assert [place.offset for place in end.values()] == [3, 0]


@scenario(topics={"t": 1})
async def test_pausing_for_longer_than_a_session(stage: Stage) -> None:
    """Given a paused partition, when the member polls for longer than its session timeout, then nothing is returned and
    its generation stays; after resume() it goes on without a gap.
    """
    stage.cluster.append("t", *TEN)
    async with stage.member("c1", max_poll_records=4) as c1:
        assert [record.offset for record in (await c1.consumer.getmany())[T0]] == [0, 1, 2, 3]
        c1.consumer.pause(T0)
        assert await c1.consumer.getmany(timeout_ms=120_000) == {}
        assert c1.generation == 1
        assert c1.consumer.paused() == {T0}
        c1.consumer.resume(T0)
        assert [record.offset for record in (await c1.consumer.getmany())[T0]] == [4, 5, 6, 7]


@scenario(topics={"t": 1})
async def test_a_wait_for_records_is_ended_by_cancelling_it(stage: Stage) -> None:
    """Given a getmany() that waits (Java's wakeup() is the task's cancellation), when its task is cancelled, then it
    ends at once; when the cancellation comes before the call, the call ends at once, too; neither loses a record.
    """
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        waiting = stage.loop.create_task(consumer.getmany())
        await asyncio.sleep(10)
        began = stage.loop.time()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert stage.loop.time() - began < 0.1
        stage.cluster.append("t", b"0")
        early = stage.loop.create_task(consumer.getmany())
        early.cancel()
        with pytest.raises(asyncio.CancelledError):
            await early
        assert (await consumer.getone()).offset == 0


@scenario(topics={"t": 1}, brokers=2)
async def test_stopping(stage: Stage) -> None:
    """Given a member with auto-commit, when it is stopped, then it commits and leaves; given brokers that are all dead,
    then stop() ends within its timeout.
    """
    stage.cluster.append("t", *TEN)
    async with stage.consumer("t", client_id="c1", group_id="g", enable_auto_commit=True) as consumer:
        await consumer.getmany()
    assert stage.names("c1", "OffsetCommit", "LeaveGroup") == ["OffsetCommit", "LeaveGroup"]
    assert stage.cluster.committed("g") == {T0: 10}
    last = stage.consumer("t", group_id="g", enable_auto_commit=True)
    await last.start()
    stage.cluster.append("t", b"10")
    await last.getmany()
    for node in (1, 2):
        stage.cluster.take_down(node)
    began = stage.loop.time()
    await last.stop(timeout_ms=5_000)
    assert stage.loop.time() - began < 5 + 1


@scenario(topics={"a": 1, "b": 1})
async def test_a_second_subscription_takes_the_place_of_the_first(stage: Stage) -> None:
    """Given subscribe(["a"]) and then subscribe(["b"]), then records of b are returned, and no more of a."""
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    async with stage.member("c1", "a") as c1:
        stage.cluster.append("a", b"0")
        assert (await c1.consumer.getone()).topic == "a"
        c1.consumer.subscribe(["b"], listener=c1)
        stage.cluster.append("a", b"1")
        stage.cluster.append("b", b"0", b"1")
        c1.reads(until=2)
        await c1.has_read(2)
        assert c1.read == [(b, 0), (b, 1)]
        assert c1.consumer.assignment() == {b}
        assert a not in c1.owned


@scenario(topics={"t": 3})
async def test_random_cancellations_lose_nothing_and_a_second_user_is_refused(stage: Stage) -> None:
    """Given a getmany() that is cancelled at random moments, then no record that moved the position is lost; and while
    one task is inside of it, a call from another one raises ConcurrentCall at once.
    """
    chance = Random(7)
    for number in range(600):
        stage.cluster.append("t", b"%d" % number, partition=number % 3)
    read: list[tuple[int, int]] = []
    cancelled = 0
    async with stage.consumer("t", max_partition_fetch_bytes=400) as consumer:
        while len(read) < 600:
            try:
                async with asyncio.timeout(chance.choice([0, 0.0001, 0.001, 0.002])):
                    batch = await consumer.getmany(max_records=chance.randint(1, 20))
                    read += [(record.partition, record.offset) for part in batch.values() for record in part]
            except TimeoutError:
                cancelled += 1
        assert cancelled > 20
        assert sorted(read) == [(partition, offset) for partition in range(3) for offset in range(200)]
        first = stage.loop.create_task(consumer.getmany())
        await asyncio.sleep(1)
        with pytest.raises(ConcurrentCall):
            await consumer.getmany(timeout_ms=0)
        stage.cluster.append("t", b"600")
        assert (await first)[T0][0].value == b"600"
