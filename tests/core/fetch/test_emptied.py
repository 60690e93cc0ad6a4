"""What was handed out to its end is not looked at again by the planner, and is planned as if it had been."""

from __future__ import annotations

import gc

import pytest

from aiokc.config import ClientConfig
from aiokc.core.cluster.snapshot import Cluster
from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.partition.fetched_partition import FetchedPartition
from aiokc.core.fetch.planner import Demand, FetchPlanner
from aiokc.core.fetch.session import FetchPlan
from aiokc.core.subscription.state import Subscription
from aiokc.records import NewRecord, encode_batch
from aiokc.types import Broker, PartitionInfo, TopicInfo, TopicPartition

from ...suite.untracking import UNTRACKS

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = 3


class Reading:
    """Two partitions of one broker, planned, with records of both fetched and planned for."""

    def __init__(self, epoch: int = EPOCH, most: int = 100) -> None:
        infos = {tp.partition: PartitionInfo("t", tp.partition, 1, EPOCH) for tp in (ZERO, ONE)}
        self.cluster = Cluster(1, brokers={1: Broker(1, "h", 9092)}, topics={"t": TopicInfo("t", infos)})
        self.subscription = Subscription()
        self.subscription.assign([ZERO, ONE])
        self.buffer = FetchBuffer()
        config = ClientConfig(fetch_buffer_bytes=4 << 20, max_partition_fetch_bytes=1 << 20)
        self.planner = FetchPlanner(self.subscription, self.buffer, config)
        for tp in (ZERO, ONE):
            self.subscription.seek(tp, 0)
        self.look(most)
        self.planner.plan({}, 0.0)
        for tp in (ZERO, ONE):
            records = memoryview(encode_batch([NewRecord(b"v")] * 9, leader_epoch=epoch))
            self.buffer.add(FetchedPartition(tp, self.subscription[tp].token, 0, records), self.subscription[tp])
        self.look(most)

    def look(self, most: int = 100) -> None:
        while self.planner.look(self.cluster, 0.0, most).more:
            pass

    def hand_out(self, tp: TopicPartition, count: int = 9) -> None:
        buffer, position = next(part for part in self.buffer.servable(self.subscription) if part[0].tp == tp)
        buffer.decode(count)
        records, after = buffer.take(count)
        assert len(records) == count
        self.subscription.hand_out(tp, after, buffer.taken_epoch)
        self.buffer.served(buffer, position)

    def fetched_while_full(self) -> list[FetchPlan]:
        """The Fetches for an application that waits, while others fill the buffer: for what has nothing buffered."""
        return self.planner.plan({2: 1 << 30}, 0.0, Demand(waits=True)).fetches


def asked(plans: list[FetchPlan]) -> list[tuple[TopicPartition, int]]:
    return [(target.tp, target.offset) for plan in plans for target in plan.session.asked]


def test_it_is_not_touched_and_is_fetched_from_the_same_offset_on() -> None:
    reading = Reading()
    reading.subscription.take_touched()
    reading.hand_out(ZERO)
    assert not reading.buffer.has_touched
    reading.look()
    assert asked(reading.fetched_while_full()) == [(ZERO, 9)], "ONE has records buffered"
    reading.hand_out(ONE)
    reading.look()
    assert asked(reading.fetched_while_full()) == [(ZERO, 9), (ONE, 9)]


def test_what_is_left_of_it_keeps_it_among_those_read_ahead() -> None:
    reading = Reading()
    reading.hand_out(ZERO, count=4)
    reading.look()
    assert asked(reading.fetched_while_full()) == []


@pytest.mark.parametrize("most", [1, 100])
def test_what_was_filled_again_before_the_look_is_read_ahead(most: int) -> None:
    reading = Reading(most=most)
    reading.hand_out(ZERO)
    position = reading.subscription[ZERO]
    records = memoryview(encode_batch([NewRecord(b"v")], base_offset=9, leader_epoch=EPOCH))
    reading.buffer.add(FetchedPartition(ZERO, position.token, 9, records), position)
    reading.look(most)
    assert asked(reading.fetched_while_full()) == []
    assert dict(asked(reading.planner.plan({}, 0.0).fetches)) == {ZERO: 10, ONE: 9}


def test_a_seek_after_it_counts() -> None:
    reading = Reading()
    reading.hand_out(ZERO)
    reading.subscription.seek(ZERO, 2)
    reading.look()
    assert asked(reading.fetched_while_full()) == [(ZERO, 2)]


def test_what_was_revoked_since_is_forgotten() -> None:
    reading = Reading()
    reading.hand_out(ZERO)
    reading.subscription.assign([ONE])
    reading.look()
    assert [target.tp for target in reading.planner.wanted(1)] == [ONE]


def test_where_the_next_fetch_would_carry_another_epoch_it_is_looked_at() -> None:
    """The batches have no epoch, and the position has one: by the position, the broker can tell a divergence."""
    reading = Reading(epoch=-1)
    position = reading.subscription[ZERO]
    position.leader_epoch, position.epoch_is_read, position.checked_epoch = 2, True, EPOCH
    reading.hand_out(ZERO)
    assert reading.buffer.has_touched
    reading.look()
    assert {target.tp: target.last_epoch for target in reading.planner.wanted(1)} == {ZERO: 2, ONE: -1}


def test_the_targets_are_nothing_for_the_collector_of_garbage() -> None:
    planner = Reading().planner
    assert [gc.is_tracked(target) for target in planner.wanted(1)] == [not UNTRACKS] * 2
    (plan,) = planner.plan({}, 0.0).fetches
    asked = [part for topic in plan.session.topics(17, 1) for part in topic.partitions]
    assert [gc.is_tracked(part) for part in asked] == [not UNTRACKS] * 2
