"""The records of a run in turn are taken in one step, which hands out and leaves what the longer way does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.client.aio.signal import Signal
from aiokc.client.fetch.collector import FetchCollector
from aiokc.config import ClientConfig
from aiokc.core.counters import FetchCounters
from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.partition import frame_memory
from aiokc.core.fetch.partition.fetched_partition import FetchedPartition
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.core.subscription.state import Subscription
from aiokc.records import NATIVE, Codec, NewRecord, encode_batch
from aiokc.types import ConsumerRecords, TopicPartition

from ....suite.examples import examples

pytestmark = pytest.mark.skipif(not NATIVE, reason="without the extension there are no runs")

PARTITIONS: Final = [TopicPartition("t", number) for number in range(3)]
BUDGET: Final = 20_000  # so that opened buffers are crowded now and then


class Taking:
    """A collector over a buffer of its own, whose records are taken call by call."""

    def __init__(self, logs: list[list[tuple[int, Codec]]], corrupt_at: int) -> None:
        self.subscription, self.counters = Subscription(), FetchCounters()
        self.subscription.assign(PARTITIONS)
        self.buffer = FetchBuffer(budget=BUDGET)
        self.collector = FetchCollector(
            ClientConfig(), self.subscription, self.buffer, self.counters, Signal(), Signal()
        )
        for tp, log in zip(PARTITIONS, logs, strict=True):
            self.subscription.seek(tp, 0)
            position, offset, data = self.subscription[tp], 0, b""
            for count, codec in log:
                values = [NewRecord(b"%d" % (offset + index) * 9) for index in range(count)]
                data += encode_batch(values, base_offset=offset, codec=codec, leader_epoch=len(data))
                offset += count
            if tp.partition == 0 and len(data) > corrupt_at:
                data = data[:corrupt_at] + bytes([data[corrupt_at] ^ 1]) + data[corrupt_at + 1 :]
            self.buffer.add(FetchedPartition(tp, position.token, 0, memoryview(data)), position)

    def call(self, most: int, ahead: int = 0, *, until: float = inf) -> ConsumerRecords[Any, Any] | str:
        """Do as a call under a lease does, or else as a poll does without waiting: that may decode some ``ahead``.

        Under a lease it ends at the first look at the clock that shows more than ``until``.
        """
        self.subscription.mark_processed()
        batch = None if ahead else self.collector.take_in_turn(most, until)
        if batch is not None:
            return batch
        while self.collector.settle():
            pass
        self.collector.decode_at_once(most + ahead, most, None, inf)
        try:
            return self.collector.take(most)
        except Exception as error:
            return str(error)

    @property
    def state(self) -> Any:
        assigned = self.subscription.assigned
        return (
            [(tp, p.position, p.processed_position, p.leader_epoch, p.held) for tp, p in assigned.items()],
            [(tp, part.next, part.taken, part.end, part.empty) for tp, part in self.buffer._partitions.items()],
            list(self.buffer._open),
            self.counters.records,
        )

    @property
    def memory(self) -> Any:
        """What is kept once all that was handed out is settled, as a poll does it."""
        while self.collector.settle():
            pass
        return self.buffer.bytes, [(frame.left, frame.lent) for frame in self.buffer._memory._frames.values()]


@contextmanager
def the_longer_way() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionBuffer, "take_of_runs", lambda *_: None)
        yield


batches = st.lists(st.tuples(st.integers(1, 30), st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4])), max_size=6)


@given(
    logs=st.lists(batches, min_size=3, max_size=3),
    calls=st.lists(
        st.tuples(st.integers(1, 25), st.sampled_from([0, 0, 0, 7]), st.booleans(), st.booleans()), max_size=30
    ),
    corrupt_at=st.integers(60, 6_000),
)
@examples(200, thorough=5_000)
def test_it_is_as_the_longer_way_has_it(
    logs: list[list[tuple[int, Codec]]], calls: list[tuple[int, int, bool, bool]], corrupt_at: int
) -> None:
    async def story() -> None:
        short, long = Taking(logs, corrupt_at), Taking(logs, corrupt_at)
        held: list[tuple[Any, list[Any]]] = []
        for most, ahead, is_held, is_settled in calls:
            mine = short.call(most, ahead)
            count = sum(map(len, mine.values())) if isinstance(mine, ConsumerRecords) else 0
            with the_longer_way():
                other = long.call(count or most, ahead)
            assert mine == other
            assert short.state == long.state
            assert not is_settled or short.memory == long.memory
            if isinstance(mine, ConsumerRecords):
                assert isinstance(other, ConsumerRecords)
                assert mine.next_offsets == other.next_offsets
                assert mine.assignment_tokens == other.assignment_tokens
                if is_held:
                    held += [(records, list(records)) for records in mine.values()]
        for records, as_it_was in held:
            assert list(records) == as_it_was

    asyncio.run(story())


def test_it_is_what_most_calls_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the comparison above would compare nothing."""
    taken: list[int] = []
    take = PartitionBuffer.take_of_runs

    def noted(self: PartitionBuffer, count: int) -> Any:
        found = take(self, count)
        taken.append(0 if found is None else len(found[0]))
        return found

    monkeypatch.setattr(PartitionBuffer, "take_of_runs", noted)

    async def story() -> None:
        taking = Taking([[(100, Codec.NONE)], [(100, Codec.LZ4)], [(20, Codec.NONE)]], 10_000)
        for _ in range(20):
            taking.call(10)

    asyncio.run(story())
    assert taken.count(10) >= 14, taken


def test_what_was_handed_out_is_settled_where_that_makes_room() -> None:
    """Else by the next poll: its frame has other records, so that to copy those that are held would free nothing."""

    async def story() -> None:
        taking = Taking([[(10, Codec.NONE)], [(100, Codec.NONE)], [(100, Codec.NONE)]], 10_000)
        buffer, collector = taking.buffer, taking.collector
        held = [taking.call(10)]  # the whole frame of the first partition
        collector.resume_at = 0  # partitions were left out for want of room
        frees, before = [buffer.settling_frees], buffer.bytes
        held.append(taking.call(10))
        frees.append(buffer.settling_frees)
        assert frees == [True, False]
        assert buffer.bytes < before
        before = buffer.bytes
        held += [taking.call(10), taking.call(10)]
        assert len(buffer._memory._lent) == 3, "the frames of both have more records"
        assert buffer.bytes == before
        assert [len(records) for batch in held if not isinstance(batch, str) for records in batch.values()] == [10] * 4

    asyncio.run(story())


@pytest.mark.parametrize(("method", "ahead"), [("take_of_runs", 0), ("take", 1)])
def test_nothing_is_lost_when_memory_is_short_at_another_partition(
    method: str, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call returns what it has: the positions behind that have moved."""
    take, attempts = getattr(PartitionBuffer, method), 0

    def short_of_memory(self: PartitionBuffer, count: int) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts in (1, 3):
            raise MemoryError
        return take(self, count)

    async def story() -> None:
        taking = Taking([[(10, Codec.NONE)]] * 3, 10_000)
        taking.collector.decode_at_once(30 * ahead, 30, None, inf)
        with pytest.raises(MemoryError):
            taking.collector.take_in_turn(30, inf)
        sizes = []
        for _ in range(2):
            batch = taking.call(30, ahead)
            assert isinstance(batch, ConsumerRecords)
            sizes.append([len(records) for records in batch.values()])
        assert sizes == [[10], [10, 10]]

    monkeypatch.setattr(PartitionBuffer, method, short_of_memory)
    asyncio.run(story())


@pytest.mark.parametrize("ahead", [0, 1])
def test_nothing_is_lost_when_there_is_no_memory_for_copies(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To copy what is handed out only makes room: the next call does it."""

    async def story() -> None:
        taking = Taking([[(10, Codec.NONE)], [], []], 10_000)
        taking.collector.resume_at = taking.buffer.bytes
        taking.collector.decode_at_once(10 * ahead, 10, None, inf)
        with monkeypatch.context() as patch:
            patch.setattr(frame_memory, "detach_held", no_memory)
            batch = taking.collector.take_in_turn(10, inf)
            taking.collector.left_out(0)
        assert batch is not None
        assert [record.offset for record in batch[PARTITIONS[0]]] == list(range(10))
        assert taking.memory == (0, [])

    def no_memory(*_: object) -> int:
        raise MemoryError

    asyncio.run(story())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(("until", "most"), [(-inf, 16), (inf, 40)], ids=["slow", "quick"])
def test_the_clock_is_looked_at_after_so_many_runs(codec: Codec, until: float, most: int) -> None:
    """Each may have one record only: 2,000 of them would hold the loop. While there is time, a call takes them all."""
    frames = 40

    async def story() -> None:
        taking = Taking([[], [], []], 10_000)
        tp, position = PARTITIONS[1], taking.subscription[PARTITIONS[1]]
        for offset in range(frames):
            data = encode_batch([NewRecord(b"x" * 90)], base_offset=offset, codec=codec)
            taking.buffer.add(FetchedPartition(tp, position.token, offset, memoryview(data)), position)
        found: list[list[int]] = []
        while sum(map(len, found)) < frames:
            batch = taking.call(1000, until=until)
            assert isinstance(batch, ConsumerRecords)
            found.append([record.offset for record in batch[tp]])
            assert batch.next_offsets[tp].offset == found[-1][-1] + 1
        assert [offset for offsets in found for offset in offsets] == list(range(frames))
        assert max(map(len, found)) == most

    asyncio.run(story())


def test_one_step_ends_behind_a_run_that_makes_a_mebibyte() -> None:
    """To check the next one takes another half a millisecond: the caller looks at the clock first."""

    async def story() -> None:
        taking = Taking([[], [], []], 10_000)
        tp, position = PARTITIONS[1], taking.subscription[PARTITIONS[1]]
        for number in range(5):
            batches = [encode_batch([NewRecord(bytes(100_000))], base_offset=6 * number + index) for index in range(6)]
            data = b"".join(batches)
            taking.buffer.add(FetchedPartition(tp, position.token, 6 * number, memoryview(data)), position)
        counts: list[int] = []
        while sum(counts) < 30:
            batch = taking.call(1000, until=-inf)
            assert isinstance(batch, ConsumerRecords)
            counts.append(len(batch[tp]))
        assert counts == [12, 12, 6]

    asyncio.run(story())


def test_the_last_records_of_a_run_make_room_that_is_wanted_at_once() -> None:
    """The application may be at work on them for long, and its partitions that were left out have to be fetched."""

    async def story() -> None:
        taking = Taking([[(10, Codec.NONE)], [], []], 10_000)
        taking.collector.resume_at = 0
        batch = taking.call(10)
        assert isinstance(batch, ConsumerRecords)
        assert taking.buffer.bytes == 0
        assert [record.value for record in batch[PARTITIONS[0]]] == [b"%d" % number * 9 for number in range(10)]

    asyncio.run(story())
