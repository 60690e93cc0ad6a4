"""What one run fills is stored as anything else, and planned behind as if the planner had looked at the partition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiokc.config import ClientConfig
from aiokc.core.cluster.snapshot import Cluster
from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.partition.fetched_partition import FetchedPartition
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.core.fetch.planner import FetchPlanner
from aiokc.core.fetch.session import FetchTarget
from aiokc.core.subscription.position import PartitionPosition
from aiokc.core.subscription.state import Subscription
from aiokc.errors import RequestTimedOut
from aiokc.native import NATIVE
from aiokc.records import Codec, NewRecord, encode_batch
from aiokc.types import Broker, PartitionInfo, TopicInfo, TopicPartition
from aiokc.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

from ...suite.examples import examples

ZERO, ONE, TWO = (TopicPartition("t", number) for number in range(3))
ALL = (ZERO, ONE, TWO)
EPOCH = 3
BROKER = 1


def batch(count: int, offset: int = 0, codec: Codec = Codec.NONE, epoch: int = EPOCH) -> bytes:
    return encode_batch([NewRecord(b"v")] * count, base_offset=offset, codec=codec, leader_epoch=epoch)


class Reading:
    """Three partitions of one broker, planned for."""

    def __init__(self) -> None:
        infos = {tp.partition: PartitionInfo("t", tp.partition, BROKER, EPOCH, (BROKER, 2)) for tp in ALL}
        brokers = {node_id: Broker(node_id, "h", 9092) for node_id in (BROKER, 2)}
        self.cluster = Cluster(1, brokers=brokers, topics={"t": TopicInfo("t", infos)})
        self.subscription = Subscription()
        self.subscription.assign(ALL)
        self.buffer = FetchBuffer()
        self.planner = FetchPlanner(self.subscription, self.buffer, ClientConfig())
        for tp in ALL:
            self.subscription.seek(tp, 0)
        self.look()
        self.planner.plan({}, 0.0)
        told = [
            PartitionData(
                partition_index=tp.partition, error_code=0, high_watermark=99, aborted_transactions=None, records=None
            )
            for tp in ALL
        ]
        answer = FetchResponse(session_id=5, responses=[FetchableTopicResponse(topic="t", partitions=told)])
        assert self.planner.session(BROKER).answered(answer) is not None

    def look(self, most: int = 100) -> None:
        while self.planner.look(self.cluster, 0.0, most).more:
            pass

    def seek(self, offset: int) -> None:
        """Seek, and look: no answer is stored before a Fetch has asked for it under the new token."""
        self.subscription.seek(ZERO, offset)
        self.look()

    def answer(self, tp: TopicPartition, records: bytes, offset: int = 0) -> PartitionBuffer | None:
        position = self.subscription[tp]
        stored = self.buffer.add_run(tp, offset, memoryview(records), position, BROKER)
        if stored is None:
            self.buffer.add(FetchedPartition(tp, position.token, offset, memoryview(records), broker=BROKER), position)
        return stored

    def hand_out(self, tp: TopicPartition, count: int) -> None:
        for buffer, position in list(self.buffer.servable(self.subscription)):
            if buffer.tp == tp:
                buffer.decode(count)
                records, after = buffer.take(count)
                if records:
                    self.subscription.hand_out(tp, after, buffer.taken_epoch)
                self.buffer.served(buffer, position)

    def asked(self) -> dict[int, dict[TopicPartition, int]]:
        """What the next Fetch to each broker asks for: only what has changed."""
        plans = self.planner.plan({}, 0.0).fetches
        asked = {plan.node_id: {target.tp: target.offset for target in plan.session.asked} for plan in plans}
        assert all(plan.session.epoch > 0 for plan in plans if plan.node_id == BROKER), "the session goes on"
        return asked

    def wanted(self) -> dict[TopicPartition, tuple[int, FetchTarget]]:
        """What is wanted of each partition, and from which broker; tokens differ from test to test."""
        return {
            target.tp: (node_id, target._replace(token=0))
            for node_id in (BROKER, 2)
            for target in self.planner.wanted(node_id)
        }


# What becomes of a partition, before or after its answer is stored


def _fails(reading: Reading) -> None:
    reading.buffer.fail(ZERO, reading.subscription[ZERO], RequestTimedOut("no answer"))


def _from_a_replica(reading: Reading) -> None:
    reading.subscription.read_from(ZERO, 2, 1e9)


EVENTS: dict[str, Callable[[Reading], object]] = {
    "filled": lambda reading: reading.answer(ZERO, batch(9)),
    "filled further": lambda reading: reading.answer(ZERO, batch(4, 9), 9),
    "filled by a batch without an epoch": lambda reading: reading.answer(ZERO, batch(9, epoch=-1)),
    "filled by a packed batch": lambda reading: reading.answer(ZERO, batch(9, codec=Codec.GZIP)),
    "filled by garbage": lambda reading: reading.answer(ZERO, bytes(100)),
    "the other filled": lambda reading: reading.answer(ONE, batch(9)),
    "some handed out": lambda reading: reading.hand_out(ZERO, 4),
    "all handed out": lambda reading: reading.hand_out(ZERO, 100),
    "failed": _fails,
    "sought": lambda reading: reading.seek(2),
    "sought to where it is": lambda reading: reading.seek(reading.subscription[ZERO].position),
    "paused": lambda reading: reading.subscription.pause(ZERO, True),
    "resumed": lambda reading: reading.subscription.pause(ZERO, False),
    "dropped": lambda reading: reading.buffer.drop(ZERO),
    "read until 9": lambda reading: reading.subscription.read_until(ZERO, 9),
    "read from a replica": _from_a_replica,
    "read from the leader": lambda reading: reading.subscription.read_from(ZERO, None),
    "left alone": lambda reading: reading.subscription.retry_later([ZERO], 1e9),
}


@examples(400, thorough=4_000)
@example([("filled", False)], 100)
@example([("read from a replica", True), ("filled", False)], 100)
@example([("read until 9", True), ("filled", False)], 100)
@example([("filled", True), ("failed", False)], 100)
@example([("filled by a batch without an epoch", True), ("all handed out", False)], 100)
@given(st.lists(st.tuples(st.sampled_from(sorted(EVENTS)), st.booleans()), max_size=6), st.sampled_from([1, 100]))
def test_what_is_planned_is_what_a_look_at_each_partition_finds(events: list[tuple[str, bool]], most: int) -> None:
    reading, looking = Reading(), Reading()
    for event, looks in events:
        EVENTS[event](reading)
        EVENTS[event](looking)
        if looks:
            reading.look(most)
        looking.buffer.take_filled(len(ALL))  # so that nothing is left but to look
        for tp in ALL:
            looking.subscription.touch(tp)
        looking.look()
    reading.look(most)
    assert reading.wanted() == looking.wanted()
    assert reading.asked() == looking.asked()


def test_an_answer_that_is_stored_touches_nothing() -> None:
    reading = Reading()
    reading.buffer.take_touched()
    assert (reading.answer(ZERO, batch(9)) is not None) == NATIVE
    if NATIVE:
        assert reading.buffer.take_touched() == []
        assert reading.buffer.has_touched
        assert [buffer.tp for buffer in reading.buffer.take_filled(10)] == [ZERO]
        assert not reading.buffer.has_touched


def test_so_many_are_planned_for_at_once() -> None:
    reading = Reading()
    for tp in ALL:
        reading.answer(tp, batch(9))
    assert reading.planner.look(reading.cluster, 0.0, 2).more
    offsets = [target.offset for target in reading.planner.wanted(BROKER)]
    assert sorted(offsets) == [0, 9, 9]
    assert not reading.planner.look(reading.cluster, 0.0, 2).more
    assert [target.offset for target in reading.planner.wanted(BROKER)] == [9, 9, 9]


# One run


def position_at(offset: int) -> PartitionPosition:
    position = PartitionPosition(7)
    position.locate(7, offset)
    return position


@pytest.mark.parametrize("before", [b"", batch(3)], ids=["first", "behind another"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_run_is_stored_as_anything_else_is(before: bytes, count: int) -> None:
    def filled(*, as_run: bool) -> tuple[object, ...]:
        buffer, position = FetchBuffer(), position_at(0)
        if before:
            buffer.add(FetchedPartition(ZERO, 7, 0, memoryview(before), broker=5), position)
        offset = 3 if before else 0
        records = memoryview(b"".join(batch(2, offset + 2 * number, epoch=number) for number in range(count)))
        stored = buffer.add_run(ZERO, offset, records, position, BROKER) if as_run else None
        assert (stored is not None) == (as_run and NATIVE)
        if stored is None:
            buffer.add(FetchedPartition(ZERO, 7, offset, records, broker=BROKER), position)
        part = buffer.of(ZERO)
        assert part is not None
        found = part.end, part.epoch, part._senders, part.is_arriving, buffer.bytes, buffer.take_filled(9) == [part]
        part.decode(100)
        part.decode(100)
        taken, after = part.take(100)
        return *found, taken, after, part.taken_epoch

    assert filled(as_run=True) == filled(as_run=False)


@pytest.mark.parametrize(
    ("records", "offset"),
    [
        (batch(3), 1),
        (batch(3, codec=Codec.GZIP), 0),
        (batch(3) + batch(3, 3, codec=Codec.GZIP), 0),
        (batch(3) + batch(3, 3)[:-1], 0),
        (batch(3) + bytes(5), 0),
        (bytes(100), 0),
    ],
    ids=["stale", "packed", "a packed one behind", "cut off", "bytes behind", "no batch"],
)
def test_what_is_no_single_run_is_not_stored(records: bytes, offset: int) -> None:
    buffer, position = FetchBuffer(), position_at(0)
    assert buffer.add_run(ZERO, offset, memoryview(records), position, BROKER) is None
    part = buffer.of(ZERO)
    assert part is not None
    assert (part.end, part.empty, buffer.bytes, part._senders) == (0, True, 0, ())
    assert not buffer.has_touched


def test_nothing_is_stored_behind_an_error() -> None:
    buffer, position = FetchBuffer(), position_at(0)
    buffer.fail(ZERO, position, RequestTimedOut("no answer"))
    assert buffer.add_run(ZERO, 0, memoryview(batch(3)), position, BROKER) is None
