"""Fetching: the order of records and errors, soft limits, fetch sessions, transactions, and unusual logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, CorruptRecord
from aiokc.records import Codec, ControlType, NewRecord, encode_batch, encode_control_batch
from aiokc.testing import ApiKey
from aiokc.testing.brokers.exchange import Exchange

from ..stage import T0, T1, T2, Stage, play, scenario

TEN = tuple(b"%d" % number for number in range(10))


def spoiling(number: int, spoil: Callable[[Any], None]) -> Callable[[Exchange], Any]:
    """Return a fault for Fetch that changes the answer of one partition."""

    async def fault(exchange: Exchange) -> Any:
        answer: Any = await exchange.handle()
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.partition_index == number:
                    spoil(partition)
        return answer

    return fault


def write(stage: Stage, *batches: bytes) -> None:
    """Append batches to t-0 as they are."""
    partition = stage.cluster._partition("t", 0)
    for batch in batches:
        partition.log.append(batch, partition.leader_epoch)
    partition.wake()


def forbid(partition: Any) -> None:
    partition.error_code, partition.records = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None


def corrupt(partition: Any) -> None:
    if partition.records:
        data = bytearray(partition.records)
        data[-1] ^= 1
        partition.records = memoryview(bytes(data))


@pytest.mark.parametrize(("spoil", "error"), [(forbid, AuthorizationFailed), (corrupt, CorruptRecord)])
def test_records_come_before_the_error_of_another_partition(
    spoil: Callable[[Any], None], error: type[Exception]
) -> None:
    """Given good data in partition 0, and TOPIC_AUTHORIZATION_FAILED or a wrong CRC in partition 1, then the first poll
    returns the records of 0, the second raises the error of 1, and none of 0 is lost or repeated.
    """

    async def story(stage: Stage) -> None:
        for number in (0, 1):
            stage.cluster.append("t", *TEN, partition=number)
        fault = stage.cluster.intercept(ApiKey.FETCH, spoiling(1, spoil))
        async with stage.consumer() as consumer:
            consumer.assign([T0, T1])
            first = await consumer.getmany()
            assert {tp: [record.offset for record in records] for tp, records in first.items()} == {T0: [*range(10)]}
            with pytest.raises(error, match="t"):
                await consumer.getmany(timeout_ms=10_000)
            fault.cancel()
            stage.cluster.append("t", b"10")
            assert (await consumer.getone(T0)).offset == 10
            consumer.seek(T1, 0)
            assert (await consumer.getone(T1)).offset == 0

    play(story)


@scenario(topics={"t": 1})
async def test_what_is_buffered_comes_in_portions(stage: Stage) -> None:
    """Given max_poll_records=500 and 1200 buffered records, then three polls give 500, 500 and 200 in order; the next
    Fetch is in flight before the second poll, and there is never more than one in flight to each broker.
    """
    for start in range(0, 1200, 100):
        stage.cluster.append("t", *(b"%d" % number for number in range(start, start + 100)))
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        polls = [await consumer.getmany()]
        await stage.until(lambda: stage.in_flight == {1: 1} and len(stage.names("aiokc", "Fetch")) > 1)
        polls += [await consumer.getmany(), await consumer.getmany()]
        assert [len(poll[T0]) for poll in polls] == [500, 500, 200]
        assert [record.offset for poll in polls for record in poll[T0]] == list(range(1200))
        assert stage.most_in_flight == 1


@scenario(topics={"t": 1})
async def test_a_batch_above_the_limits_is_delivered(stage: Stage) -> None:
    """Given batches larger than fetch_max_bytes and max_partition_fetch_bytes, then they are returned anyway."""
    for size in (5_000, 10, 50_000):
        stage.cluster.append("t", b"x" * size)
    async with stage.consumer(max_partition_fetch_bytes=100, fetch_max_bytes=1_000) as consumer:
        consumer.assign([T0])
        sizes = [len((await consumer.getone()).value or b"") for _ in range(3)]
        assert sizes == [5_000, 10, 50_000]


@scenario(topics={"t": 1})
async def test_only_what_is_committed_is_read(stage: Stage) -> None:
    """Given read_committed, an aborted transaction, a committed one and one that is open, then only the committed data
    is returned, the position passes the control records, and the lag ends where the open one begins.
    """
    for producer, value, marker in ((7, b"no", ControlType.ABORT), (8, b"yes", ControlType.COMMIT), (9, b"?", None)):
        batch = encode_batch(
            [NewRecord(value)], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )
        write(stage, batch)
        if marker is not None:
            write(stage, encode_control_batch(marker, producer_id=producer, producer_epoch=0))
    async with stage.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([T0])
        batch_read = await consumer.getmany()
        assert [(record.offset, record.value) for record in batch_read[T0]] == [(2, b"yes")]
        assert await consumer.getmany(timeout_ms=2_000) == {}
        assert await consumer.position(T0) == 4
        assert (consumer.current_lag(T0), stage.cluster.end_offset("t")) == (0, 5)
        assert await consumer.end_offsets([T0]) == {T0: 4}


@pytest.mark.parametrize("trouble", ["session forgotten", "connection lost"])
def test_a_fetch_session_begins_anew(trouble: str) -> None:
    """Given a fetch session, when the broker has forgotten it or the connection breaks, then a full Fetch follows, and
    no record is lost or comes twice; a paused partition is put in the forgotten list.
    """

    async def story(stage: Stage) -> None:
        async with stage.consumer() as consumer:
            consumer.assign([T0, T1])
            read: list[tuple[int, int]] = []

            async def has_read(count: int) -> None:
                while len(read) < count:
                    batch = await consumer.getmany()
                    read.extend((record.partition, record.offset) for part in batch.values() for record in part)

            def write_both() -> None:
                for number in (0, 1):
                    stage.cluster.append("t", b"x", partition=number)

            def forgotten(since: int) -> list[list[int]]:
                fetches = stage.of("aiokc", "Fetch", since=since)
                return [list(topic.partitions) for fetch in fetches for topic in fetch.forgotten_topics_data]

            write_both()
            await has_read(2)
            before = len(stage.events)
            if trouble == "session forgotten":
                stage.cluster.forget_fetch_sessions()
            else:
                stage.cluster.disconnect(1)
            write_both()
            await has_read(4)
            full = [request for request in stage.of("aiokc", "Fetch", since=before) if request.session_epoch == 0]
            assert [partition.partition for topic in full[0].topics for partition in topic.partitions] == [0, 1]
            consumer.pause(T1)
            await stage.until(lambda: forgotten(before) == [[1]])
            write_both()
            await has_read(5)
            consumer.resume(T1)
            await has_read(6)
            assert sorted(read) == [(number, offset) for number in (0, 1) for offset in range(3)]

    play(story)


@scenario(topics={"t": 1})
async def test_whatever_the_log_looks_like(stage: Stage) -> None:
    """Given a compacted log (gaps, one of them at a batch's end, a batch without records), compressed batches, null
    values, answers that end in a part of a batch, a position within a batch, and polls smaller than a batch, then
    exactly the records at or after the position come, in order, and the position is after them all.
    """
    filler = b"x" * 200
    write(
        stage,
        encode_batch([NewRecord(b"0"), NewRecord(None, key=b"k", offset_delta=4)], last_offset_delta=9),
        *(encode_batch([NewRecord(filler)] * 10, codec=codec) for codec in Codec),
        encode_batch([], last_offset_delta=9),
        encode_batch([NewRecord(filler)] * 10),
        encode_batch([NewRecord(b"last")], last_offset_delta=4),
    )
    plain = range(10, 10 + 10 * len(Codec))
    behind = range(plain.stop + 10, plain.stop + 20)
    expected = [0, 4, *plain, *behind, behind.stop]
    for start in (0, 3, 17, plain.stop + 3):
        async with stage.consumer(max_poll_records=3, max_partition_fetch_bytes=700) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, start)
            read: list[int] = []
            while behind.stop not in read:
                batch = await consumer.getmany()
                assert 1 <= len(batch[T0]) <= 3
                read += [record.offset for record in batch[T0]]
                assert all(record.value is None for record in batch[T0] if record.offset == 4)
            assert read == [offset for offset in expected if offset >= start]
            assert await consumer.getmany(timeout_ms=2_000) == {}
            assert await consumer.position(T0) == behind.stop + 5


@scenario(topics={"t": 1})
async def test_a_long_poll_delays_neither_heartbeats_nor_commits(stage: Stage) -> None:
    """Given one broker that is coordinator and leader, and a Fetch that waits for 29 s on a quiet partition, then
    heartbeats and commits are answered in the meantime: they have a connection of their own.
    """
    async with stage.member("c1", fetch_max_wait_ms=29_000).reads() as c1:
        await stage.until(lambda: stage.in_flight == {1: 1})
        before = len(stage.events)
        await asyncio.sleep(20)
        began = stage.loop.time()
        await c1.consumer.commit({T0: 0})
        assert stage.loop.time() - began < 0.5
        assert len(stage.names("c1", "Heartbeat", since=before)) >= 6
        assert len(stage.names("c1", "Fetch", since=before)) == 0


@scenario(topics={}, brokers=2)
async def test_a_partition_in_trouble_does_not_stop_the_others(stage: Stage) -> None:
    """Given NOT_LEADER_OR_FOLLOWER for one partition and no leader for another, then the other partitions are read all
    the time, and those two as soon as possible.
    """
    stage.cluster.create_topic("t", 3, replication_factor=1)
    leaders = [stage.cluster.leader("t", number) for number in range(3)]
    alone = leaders.index(2)
    moving, good = (number for number in range(3) if number != alone)

    def not_leader(partition: Any) -> None:
        partition.error_code, partition.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, None

    fault = stage.cluster.intercept(ApiKey.FETCH, spoiling(moving, not_leader))
    for number in range(3):
        stage.cluster.append("t", b"early", partition=number)
    stage.cluster.take_down(2)
    async with stage.consumer() as consumer:
        consumer.assign([T0, T1, T2])
        for number in range(30):
            stage.cluster.append("t", b"%d" % number, partition=good)
            batch = await consumer.getmany(timeout_ms=5_000)
            assert {tp.partition for tp in batch} == {good}
            await asyncio.sleep(1)
        fault.cancel()
        stage.cluster.bring_up(2)
        late = {(await consumer.getone()).partition for _ in range(2)}
        assert late == {moving, alone}


@scenario(topics={"t": 1})
async def test_frames_in_pieces_and_answers_without_a_request(stage: Stage) -> None:
    """Given answers that arrive in pieces, cut anywhere, then they mean the same as whole ones; an answer with a
    correlation id that no request has ends its connection, and the request is sent again.
    """
    stage.cluster.append("t", *TEN)
    strange: list[int] = []

    async def in_pieces(exchange: Exchange) -> None:
        answer = await exchange.handle()
        assert answer is not None
        frame = exchange.frame(answer)
        if len(strange) < 1:
            strange.append(len(frame))
            return await exchange.answer_bytes(frame[:4] + b"\x7f\xff\xff\xff" + frame[8:])
        cut = exchange.random.randrange(1, len(frame))
        await exchange.answer_bytes(frame[:cut])
        await asyncio.sleep(0.01)
        await exchange.answer_bytes(frame[cut:])

    stage.cluster.intercept(ApiKey.FETCH, in_pieces)
    async with stage.consumer(max_poll_records=1) as consumer:
        consumer.assign([T0])
        read = [(await consumer.getone()).value for _ in range(10)]
        for number in range(50):
            stage.cluster.append("t", b"%d" % number)
            read.append((await consumer.getone()).value)
        assert read == [*TEN, *(b"%d" % number for number in range(50))]
        assert strange
