"""Planning fetches, judging responses, buffering: pure functions and values, without I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, cast
from uuid import UUID

import pytest

from aiokc.config import ClientConfig
from aiokc.core.cluster.snapshot import Cluster
from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.partition.fetched_partition import FetchedPartition, Limits
from aiokc.core.fetch.planner import Demand, FetchPlanner
from aiokc.core.fetch.response import Verdict, verdict
from aiokc.core.fetch.session import FetchPlan
from aiokc.core.subscription.state import Subscription
from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError, CorruptRecord
from aiokc.records import NewRecord, encode_batch, encode_control_batch
from aiokc.records.transactions import ControlType
from aiokc.types import EARLIEST, Broker, PartitionInfo, TopicInfo, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID_A, ID_B = UUID(int=10), UUID(int=11)


def cluster(leaders: dict[TopicPartition, int | None], ids: dict[str, UUID] | None = None) -> Cluster:
    topics: dict[str, TopicInfo] = {}
    for tp, leader in leaders.items():
        info = topics.setdefault(tp.topic, TopicInfo(tp.topic, {}, (ids or {}).get(tp.topic)))
        info.partitions[tp.partition] = PartitionInfo(tp.topic, tp.partition, leader, 3)
    nodes = {1, 2} | {leader for leader in leaders.values() if leader is not None}
    return Cluster(1, brokers={node: Broker(node, "h", 9000 + node) for node in nodes}, topics=topics)


def reading(*partitions: TopicPartition, at: int = 0) -> Subscription:
    subscription = Subscription()
    subscription.assign(partitions)
    for tp in partitions:
        subscription.seek(tp, at)
    return subscription


class Planned(NamedTuple):
    """The plan of a planner that has seen nothing else."""

    plans: list[FetchPlan]
    without_leader: list[TopicPartition]
    short_of_room: bool


def plan(
    snapshot: Cluster,
    subscription: Subscription,
    buffer: FetchBuffer | None = None,
    *,
    busy: tuple[int, ...] | dict[int, int] = (),
    hurried: bool = True,
    waits: frozenset[TopicPartition] | bool = True,
    has_more: tuple[int, ...] = (),
    **options: Any,
) -> Planned:
    in_flight = busy if isinstance(busy, dict) else dict.fromkeys(busy, 0)
    planner = FetchPlanner(subscription, buffer or FetchBuffer(), ClientConfig(**options))
    while planner.look(snapshot, 0.0, 10).more:
        pass
    for node_id in has_more:
        planner.answered(node_id, has_more=True)
    demand = Demand(hurried, waits is not False, None if isinstance(waits, bool) else waits)
    plans = planner.plan(in_flight, 0.0, demand)
    return Planned(plans.fetches, list(plans.without_leader), plans.resume_at is not None)


def asked(planned: Planned) -> dict[int, list[tuple[TopicPartition, int]]]:
    return {plan.node_id: [(target.tp, target.offset) for target in plan.session.asked] for plan in planned.plans}


def most(planned: Planned) -> list[int]:
    return [plan.max_bytes for plan in planned.plans]


def batch(first: int, count: int, size: int = 10, **fields: Any) -> bytes:
    return encode_batch([NewRecord(value=bytes(size)) for _ in range(count)], base_offset=first, **fields)


def fetched(
    subscription: Subscription, tp: TopicPartition, offset: int, records: bytes, **fields: Any
) -> FetchedPartition:
    return FetchedPartition(tp, subscription[tp].token, offset, memoryview(records), **fields)


def add(
    buffer: FetchBuffer, subscription: Subscription, tp: TopicPartition, offset: int, records: bytes, **fields: Any
) -> None:
    buffer.add(fetched(subscription, tp, offset, records, **fields), subscription[tp])


# Planning


def test_each_leader_is_asked_for_all_of_its_partitions_at_once() -> None:
    subscription = reading(A0, A1, B0, at=7)
    assert asked(plan(cluster({A0: 1, A1: 2, B0: 1}), subscription)) == {1: [(A0, 7), (B0, 7)], 2: [(A1, 7)]}


def test_partitions_of_a_broker_that_is_gone_are_looked_at_again() -> None:
    """Also if no metadata say so: only a response had named it, as their leader, and it is none."""
    planner = FetchPlanner(reading(A0, B0), FetchBuffer(), ClientConfig())
    assert not planner.look(cluster({A0: 9, B0: 2}), 0.0, most=2).more
    assert not planner.look(cluster({A0: 1, B0: 2}), 0.0, most=1).more
    assert asked(Planned(planner.plan({}, 0.0).fetches, [], False)) == {1: [(A0, 0)], 2: [(B0, 0)]}


def test_a_replica_is_avoided_by_the_time_that_its_fetch_was_given_at_most() -> None:
    """A process that was stopped for hours finds that all Fetches in flight have failed."""
    planner = FetchPlanner(reading(A0), FetchBuffer(), ClientConfig(request_timeout_ms=30_000))
    planner.avoided.named(2, with_rack=True)
    planner.rest(2, 10_000.0, 1.0, took=9_000.0)
    assert planner.avoided.is_avoided(2, 10_300.9)
    assert not planner.avoided.is_avoided(2, 10_301.0)


def test_only_what_a_new_snapshot_changes_is_looked_at_again() -> None:
    """Ten thousand partitions, and a refresh of the metadata that changes nothing, cost nothing."""
    planner = FetchPlanner(subscription := reading(A0, A1, B0), FetchBuffer(), ClientConfig())
    first = cluster({A0: 1, A1: 1, B0: 2})
    assert planner.look(first, 0.0, most=2).more, "one is left"
    assert not planner.look(first, 0.0, most=1).more
    same = replace(first, version=2, topics=dict(first.topics))
    assert not planner.look(same, 0.0, most=0).more, "nothing to look at"
    moved = replace(same, version=3, topics={**same.topics, **cluster({B0: 1}).topics})
    assert planner.look(moved, 0.0, most=0).more
    assert not planner.look(moved, 0.0, most=1).more, "the one partition of b"
    assert asked(Planned(planner.plan({}, 0.0).fetches, [], False)) == {1: [(A0, 0), (A1, 0), (B0, 0)]}
    planner.look(replace(moved, version=4, brokers={1: moved.brokers[1]}), 0.0, most=0)
    assert planner.look(replace(moved, version=5), 0.0, most=len(subscription.assigned) - 1).more, (
        "a broker is back: all of it"
    )


def test_a_broker_with_a_fetch_in_flight_is_not_asked_again() -> None:
    assert asked(plan(cluster({A0: 1, A1: 2}), reading(A0, A1), busy=(1,))) == {2: [(A1, 0)]}


def test_what_can_not_be_fetched_is_left_out() -> None:
    subscription = Subscription()
    subscription.subscribe(["a", "b"])
    subscription.replace([A0, A1, B0])
    for tp in (A0, A1):
        subscription.seek(tp, 0)
    subscription.pause(A0, True)
    subscription.block([A1])
    subscription.await_reset(B0, EARLIEST)
    assert plan(cluster({A0: 1, A1: 1, B0: 1}), subscription).plans == []


def test_a_partition_without_leader_is_named_and_delays_no_other() -> None:
    planned = plan(cluster({A0: None, A1: 1}), reading(A0, A1, B0))
    assert asked(planned) == {1: [(A1, 0)]}
    assert planned.without_leader == [A0, B0]


def test_a_partition_that_waits_for_its_retry_is_left_alone() -> None:
    subscription = reading(A0, A1)
    subscription.retry_later([A0], at=5.0)
    assert asked(plan(cluster({A0: 1, A1: 1}), subscription)) == {1: [(A1, 0)]}


def test_reading_goes_on_behind_what_is_buffered() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    add(buffer, subscription, A0, 0, batch(0, 5))
    assert asked(plan(cluster({A0: 1}), subscription, buffer)) == {1: [(A0, 5)]}


def test_a_full_buffer_stops_reading_ahead_but_starves_no_partition() -> None:
    subscription, buffer = reading(A0, A1), FetchBuffer()
    add(buffer, subscription, A0, 0, batch(0, 5, size=1000))
    planned = plan(cluster({A0: 1, A1: 1}), subscription, buffer, fetch_buffer_bytes=1000)
    assert asked(planned) == {1: [(A1, 0)]}
    assert planned.short_of_room
    assert planned.plans[0].max_wait_ms < ClientConfig().fetch_max_wait_ms, "it must not park while others want room"


def test_a_full_buffer_asks_for_nothing_while_there_are_records_to_take() -> None:
    """Otherwise each partition without records would get its share on top, and a thousand of them a thousand shares."""
    subscription, buffer = reading(A0, A1), FetchBuffer()
    add(buffer, subscription, A0, 0, batch(0, 5, size=1000))
    planned = plan(cluster({A0: 1, A1: 1}), subscription, buffer, waits=False, fetch_buffer_bytes=1000)
    assert asked(planned) == {}
    assert planned.short_of_room


def test_a_full_buffer_asks_only_for_what_a_call_waits_for() -> None:
    subscription, buffer = reading(A0, A1, B0), FetchBuffer()
    add(buffer, subscription, A0, 0, batch(0, 5, size=1000))
    snapshot = cluster({A0: 1, A1: 1, B0: 1})
    planned = plan(snapshot, subscription, buffer, waits=frozenset({B0, A0}), fetch_buffer_bytes=1000)
    assert asked(planned) == {1: [(B0, 0)]}


def test_a_fetch_asks_for_no_more_than_there_is_room() -> None:
    subscription, buffer = reading(A0, A1), FetchBuffer()
    add(buffer, subscription, A0, 0, batch(0, 1, size=300_000))
    snapshot, sizes = cluster({A0: 1, A1: 1}), cast(dict[str, Any], {"fetch_buffer_bytes": 500_000})
    assert plan(snapshot, subscription, buffer, **sizes).plans[0].max_bytes == 125_000, "what is set aside"
    more = plan(snapshot, subscription, buffer, has_more=(1,), **sizes).plans[0].max_bytes
    assert 190_000 < more < 200_000, "and what is free"


def test_a_full_buffer_does_not_hurry_the_broker_while_no_call_takes_from_it() -> None:
    subscription, buffer = reading(A0, A1), FetchBuffer()
    add(buffer, subscription, A0, 0, batch(0, 5, size=1000))
    planned = plan(cluster({A0: 1, A1: 1}), subscription, buffer, hurried=False, fetch_buffer_bytes=1000)
    assert planned.plans[0].max_wait_ms == ClientConfig().fetch_max_wait_ms


def test_all_fetches_in_flight_and_the_buffer_share_one_bound() -> None:
    """fetch_buffer_bytes holds "frames in flight included". A quarter is set aside for one poll of each broker. Of the
    rest, each broker that has more gets half of its share: the other half is for what it sent before.
    """
    subscription, snapshot = reading(A0, A1), cluster({A0: 1, A1: 2})
    sizes: dict[str, Any] = {"fetch_buffer_bytes": 800_000}
    assert most(plan(snapshot, subscription, **sizes)) == [100_000, 100_000]
    assert most(plan(snapshot, subscription, has_more=(1,), **sizes)) == [400_000, 100_000]
    assert most(plan(snapshot, subscription, has_more=(1, 2), **sizes)) == [250_000, 250_000]
    assert most(plan(snapshot, subscription, busy={2: 100_000}, has_more=(1,), **sizes)) == [400_000]
    assert most(plan(snapshot, subscription, busy={2: 600_000}, has_more=(1,), **sizes)) == [200_000]


def test_no_option_is_passed_over_for_the_size_of_a_fetch() -> None:
    subscription, snapshot = reading(A0, A1), cluster({A0: 1, A1: 1})
    assert most(plan(snapshot, subscription, has_more=(1,), fetch_max_bytes=100_000)) == [100_000]
    assert most(plan(snapshot, subscription, max_partition_fetch_bytes=1000)) == [2000], "no more than that can come"


@pytest.mark.parametrize("brokers", [1, 3, 8, 50])
def test_a_backlog_is_read_ahead_however_many_brokers_are_idle(brokers: int) -> None:
    """Their polls are parked; broker 1 answers each Fetch in full, and is asked again until the buffer is full."""
    partitions = [TopicPartition("a", number) for number in range(brokers)]
    subscription, buffer, budget = reading(*partitions), FetchBuffer(), 1_000_000
    leaders: dict[TopicPartition, int | None] = {tp: tp.partition + 1 for tp in partitions}
    planner = FetchPlanner(subscription, buffer, ClientConfig(fetch_buffer_bytes=budget))
    busy: dict[int, int] = {}
    resume_at: int | None = None

    def send() -> None:
        nonlocal resume_at
        while planner.look(cluster(leaders), 0.0, 10).more:
            pass
        plans = planner.plan(busy, 0.0)
        resume_at = plans.resume_at
        busy.update((plan.node_id, plan.max_bytes) for plan in plans.fetches)
        assert buffer.bytes + sum(busy.values()) <= budget

    def is_room_back() -> bool:
        return resume_at is not None and buffer.bytes <= resume_at

    send()
    assert len(busy) == brokers
    offset = 0
    for _ in range(3):
        while 1 in busy:
            records = batch(offset, 1, size=max(busy.pop(1) - 200, 0))
            add(buffer, subscription, partitions[0], offset, records)
            planner.answered(1, has_more=True)
            offset += 1
            send()
        assert buffer.bytes > budget // 2
        assert not is_room_back()
        assert len(take(buffer, subscription)) > 1
        assert is_room_back()
        send()
        assert 1 in busy
        assert not is_room_back(), "that changes nothing any more"


def test_a_partition_that_was_served_comes_last_and_one_without_records_costs_nothing() -> None:
    subscription, buffer = reading(A0, A1, B0), FetchBuffer()
    for tp in (A0, A1):
        add(buffer, subscription, tp, 0, batch(0, 2))
    add(buffer, subscription, B0, 0, b"")
    (first, position), _ = buffer.servable(subscription)
    first.decode(1)
    subscription.hand_out(first.tp, first.take(1)[1], None)
    buffer.served(first, position)
    assert [part.tp for part, _ in buffer.servable(subscription)] == [A1, A0]
    first.decode(1)
    subscription.hand_out(first.tp, first.take(1)[1], None)
    buffer.served(first, position)
    assert [part.tp for part, _ in buffer.servable(subscription)] == [A1]
    assert buffer._partitions.keys() == {A1}
    assert buffer.frontier(A0, position)[0] == 2
    add(buffer, subscription, A0, 2, batch(2, 1))
    assert take(buffer, subscription) == [0, 1, 2], "of A1, then of A0"


def test_a_range_is_not_read_past_its_end() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    subscription[A0].until = 5
    assert asked(plan(cluster({A0: 1}), subscription, buffer)) == {1: [(A0, 0)]}
    add(buffer, subscription, A0, 0, batch(0, 5))
    assert asked(plan(cluster({A0: 1}), subscription, buffer)) == {}


def test_topic_ids_travel_where_all_are_known() -> None:
    """KIP-516: from version 13 on a Fetch names topics by id only."""
    snapshot = cluster({A0: 1, B0: 1}, {"a": ID_A, "b": ID_B})
    fetch = plan(snapshot, reading(A0, B0)).plans[0]
    assert fetch.session.max_version is None
    assert [topic.topic_id for topic in fetch.request(13, ClientConfig()).topics] == [ID_A, ID_B]
    snapshot = cluster({A0: 1, B0: 1}, {"a": ID_A})
    fetch = plan(snapshot, reading(A0, B0)).plans[0]
    assert fetch.session.max_version == 12
    assert [topic.topic for topic in fetch.request(12, ClientConfig()).topics] == ["a", "b"]


def test_metadata_that_know_no_leader_epoch_any_more_are_believed() -> None:
    """A broker without that epoch says -1. Responses are judged by the epoch in the request, which must be this one."""
    subscription = reading(A0)
    planner = FetchPlanner(subscription, FetchBuffer(), ClientConfig())
    for version, epoch in enumerate((3, None, 3), 1):
        snapshot = cluster({A0: 1})
        snapshot.topics["a"].partitions[0] = PartitionInfo("a", 0, 1, epoch)
        while planner.look(replace(snapshot, version=version), 0.0, 10).more:
            pass
        (fetch,) = planner.plan({}, 0.0).fetches
        asked_with = -1 if epoch is None else epoch
        assert [target.leader_epoch for target in fetch.session.asked] == [asked_with]
        assert subscription[A0].checked_epoch == epoch


def test_the_request_carries_epoch_isolation_and_limits() -> None:
    snapshot = cluster({A0: 1})
    config = ClientConfig(isolation_level="read_committed", max_partition_fetch_bytes=77, fetch_min_bytes=9)
    request = plan(snapshot, reading(A0, at=4)).plans[0].request(18, config)
    (partition,) = request.topics[0].partitions
    assert (partition.current_leader_epoch, partition.fetch_offset, partition.partition_max_bytes) == (3, 4, 77)
    assert (request.isolation_level, request.min_bytes) == (1, 9)


# Responses


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NONE, Verdict.DATA),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Verdict.REFRESH),
        (ErrorCode.FENCED_LEADER_EPOCH, Verdict.REFRESH),
        (ErrorCode.UNKNOWN_TOPIC_ID, Verdict.REFRESH),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Verdict.REFRESH),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Verdict.RETRY),
        (ErrorCode.OFFSET_OUT_OF_RANGE, Verdict.OUT_OF_RANGE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Verdict.FAIL),
        (ErrorCode.CORRUPT_MESSAGE, Verdict.FAIL),
        (12345, Verdict.FAIL),
    ],
)
def test_verdicts(code: int, expected: Verdict) -> None:
    assert verdict(code) is expected


# Buffering


def take(buffer: FetchBuffer, subscription: Subscription, count: int = 100) -> list[int]:
    """Decode and take, as the fetcher does; return the offsets."""
    offsets: list[int] = []
    for part, _ in buffer.servable(subscription):
        while len(part.ready) < count and part.undecoded:
            part.decode(3)
        records, after = part.take(count)
        subscription.hand_out(part.tp, after, None)
        offsets += [record.offset for record in records]
    buffer.settle()
    return offsets


def test_records_come_in_order_over_batches_and_answers() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    add(buffer, subscription, A0, 0, batch(0, 5) + batch(5, 2))
    add(buffer, subscription, A0, 7, batch(7, 3))
    assert take(buffer, subscription, 4) == [0, 1, 2, 3]
    assert subscription[A0].position == 4
    assert take(buffer, subscription) == [4, 5, 6, 7, 8, 9]
    assert (subscription[A0].position, buffer.bytes) == (10, 0)


def test_a_batch_that_starts_before_the_position_is_cut() -> None:
    subscription, buffer = reading(A0, at=3), FetchBuffer()
    add(buffer, subscription, A0, 3, batch(0, 5))
    assert take(buffer, subscription) == [3, 4]


def test_compaction_leaves_a_gap_and_the_position_passes_it() -> None:
    """The position after a batch is the batch's end, whatever compaction removed from it."""
    subscription, buffer = reading(A0), FetchBuffer()
    add(buffer, subscription, A0, 0, encode_batch([NewRecord(value=b"x")], base_offset=0, last_offset_delta=9))
    assert take(buffer, subscription) == [0]
    assert subscription[A0].position == 10


def test_an_answer_for_another_offset_is_stale() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    add(buffer, subscription, A0, 0, batch(0, 5))
    add(buffer, subscription, A0, 0, batch(0, 5))
    assert take(buffer, subscription) == [0, 1, 2, 3, 4]


def test_a_seek_drops_what_is_buffered() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    late = fetched(subscription, A0, 0, batch(0, 5))
    buffer.add(late, subscription[A0])
    subscription.seek(A0, 2)
    assert take(buffer, subscription) == []
    assert asked(plan(cluster({A0: 1}), subscription, buffer)) == {1: [(A0, 2)]}
    assert (buffer.bytes, subscription.get(A0, late.token)) == (0, None)
    add(buffer, subscription, A0, 2, batch(0, 5))
    assert take(buffer, subscription) == [2, 3, 4]


def test_what_is_paused_stays_buffered() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    add(buffer, subscription, A0, 0, batch(0, 2))
    subscription[A0].paused = True
    assert plan(cluster({A0: 1}), subscription, buffer).plans == []
    assert take(buffer, subscription) == []
    subscription[A0].paused = False
    assert take(buffer, subscription) == [0, 1]


def test_good_records_come_before_the_error() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    broken = bytearray(batch(2, 2))
    broken[-1] ^= 1
    add(buffer, subscription, A0, 0, batch(0, 2) + bytes(broken) + batch(4, 2))
    assert take(buffer, subscription) == [0, 1]
    (part,) = (part for part, _ in buffer.servable(subscription))
    assert isinstance(part.error, CorruptRecord)
    assert (part.error.topic, part.error.partition, part.error.offset) == ("a", 0, 2)
    assert asked(plan(cluster({A0: 1}), subscription, buffer)) == {}, "nothing is read past it"
    buffer.clear_error(part.error)
    assert asked(plan(cluster({A0: 1}), subscription, buffer)) == {1: [(A0, 2)]}


def test_an_error_of_the_broker_waits_behind_the_records() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    add(buffer, subscription, A0, 0, batch(0, 2))
    buffer.fail(A0, subscription[A0], BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert take(buffer, subscription) == [0, 1]
    (part,) = (part for part, _ in buffer.servable(subscription))
    assert part.at_error
    assert asked(plan(cluster({A0: 1}), subscription, buffer)) == {}


def test_an_error_that_partitions_share_leaves_the_records_before_it() -> None:
    """One request fails for many. Raised for one of them, the error must not drop what another has unread."""
    subscription, buffer = reading(A0, A1), FetchBuffer()
    add(buffer, subscription, A1, 0, batch(0, 10))
    error = BrokerError(ErrorCode.UNSUPPORTED_VERSION)
    for tp in (A0, A1):
        buffer.fail(tp, subscription[tp], error)
    assert buffer.clear_error(error) == [(A0, subscription[A0].token)]
    kept = buffer.of(A1)
    assert kept is not None
    kept.decode(20)
    assert buffer.clear_error(error) == []
    assert len(kept.take(20)[0]) == 10
    assert buffer.clear_error(error) == [(A1, subscription[A1].token)]


def test_aborted_and_control_records_move_the_position_only() -> None:
    subscription, buffer = reading(A0), FetchBuffer()
    aborted = batch(0, 3, producer_id=5, transactional=True)
    marker = encode_control_batch(ControlType.ABORT, producer_id=5, producer_epoch=0, base_offset=3, timestamp=0)
    add(buffer, subscription, A0, 0, aborted + marker + batch(4, 1), aborted=[(5, 0)])
    assert take(buffer, subscription) == [4]
    assert subscription[A0].position == 5


def test_a_marker_of_a_newer_epoch_belongs_to_the_position_behind_it() -> None:
    """KIP-320: otherwise the leader would be asked where the older epoch ends. That is before the position, and would
    mean the loss of nothing but the marker.
    """
    subscription, buffer = reading(A0), FetchBuffer()
    marker = encode_control_batch(
        ControlType.COMMIT, producer_id=5, producer_epoch=0, base_offset=3, timestamp=0, leader_epoch=2
    )
    add(buffer, subscription, A0, 0, batch(0, 3, leader_epoch=1) + marker + batch(4, 1, leader_epoch=2))
    assert buffer.frontier(A0, subscription[A0]) == (5, 2, True)
    (part,) = (part for part, _ in buffer.servable(subscription))
    part.decode(3)
    assert (len(part.take(2)[0]), part.taken_epoch) == (2, 1)
    part.decode(1)
    assert (part.take(1)[1], part.taken_epoch) == (4, 2)


def test_crcs_are_checked_unless_told_not_to() -> None:
    broken = bytearray(batch(0, 1))
    broken[17] ^= 0xFF  # the CRC itself
    for check, expected in ((True, []), (False, [0])):
        subscription, buffer = reading(A0), FetchBuffer(Limits(check_crcs=check))
        add(buffer, subscription, A0, 0, bytes(broken))
        assert take(buffer, subscription) == expected


def test_crcs_of_aborted_batches_are_checked_unless_told_not_to() -> None:
    broken = bytearray(batch(0, 3, producer_id=5, transactional=True))
    broken[17] ^= 0xFF  # the CRC itself
    for check, expected in ((True, []), (False, [3])):
        subscription, buffer = reading(A0), FetchBuffer(Limits(check_crcs=check))
        add(buffer, subscription, A0, 0, bytes(broken) + batch(3, 1), aborted=[(5, 0)])
        assert take(buffer, subscription) == expected


def test_a_leader_whose_address_is_not_known_is_none_yet() -> None:
    snapshot = cluster({A0: 1, A1: 2})
    snapshot = replace(snapshot, brokers={1: snapshot.brokers[1]})
    planned = plan(snapshot, reading(A0, A1))
    assert asked(planned) == {1: [(A0, 0)]}
    assert planned.without_leader == [A1]


def test_a_partition_that_goes_on_is_asked_for_after_those_that_wait() -> None:
    """A broker without sessions serves in the order of the request: what was served last goes to its end."""
    subscription, buffer = reading(A0, A1), FetchBuffer()
    planner = FetchPlanner(subscription, buffer, ClientConfig())
    snapshot = cluster({A0: 1, A1: 1})
    while planner.look(snapshot, 0.0, 10).more:
        pass
    assert list(planner._nodes[1].wanted) == [A0, A1]
    subscription.seek(A0, 5)
    while planner.look(snapshot, 0.0, 10).more:
        pass
    assert [(tp, target.offset) for tp, target in planner._nodes[1].wanted.items()] == [(A1, 0), (A0, 5)]


def test_a_partition_that_waits_for_its_validation_is_asked_for_no_more() -> None:
    """KIP-320: its broker has said that the logs diverge. Asked again, it would say so at once, and so without end."""
    planner = FetchPlanner(subscription := reading(A0, A1), FetchBuffer(), ClientConfig())
    snapshot = cluster({A0: 1, A1: 1})
    planner.look(snapshot, 0.0, 10)
    assert [target.tp for target in planner.wanted(1)] == [A0, A1]
    subscription.await_validation(A0)
    planner.look(snapshot, 0.0, 10)
    assert [target.tp for target in planner.wanted(1)] == [A1]
    subscription.validated(A0, 3)
    planner.look(snapshot, 0.0, 10)
    assert [target.tp for target in planner.wanted(1)] == [A1, A0]


def test_a_partition_was_heard_of_when_one_of_the_brokers_asked_for_it_last_answered() -> None:
    planner = FetchPlanner(reading(A0), FetchBuffer(), ClientConfig())
    assert planner.heard_at(A0) is None
    first = cluster({A0: 1})
    for snapshot in (first, replace(cluster({A0: 2}), version=2)):  # the leader moves
        planner.look(snapshot, 0.0, 10)
        planner.plan({}, 0.0)
    former, present = planner.session(1), planner.session(2)
    assert planner.heard_at(A0) is None, "neither has answered"
    former.heard_at = 5.0
    assert planner.heard_at(A0) == 5.0
    present.heard_at = 7.0
    assert planner.heard_at(A0) == 7.0
    assert planner.heard_at(A1) is None
