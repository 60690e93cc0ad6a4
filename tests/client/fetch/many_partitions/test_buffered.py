"""A call looks at the partitions that it reaches, each once, however many are buffered, and however often it stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from math import inf

import pytest

from aiokc import ConsumerConfig, TopicPartition
from aiokc.client.aio import time_slice
from aiokc.client.aio.signal import Signal
from aiokc.client.aio.time_slice import TimeSlice
from aiokc.client.fetch.collector import FetchCollector
from aiokc.client.fetch.column_collector import ColumnPoll
from aiokc.core.counters import FetchCounters
from aiokc.core.fetch.buffer import FetchBuffer, Serving
from aiokc.core.fetch.partition.fetched_partition import FetchedPartition
from aiokc.core.subscription.position import PartitionPosition
from aiokc.core.subscription.state import Subscription
from aiokc.records import NewRecord, encode_batch, new_builder

ROWS = 4


class Counting(Subscription):
    """Counts how often a call looks at a partition, and calls ``at_look`` then."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.at_look: Callable[[TopicPartition], None] = lambda tp: None

    def get(self, tp: TopicPartition, token: int) -> PartitionPosition | None:
        self.looks += 1
        self.at_look(tp)
        return super().get(tp, token)


class Stage:
    """So many partitions, each with ``ROWS`` records in the fetch buffer."""

    def __init__(self, partitions: int) -> None:
        self.subscription, buffer = Counting(), FetchBuffer()
        self.partitions = [TopicPartition("t", index) for index in range(partitions)]
        self.subscription.assign(self.partitions)
        records = memoryview(encode_batch([NewRecord(b"x")] * ROWS))
        for tp in self.partitions:
            self.subscription.seek(tp, 0)
            position = self.subscription[tp]
            buffer.add(FetchedPartition(tp, position.token, 0, records), position)
        config = ConsumerConfig(bootstrap_servers="unused:1")
        self.collector = FetchCollector(config, self.subscription, buffer, FetchCounters(), Signal(), Signal())

    async def columns(self, rows: int, slices: TimeSlice) -> int:
        poll = ColumnPoll(self.collector, lambda: new_builder(["value"], "ms"), rows=rows, size=1 << 30)
        return len(await poll.read(None, lambda: None, slices))

    async def records(self, count: int, slices: TimeSlice) -> int:
        await self.collector.decode(count, slices)
        return sum(map(len, self.collector.take(count).values()))


Read = Callable[[Stage, int, TimeSlice], Awaitable[int]]


@pytest.fixture(params=[Stage.columns, Stage.records])
def read(request: pytest.FixtureRequest) -> Read:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> TimeSlice:
    """A time slice that is over at once, again and again."""
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", -1.0)
    return TimeSlice()


async def test_a_small_call_looks_at_few_of_many(read: Read) -> None:
    stage, slices = Stage(500), TimeSlice()
    slices.ends = inf
    for _ in range(3):
        stage.subscription.looks = 0
        assert await read(stage, 5 * ROWS, slices) == 5 * ROWS
        assert stage.subscription.looks <= 20


async def test_a_large_call_looks_at_each_once_in_all_its_time_slices(read: Read, impatient: TimeSlice) -> None:
    stage = Stage(200)
    assert await read(stage, 200 * ROWS, impatient) == 200 * ROWS
    assert stage.subscription.looks <= 200 * 5


async def test_a_call_of_many_time_slices_goes_through_one_iterator(
    read: Read, impatient: TimeSlice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iterators in iterators, one more after each slice, would be deeper than a thread's stack."""
    stage = Stage(20)
    rests: list[Iterator[Serving]] = []

    def note(buffer: FetchBuffer, stopped_at: Serving, rest: Iterator[Serving], subscription: Subscription) -> object:
        rests.append(rest)
        return going_on(buffer, stopped_at, rest, subscription)

    going_on = FetchBuffer.going_on
    monkeypatch.setattr(FetchBuffer, "going_on", note)
    assert await read(stage, 20 * ROWS, impatient) == 20 * ROWS
    assert len(rests) > 10
    assert len(set(map(id, rests))) == 1


async def test_a_call_for_one_partition_looks_at_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, slices = Stage(20), TimeSlice()

    def in_order(_: FetchBuffer) -> Iterator[TopicPartition]:
        raise AssertionError("it looks through all that is buffered")

    monkeypatch.setattr(FetchBuffer, "_in_order", in_order)
    for tp in stage.partitions[7], stage.partitions[3]:
        slices.begins()
        await stage.collector.decode(100, slices, [tp])
        assert [*map(len, stage.collector.take(100, [tp]).values())] == [ROWS]


@pytest.mark.parametrize(
    "change",
    [
        lambda subscription, first, others: subscription.pause(first, True),
        lambda subscription, first, others: subscription.seek(first, 1),
        lambda subscription, first, others: subscription.replace(others),
    ],
)
async def test_a_call_goes_on_behind_a_partition_that_it_may_not_read_any_more(
    read: Read, impatient: TimeSlice, change: Callable[..., object]
) -> None:
    """The change comes when a call has stopped in the middle of a partition."""
    stage = Stage(3)
    first, *others = stage.partitions
    seen: list[TopicPartition] = []

    def at_look(tp: TopicPartition) -> None:
        seen.append(tp)
        if seen == [first, first]:  # the second look is that after other tasks have run
            change(stage.subscription, first, others)

    stage.subscription.at_look = at_look
    assert await read(stage, 100, impatient) == 2 * ROWS
    assert {tp: position.position for tp, position in stage.subscription.assigned.items() if tp in others} == (
        dict.fromkeys(others, ROWS)
    )
