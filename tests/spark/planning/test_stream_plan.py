"""Which offsets a micro-batch has, on a cluster that the test plays, with a clock that the test moves."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeAlias
from uuid import UUID

import pytest

from aiokc import EARLIEST, LATEST, TopicPartition
from aiokc.errors import ConfigError
from spark_source.data_loss import DataLoss
from spark_source.offsets import ANCHOR, OffsetJson, Offsets
from spark_source.options.bounds import AtCommitted, AtOffset, AtTime, Bound
from spark_source.options.topic_choice import TopicChoice, subscribe
from spark_source.planning.batch_plan import batch_ranges
from spark_source.planning.stream_plan import StreamPlan

from .played_cluster import A0, A1, B0, FROM_EARLIEST, OPTIONS, PlayedCluster, stored


def first_end(plan: StreamPlan) -> OffsetJson:
    """Return the end of the first batch of a new query."""
    return stored(plan.latest(stored(plan.initial())))


def test_batches_follow_one_another() -> None:
    cluster = PlayedCluster({A0: (0, 5), A1: (2, 9)})
    plan = cluster.plan(starting=FROM_EARLIEST)

    start = stored(plan.initial())
    first = stored(plan.latest(start))
    cluster.logs[A0] = (0, 6)
    second = stored(plan.latest(first))

    assert start == {"a": {"0": 0, "1": 2}}
    assert first == {"a": {"0": 5, "1": 9}, ANCHOR: {"a": {"0": 0, "1": 2}}}
    assert second == {"a": {"0": 6, "1": 9}}
    assert plan.ranges(start, first) == {A0: (0, 5), A1: (2, 9)}
    assert plan.ranges(first, second) == {A0: (5, 6)}
    assert plan.known_ends() == {"a": {"0": 6, "1": 9}}


def test_the_initial_offset_is_resolved_once() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan()
    start = plan.initial()
    cluster.logs[A0] = (0, 50)

    assert plan.initial() == start == {"a": {"0": 5}}


def test_batch_0_is_repeated_from_where_it_started() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    died = cluster.plan()
    start = died.initial()
    cluster.logs[A0] = (0, 8)
    end = stored(died.latest(start))
    cluster.logs[A0] = (0, 20)

    restarted = cluster.plan()
    later_start = stored(restarted.initial())

    assert later_start == {"a": {"0": 20}}
    assert restarted.ranges(later_start, end) == {A0: (5, 8)}
    assert stored(restarted.latest(end)) == {"a": {"0": 20}}


def test_an_empty_batch_0_is_anchored_too() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    died = cluster.plan()
    end = stored(died.latest(stored(died.initial())))
    cluster.logs[A0] = (0, 7)

    restarted = cluster.plan()

    assert end == {"a": {"0": 5}, ANCHOR: {"a": {"0": 5}}}
    assert restarted.ranges(stored(restarted.initial()), end) == {}
    assert restarted.ranges(end, stored(restarted.latest(end))) == {A0: (5, 7)}


def test_nothing_new_is_the_very_offset_that_was_given() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan()
    end = stored(plan.latest(plan.initial()))

    assert plan.latest(end) is end


def test_new_partitions_start_at_earliest_and_are_anchored() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan()
    first = stored(plan.latest(plan.initial()))
    cluster.logs |= {A1: (0, 3)}
    cluster.sleep(10)
    second = stored(plan.latest(first))
    cluster.logs[A1] = (0, 4)

    assert second == {"a": {"0": 5, "1": 3}, ANCHOR: {"a": {"1": 0}}}
    assert plan.ranges(first, second) == cluster.plan().ranges(first, second) == {A1: (0, 3)}
    assert stored(plan.latest(second)) == {"a": {"0": 5, "1": 4}}


def test_a_topic_added_at_a_restart_starts_at_earliest_even_if_that_is_not_0() -> None:
    cluster = PlayedCluster({A0: (0, 5), B0: (40, 50)})
    end = stored(cluster.plan(choice=subscribe("a", "b")).latest({"a": {"0": 5}}))

    assert end == {"a": {"0": 5}, "b": {"0": 50}, ANCHOR: {"b": {"0": 40}}}


def test_the_checkpoint_of_sparks_own_source_has_no_anchor() -> None:
    cluster = PlayedCluster({A0: (0, 5), A1: (0, 4)})

    assert cluster.plan().ranges({"a": {"0": 2}}, {"a": {"0": 5, "1": 4}}) == {A0: (2, 5), A1: (0, 4)}


@pytest.mark.parametrize("by_pattern", [False, True])
def test_a_new_partition_of_a_batch_of_sparks_own_source_may_have_lost_its_first_records(
    by_pattern: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As when latest() finds it, and as in that source: a topic that was added to `subscribe` may be old."""
    choice = TopicChoice("subscribePattern", None, "[ab]") if by_pattern else subscribe("a", "b")
    logs = {A0: (0, 5), A1: (1, 4), B0: (2, 9)}
    start, added = {"a": {"0": 2}}, {"a": {"0": 5, "1": 4}, "b": {"0": 3}}
    lost = r"'a', partition 1: its oldest records were deleted. Wanted: offsets 0 to 4 .*; available: 1 to 4"

    with pytest.raises(DataLoss, match=lost):
        PlayedCluster(logs).plan(choice=choice).ranges(start, added)
    with caplog.at_level(logging.WARNING, logger="spark_source"):
        ranges = PlayedCluster(logs).plan(choice=choice, fail_on_data_loss=False).ranges(start, added)

    assert ranges == {A0: (2, 5), A1: (1, 4), B0: (2, 3)}
    assert re.search(lost, caplog.text)
    assert ("'b', partition 0: its oldest" in caplog.text) is by_pattern


@pytest.mark.parametrize(
    "bound",
    [
        AtOffset("startingOffsets", LATEST),
        AtOffset("startingOffsets", {A0: 5, A1: LATEST}),
        AtTime("startingTimestamp", 1_000, no_match=LATEST),
        AtCommitted("startingOffsets", "g", otherwise=EARLIEST),
    ],
)
def test_where_sparks_own_source_began_a_batch_0_is_not_guessed(bound: Bound) -> None:
    cluster = PlayedCluster({A0: (0, 5), A1: (1, 4)})
    plan = cluster.plan(starting=bound)
    start = stored(plan.initial())

    with pytest.raises(
        ConfigError, match=r"batch 0 .*planned by format\('kafka'\).*finish that batch, or .*sources/0/0"
    ):
        plan.ranges(start, {"a": {"0": 5, "1": 4}})


@pytest.mark.parametrize(
    "bound",
    [
        FROM_EARLIEST,
        AtOffset("startingOffsets", {A0: 0, A1: EARLIEST}),
        AtTime("startingTimestamp", 0),
    ],
)
def test_where_sparks_own_source_began_a_batch_0_may_be_known(bound: Bound) -> None:
    plan = PlayedCluster({A0: (0, 9), A1: (0, 9)}).plan(starting=bound)

    assert plan.ranges(stored(plan.initial()), {"a": {"0": 5, "1": 4}}) == {A0: (0, 5), A1: (0, 4)}


def test_an_idle_stream_asks_less_than_five_times_a_second() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan()
    end = plan.latest(plan.initial())
    cluster.asked, began = 0, cluster.now

    while cluster.now < began + 60:
        end = plan.latest(end)
        cluster.sleep(0.01)

    assert 60 < cluster.asked < 60 * 5


def test_a_busy_stream_hardly_waits() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan()
    end = plan.latest(plan.initial())
    began = cluster.now
    for written in range(6, 16):
        cluster.logs[A0] = (0, written)
        end = plan.latest(end)

    assert cluster.now - began < 1.0


def test_max_offsets_splits_the_backlog() -> None:
    cluster = PlayedCluster({A0: (0, 30), A1: (0, 10)})
    plan = cluster.plan(starting=FROM_EARLIEST)

    first = stored(plan.latest(plan.initial(), 8))
    second = stored(plan.latest(first, 8))

    assert first == {"a": {"0": 6, "1": 2}, ANCHOR: {"a": {"0": 0, "1": 0}}}
    assert second == {"a": {"0": 12, "1": 4}}


def test_min_offsets_are_waited_for_as_long_as_the_delay_says() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan(max_trigger_delay_ms=20_000)
    first = stored(plan.latest(plan.initial(), None, 10))
    cluster.logs[A0] = (0, 14)

    while cluster.now < 110:
        assert plan.latest(first, None, 10) is first
    cluster.logs[A0] = (0, 15)
    second = stored(plan.latest(first, None, 10))
    cluster.logs[A0] = (0, 16)
    began = cluster.now
    while plan.latest(second, None, 10) is second:
        pass

    assert second == {"a": {"0": 15}}
    assert 19 <= cluster.now - began <= 21


def test_min_offsets_hold_nothing_back_from_available_now() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan(starting=FROM_EARLIEST)
    plan.freeze()

    end = stored(plan.latest(plan.initial(), 3, 3))
    end = stored(plan.latest(end, 3, 3))

    assert end == {"a": {"0": 5}}
    assert plan.latest(end, 3, 3) is end


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (AtTime("startingTimestamp", 3_000), {"0": 3, "1": 4}),
        (AtTime("startingTimestamp", 5_500, no_match=LATEST), {"0": 5, "1": 6}),
        (AtTime("startingOffsetsByTimestamp", {A0: 1, A1: 9_000}), {"0": 1, "1": 9}),
        (AtTime("startingOffsetsByTimestamp", {A1: 9_000}, otherwise=EARLIEST), {"0": 0, "1": 9}),
        (AtOffset("startingOffsets", {A0: 2}, otherwise=LATEST), {"0": 2, "1": 10}),
        (AtCommitted("startingOffsets", "g", otherwise=EARLIEST), {"0": 3, "1": 4}),
    ],
)
def test_starts(bound: Bound, expected: dict[str, int]) -> None:
    cluster = PlayedCluster({A0: (0, 5), A1: (4, 10)})
    cluster.groups["g"] = {A0: 3}

    assert cluster.plan(starting=bound).initial() == {"a": expected}


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        (AtTime("startingTimestamp", 5_500), r"no record is that young in a-0 \(asked for 5500\).*Strategy=latest"),
        (
            AtTime("startingOffsetsByTimestamp", {A0: 1}),
            "leaves out a-1.*'startingOffsetsDefault'",
        ),
        (AtOffset("startingOffsets", {A0: 1}), "leaves out a-1: name every partition .*'startingOffsetsDefault'"),
        (AtOffset("startingOffsets", {A0: 1, A1: 1, B0: 1}), "names b-0, which this query does not read"),
        (AtOffset("startingOffsets", {A0: 1}), r"\(-2: earliest; in a stream, -1: latest\), or say what"),
        (AtCommitted("startingOffsets", "g"), "group 'g' has committed nothing for a-1; say .*startingOffsetsDefault"),
    ],
)
def test_a_missing_start_is_an_error_that_says_what_to_set(bound: Bound, message: str) -> None:
    cluster = PlayedCluster({A0: (0, 5), A1: (4, 10)})
    cluster.groups["g"] = {A0: 3}

    with pytest.raises(ConfigError, match=message):
        first_end(cluster.plan(starting=bound))


def test_a_pattern_takes_in_new_topics_and_no_internal_ones() -> None:
    cluster = PlayedCluster({A0: (0, 5), B0: (0, 3), TopicPartition("__consumer_offsets", 0): (0, 9)})
    plan = cluster.plan(choice=TopicChoice("subscribePattern", None, "[^b]+"))

    first = stored(plan.latest(plan.initial()))
    cluster.logs[TopicPartition("c", 0)] = (0, 2)
    cluster.sleep(10)
    second = stored(plan.latest(first))

    assert first == {"a": {"0": 5}, ANCHOR: {"a": {"0": 5}}}
    assert second == {"a": {"0": 5}, "c": {"0": 2}, ANCHOR: {"c": {"0": 0}}}


def test_assigned_partitions_only() -> None:
    cluster = PlayedCluster({A0: (0, 5), A1: (0, 9)})
    assigned = TopicChoice("assign", frozenset("a"), None, frozenset({A1}))

    assert cluster.plan(choice=assigned).initial() == {"a": {"1": 9}}
    for there in ({A1}, set[TopicPartition]()):
        missing = replace(assigned, partitions=frozenset({*there, TopicPartition("a", 7)}))
        with pytest.raises(ConfigError, match="option 'assign': no partition a-7 on the cluster at localhost:9092"):
            first_end(cluster.plan(choice=missing))
    missing = TopicChoice("assign", frozenset("ab"), None, frozenset({A1, B0}))
    with pytest.raises(ConfigError, match="option 'assign': no topic 'b' on the cluster"):
        first_end(cluster.plan(choice=missing))
    with pytest.raises(DataLoss, match="topic 'a', partition 0: 'assign' no longer names it"):
        cluster.plan(choice=assigned).latest({"a": {"0": 5, "1": 9}})


def idle_on_three_leaders() -> tuple[PlayedCluster, StreamPlan, OffsetJson]:
    """Return a cluster, the plan of a stream that has read all of it and asked once more, and its offset."""
    cluster = PlayedCluster({TopicPartition("a", part): (0, 5) for part in range(8)})
    cluster.brokers = 3
    plan = cluster.plan()
    end = plan.latest(plan.initial())
    plan.latest(end)
    return cluster, plan, end


def test_the_more_leaders_the_slower_an_idle_stream_asks() -> None:
    cluster, plan, end = idle_on_three_leaders()
    began = cluster.now

    plan.latest(end)

    assert cluster.now - began == pytest.approx(0.75)


@pytest.mark.parametrize("leaders", [4, 5, 100])
def test_however_many_leaders_there_are_an_idle_stream_asks_each_second(leaders: int) -> None:
    cluster = PlayedCluster({TopicPartition("a", part): (0, 5) for part in range(leaders)})
    cluster.brokers = leaders
    plan = cluster.plan()
    end = plan.latest(first_end(plan))
    began = cluster.now

    for _ in range(4):
        plan.latest(end)

    assert cluster.now - began == pytest.approx(4 * 1.0)


def test_leaders_of_what_is_not_assigned_do_not_count() -> None:
    cluster = PlayedCluster({TopicPartition("a", part): (0, 5) for part in range(10)})
    cluster.brokers = 10
    plan = cluster.plan(choice=TopicChoice("assign", frozenset("a"), None, frozenset({A0, A1})))
    end = plan.latest(first_end(plan))
    began = cluster.now

    for _ in range(4):
        plan.latest(end)

    assert cluster.now - began == pytest.approx(4 * 0.5)


def test_a_query_that_has_work_from_another_source_does_not_wait_for_an_idle_one() -> None:
    cluster, plan, end = idle_on_three_leaders()
    began = cluster.now

    for _ in range(20):
        plan.batch_begins()
        assert plan.latest(end) is end

    assert cluster.now - began == pytest.approx(20 * 0.05)


def test_available_now_reads_to_where_the_logs_ended_when_it_began() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan(starting=FROM_EARLIEST)
    plan.freeze()
    cluster.logs |= {A0: (0, 99), A1: (0, 9)}
    cluster.sleep(10)

    end = stored(plan.latest(plan.initial(), 3))
    end = stored(plan.latest(end, 3))

    assert end == {"a": {"0": 5}}
    assert plan.latest(end, 3) is end


def test_available_now_from_latest_reads_nothing() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan()
    plan.freeze()
    cluster.logs[A0] = (0, 9)
    start = plan.initial()

    assert plan.ranges(start, plan.latest(start)) == {}


def test_an_end_that_a_new_leader_does_not_know_yet_is_asked_again() -> None:
    cluster = PlayedCluster({A0: (0, 50)})
    plan = cluster.plan()
    end = stored(plan.latest(plan.initial()))
    cluster.stale = [(A0, 40), (A0, 45)]

    assert plan.latest(end) is end

    cluster.stale = [(A0, 0), (A0, 30)]
    assert plan.ranges({"a": {"0": 20}}, end | {ANCHOR: {}}) == {A0: (20, 50)}


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("hidden", [A1, B0])
def test_what_one_broker_has_not_heard_of_is_looked_for_again(
    hidden: TopicPartition, fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = PlayedCluster({A0: (0, 50), A1: (0, 9), B0: (0, 7)})
    plan = cluster.plan(choice=TopicChoice("subscribePattern", None, "[ab]"), fail_on_data_loss=fail)
    end = first_end(plan)
    cluster.sleep(10)
    cluster.hidden = [hidden, hidden]

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        assert plan.latest(end) is end

    assert not cluster.hidden
    assert f"{hidden} is missing from what a broker says; asking again" in caplog.text
    assert "data loss" not in caplog.text


def test_available_now_reads_a_partition_that_one_broker_had_not_heard_of() -> None:
    cluster = PlayedCluster({A0: (0, 10), A1: (0, 10)})
    plan = cluster.plan()
    cluster.hidden = [A1]
    plan.freeze()

    end = stored(plan.latest({"a": {"0": 5, "1": 5}}, 6))
    assert end == {"a": {"0": 8, "1": 8}}
    cluster.logs[A1] = (0, 20)
    end = stored(plan.latest(end, 6))

    assert end == {"a": {"0": 10, "1": 10}}
    assert plan.latest(end, 6) is end


@pytest.mark.parametrize("fail", [False, True])
def test_a_partition_that_is_hidden_while_a_batch_is_planned_is_looked_for_again(fail: bool) -> None:
    cluster = PlayedCluster({A0: (0, 50), A1: (0, 9)})
    cluster.unknown = [A1]
    cluster.hidden = [A1]
    plan = cluster.plan(fail_on_data_loss=fail)

    assert plan.ranges({"a": {"0": 20, "1": 0}}, {"a": {"0": 50, "1": 9}}) == {A0: (20, 50), A1: (0, 9)}


def cut(cluster: PlayedCluster) -> None:
    cluster.logs[A0] = (0, 40)


def deleted(cluster: PlayedCluster) -> None:
    del cluster.logs[A0]


def partition_gone(cluster: PlayedCluster) -> None:
    del cluster.logs[A0]
    cluster.logs[A1] = (0, 5)


def recreated(cluster: PlayedCluster) -> None:
    cluster.ids["a"] = UUID(int=2)
    cluster.logs[A0] = (0, 70)


def trimmed_partition_added(cluster: PlayedCluster) -> None:
    cluster.logs[A1] = (3, 9)


Event: TypeAlias = Callable[[PlayedCluster], None]
LOSSES: list[tuple[Event, str, OffsetJson, dict[TopicPartition, tuple[int, int]]]] = [
    (cut, "0: its log ends before what .* Wanted: from offset 50 on; available: 0 to 40", {"a": {"0": 40}}, {}),
    (deleted, "0: it is gone. Wanted: from offset 50 on; available: nothing of it", {}, {}),
    (partition_gone, "0: it is gone", {"a": {"1": 5}}, {A1: (0, 5)}),
    (
        recreated,
        "0: its topic .* again: its id was .*1 and .*2.*available: 0 to 70",
        {"a": {"0": 70}},
        {A0: (0, 70)},
    ),
    (trimmed_partition_added, "1: the first .* available: 3 to 9", {"a": {"0": 50, "1": 9}}, {A1: (3, 9)}),
]


AS_FROZEN: dict[Event, tuple[OffsetJson, dict[TopicPartition, tuple[int, int]]]] = {
    partition_gone: ({}, {}),
    recreated: ({"a": {"0": 50}}, {A0: (0, 50)}),
}

Frozen: TypeAlias = Literal["never", "before", "after"]
FROZEN: tuple[Frozen, ...] = ("never", "before", "after")


def plan_in_progress(event: Event, *, fail: bool, frozen: Frozen) -> tuple[StreamPlan, OffsetJson]:
    """Return the plan of a stream that has read all before the event, and its offset; frozen before or after it."""
    cluster = PlayedCluster({A0: (0, 50)})
    cluster.ids["a"] = UUID(int=1)
    plan = cluster.plan(fail_on_data_loss=fail)
    if frozen == "before":
        plan.freeze()
        end = stored(plan.latest({"a": {"0": 50}}))
    else:
        end = stored(plan.latest(plan.initial()))
    cluster.sleep(10)
    event(cluster)
    if frozen == "after":
        plan.freeze()
    return plan, end


# For a frozen plan only the partitions exist that existed when it was frozen.
EVENTS = [
    (*loss, frozen) for loss in LOSSES for frozen in FROZEN if (loss[0], frozen) != (trimmed_partition_added, "before")
]


@pytest.mark.parametrize(("event", "said", "left", "read", "frozen"), EVENTS)
def test_loss_of_data_is_an_error(event: Event, said: str, left: object, read: object, frozen: Frozen) -> None:
    plan, end = plan_in_progress(event, fail=True, frozen=frozen)

    with pytest.raises(DataLoss, match=f"topic 'a', partition {said}"):
        plan.latest(end)


@pytest.mark.parametrize(("event", "said", "left", "read", "frozen"), EVENTS)
def test_with_fail_on_data_loss_false_it_is_told_once_and_the_stream_goes_on(
    event: Event,
    said: str,
    left: OffsetJson,
    read: dict[TopicPartition, tuple[int, int]],
    frozen: Frozen,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan, end = plan_in_progress(event, fail=False, frozen=frozen)
    if frozen == "before":
        left, read = AS_FROZEN.get(event, (left, read))

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        after = stored(plan.latest(end))

    assert re.search(f"going on after data loss: topic 'a', partition {said}", caplog.text)
    assert "checkpoint" not in caplog.text, "there is nothing to do"
    assert {topic: parts for topic, parts in after.items() if topic != ANCHOR} == left
    assert plan.ranges(end, after) == read
    caplog.clear()
    assert plan.latest(after) is after
    assert not caplog.records


def test_a_short_recreated_log_is_read_to_its_own_end_though_the_end_was_frozen() -> None:
    cluster = PlayedCluster({A0: (0, 50)})
    cluster.ids["a"] = UUID(int=1)
    plan = cluster.plan(starting=FROM_EARLIEST, fail_on_data_loss=False)
    plan.freeze()
    first = stored(plan.latest(plan.initial(), 20))
    cluster.sleep(10)
    recreated(cluster)
    cluster.logs[A0] = (0, 9)

    second = stored(plan.latest(first, 20))

    assert second == {"a": {"0": 9}, ANCHOR: {"a": {"0": 0}}}
    assert plan.ranges(first, second) == {A0: (0, 9)}
    assert plan.latest(second, 20) is second


def test_a_log_cut_after_its_end_was_frozen_is_a_loss(caplog: pytest.LogCaptureFixture) -> None:
    cluster = PlayedCluster({A0: (0, 50)})
    said = "0: its log ends before where this query was to end. Wanted: offsets 20 to 50 .*; available: 0 to 40"

    def go_on(plan: StreamPlan) -> tuple[OffsetJson, OffsetJson]:
        cluster.logs[A0] = (0, 50)
        plan.freeze()
        first = stored(plan.latest(plan.initial(), 20))
        cluster.logs[A0] = (0, 40)
        return first, stored(plan.latest(first))

    with pytest.raises(DataLoss, match=said):
        go_on(cluster.plan(starting=FROM_EARLIEST))
    lenient = cluster.plan(starting=FROM_EARLIEST, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING, logger="spark_source"):
        first, second = go_on(lenient)
    assert re.search(said, caplog.text)
    assert lenient.ranges(first, second) == {A0: (20, 40)}
    caplog.clear()
    assert lenient.latest(second) is second
    assert not caplog.records


def test_a_log_cut_after_a_batch_of_it_was_planned_is_a_loss() -> None:
    cluster = PlayedCluster({A0: (0, 50)})
    plan = cluster.plan(starting=FROM_EARLIEST)
    plan.freeze()  # Spark does so first, also before it repeats a batch
    cluster.logs[A0] = (0, 40)

    with pytest.raises(DataLoss, match=r"offsets 20 to 50 .*; available: 0 to 40"):
        plan.ranges({"a": {"0": 20}}, {"a": {"0": 50}})


def test_what_is_left_after_a_loss_does_not_wait_for_more() -> None:
    """Otherwise the state of the recreated topic would be forgotten meanwhile, and its first records skipped."""
    cluster = PlayedCluster({A0: (0, 50)})
    cluster.ids["a"] = UUID(int=1)
    plan = cluster.plan(fail_on_data_loss=False)
    end = stored(plan.latest(plan.initial(), None, 100))
    cluster.sleep(10)
    recreated(cluster)

    after = stored(plan.latest(end, None, 100))

    assert after == {"a": {"0": 70}, ANCHOR: {"a": {"0": 0}}}
    assert plan.ranges(end, after) == {A0: (0, 70)}


@pytest.mark.parametrize("max_offsets", [None, 4, 1])
@pytest.mark.parametrize("until", [5, 1])
def test_a_recreated_topic_that_is_as_long_as_the_first_batch_is_read(until: int, max_offsets: int | None) -> None:
    """The batch with all of it would have the same JSON as the first one: Spark would take it for no batch."""
    cluster = PlayedCluster({A0: (0, until)})
    cluster.ids["a"] = UUID(int=1)
    plan = cluster.plan(starting=FROM_EARLIEST, fail_on_data_loss=False)
    first = stored(plan.latest(plan.initial()))
    cluster.sleep(10)
    cluster.ids["a"] = UUID(int=2)
    read: list[int] = []

    end = first
    while (after := stored(plan.latest(end, max_offsets))) != end:
        for start, stop in plan.ranges(end, after).values():
            read += range(start, stop)
        end = after

    assert read == list(range(until))
    assert end["a"] == {"0": until}


def test_an_empty_recreated_topic_costs_no_batch() -> None:
    cluster = PlayedCluster({A0: (0, 0)})
    cluster.ids["a"] = UUID(int=1)
    plan = cluster.plan(starting=FROM_EARLIEST, fail_on_data_loss=False)
    first = stored(plan.latest(plan.initial()))
    cluster.sleep(10)
    cluster.ids["a"] = UUID(int=2)

    assert plan.latest(first) == first
    cluster.logs[A0] = (0, 3)
    assert plan.ranges(first, plan.latest(first)) == {A0: (0, 3)}


def test_a_broker_that_still_knows_the_old_topic_is_no_loss() -> None:
    """The driver has heard of the new one from another broker."""
    cluster = PlayedCluster({A0: (0, 50)})
    cluster.ids["a"] = UUID(int=1)
    plan = cluster.plan(fail_on_data_loss=False)
    end = stored(plan.latest(plan.initial()))
    cluster.sleep(10)
    recreated(cluster)
    end = stored(plan.latest(end))
    assert end["a"] == {"0": 70}

    for topic_id in (1, 2, 1, 2):
        cluster.ids["a"] = UUID(int=topic_id)
        cluster.sleep(10)
        assert plan.latest(end) is end
        assert plan.topic_ids([A0]) == {"a": UUID(int=2)}

    cluster.ids["a"] = UUID(int=3)
    cluster.sleep(10)
    again = stored(plan.latest(end))
    assert again == {"a": {"0": 69}, ANCHOR: {"a": {"0": 0}}}, "that was another one, and Spark has to see it"


def test_what_to_do_depends_on_what_was_lost() -> None:
    """Started again with a checkpoint at offset 50, a query neither reads 0 to 49 of a new topic nor tells of it."""

    def told(event: Event) -> str:
        plan, end = plan_in_progress(event, fail=True, frozen="never")
        with pytest.raises(DataLoss) as lost:
            plan.latest(end)
        return str(lost.value)

    assert "set failOnDataLoss=false" in told(deleted)
    assert "set failOnDataLoss=false" in told(trimmed_partition_added)
    for event in (recreated, cut):  # who knows whether a log that is too short is a cut one
        assert "startingOffsets=earliest" in told(event)
    assert "set failOnDataLoss=false" not in told(recreated)
    assert "offset of the new topic" in told(recreated)


def test_a_batch_is_of_the_topic_that_was_there_when_it_was_planned() -> None:
    cluster = PlayedCluster({A0: (0, 50)})
    cluster.ids["a"] = UUID(int=1)
    plan = cluster.plan(starting=FROM_EARLIEST)
    start = plan.initial()
    end = stored(plan.latest(start))
    recreated(cluster)
    cluster.sleep(10)

    assert plan.topic_ids(plan.ranges(start, end)) == {"a": UUID(int=1)}
    restarted = cluster.plan(starting=FROM_EARLIEST)
    assert restarted.topic_ids(restarted.ranges(start, end)) == {"a": UUID(int=2)}


@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("has_rows", [True, False])
def test_a_topic_that_is_recreated_during_the_batch_that_is_repeated_after_a_restart(
    fail: bool, has_rows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark asks for that batch before any other, which may have only rows of another topic, or of another source."""
    cluster = PlayedCluster({A0: (0, 50)})
    cluster.ids["a"] = UUID(int=1)
    plan = cluster.plan(fail_on_data_loss=fail)
    start, end = {"a": {"0": 10 if has_rows else 50}}, {"a": {"0": 50}}
    ranges = plan.ranges(start, end)
    assert ranges == ({A0: (10, 50)} if has_rows else {})
    assert plan.topic_ids(ranges) == ({"a": UUID(int=1)} if has_rows else {})
    cluster.sleep(3600)
    recreated(cluster)

    if fail:
        with pytest.raises(DataLoss, match="its topic was deleted and created again"):
            plan.latest(end)
    else:
        after = stored(plan.latest(end))
        assert plan.ranges(end, after) == {A0: (0, 70)}
        assert plan.topic_ids([A0]) == {"a": UUID(int=2)}
        assert "its topic was deleted and created again" in caplog.text


def test_a_batch_is_of_the_topic_that_was_there_although_another_look_came_before_its_tasks() -> None:
    """A leader has just heard that it leads: the topics are looked at again, and by now there is another one."""
    cluster = PlayedCluster({A0: (0, 50)})
    cluster.ids["a"] = UUID(int=1)
    plan = cluster.plan(starting=FROM_EARLIEST)
    start = plan.initial()
    end = stored(plan.latest(start))
    recreated(cluster)
    cluster.unknown = [A0]

    assert plan.topic_ids(plan.ranges(start, end)) == {"a": UUID(int=1)}


def test_a_topic_that_a_pattern_finds_too_late() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    by_pattern = TopicChoice("subscribePattern", None, "[ab]")
    end = stored(cluster.plan(choice=by_pattern).latest({"a": {"0": 5}}))
    cluster.logs[B0] = (40, 50)

    with pytest.raises(DataLoss, match=r"topic 'b', partition 0: the first records.*offset 0 on; available: 40 to 50"):
        cluster.plan(choice=by_pattern).latest(end)
    lenient = cluster.plan(choice=by_pattern, fail_on_data_loss=False).latest(end)
    assert stored(lenient) == {"a": {"0": 5}, "b": {"0": 50}, ANCHOR: {"b": {"0": 40}}}


def test_records_deleted_before_a_planned_batch_was_read() -> None:
    cluster = PlayedCluster({A0: (30, 50), A1: (0, 9)})
    start, end = {"a": {"0": 20, "1": 0}}, {"a": {"0": 40, "1": 9}}

    with pytest.raises(DataLoss, match=r"oldest records were deleted.*offsets 20 to 40 .*; available: 30 to 50"):
        cluster.plan().ranges(start, end)
    assert cluster.plan(fail_on_data_loss=False).ranges(start, end) == {A0: (30, 40), A1: (0, 9)}


def test_a_partition_deleted_before_a_planned_batch_was_read() -> None:
    cluster = PlayedCluster({A1: (0, 9)})
    start, end = {"a": {"0": 20, "1": 0}}, {"a": {"0": 40, "1": 9}}

    with pytest.raises(DataLoss, match=r"the partition is gone.*offsets 20 to 40 .*; available: nothing"):
        cluster.plan().ranges(start, end)
    assert cluster.plan(fail_on_data_loss=False).ranges(start, end) == {A1: (0, 9)}


@pytest.mark.parametrize("spec", [100, 3])
def test_a_start_outside_of_the_log(spec: int) -> None:
    cluster = PlayedCluster({A0: (5, 50)})
    plan = cluster.plan(starting=AtOffset("startingOffsets", {A0: spec}))

    def first_batch() -> dict[TopicPartition, tuple[int, int]]:
        start = plan.initial()
        return plan.ranges(start, plan.latest(start))

    with pytest.raises(DataLoss, match=f"Wanted: .*{spec}.*; available: 5 to 50"):
        first_batch()


@pytest.mark.parametrize("fail", [True, False])
def test_a_start_that_a_new_query_names_beyond_the_log_was_not_read(
    fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = PlayedCluster({A0: (5, 50)})
    plan = cluster.plan(starting=AtOffset("startingOffsets", {A0: 100}), fail_on_data_loss=fail)
    start = stored(plan.initial())

    if fail:
        with pytest.raises(DataLoss, match=r"the offset that startingOffsets names.* Correct startingOffsets") as lost:
            plan.latest(start)
        assert "checkpoint" not in str(lost.value)
    else:
        with caplog.at_level(logging.WARNING, logger="spark_source"):
            end = stored(plan.latest(start))
            assert plan.ranges(start, end) == {}
        assert "its log ends before the offset that startingOffsets names" in caplog.text
        assert "read already" not in caplog.text
        assert plan.latest(end) is end


def test_what_a_query_has_read_was_not_named_by_its_start() -> None:
    cluster = PlayedCluster({A0: (5, 50)})
    plan = cluster.plan(starting=AtOffset("startingOffsets", {A0: 10}))
    end = first_end(plan)
    cluster.logs[A0] = (5, 40)

    with pytest.raises(DataLoss, match=r"ends before what was read already.* new checkpoint"):
        plan.latest(end)


def test_a_topic_that_no_longer_is_subscribed_or_does_not_exist() -> None:
    cluster = PlayedCluster({A0: (0, 5), B0: (0, 5)})

    with pytest.raises(DataLoss, match="topic 'b', partition 0: 'subscribe' no longer names it"):
        cluster.plan().latest({"a": {"0": 5}, "b": {"0": 5}})
    with pytest.raises(ConfigError, match="'subscribe': no topic 'c' on the cluster at localhost:9092: create it"):
        first_end(cluster.plan(choice=subscribe("a", "c")))
    for is_frozen in (False, True):
        plan = cluster.plan(choice=subscribe("a", "c"))
        if is_frozen:
            plan.freeze()
        with pytest.raises(ConfigError, match="'subscribe': no topic 'c'"):
            plan.latest({"a": {"0": 5}})


def test_batch_from_the_earliest_to_the_latest() -> None:
    cluster = PlayedCluster({A0: (3, 50), A1: (4, 4)})

    assert batch_ranges(replace(OPTIONS, starting=FROM_EARLIEST), cluster) == ({A0: (3, 50)}, {A0}, {"a": None})


def test_batch_between_given_offsets() -> None:
    cluster = PlayedCluster({A0: (3, 50), A1: (4, 8)})
    options = replace(
        OPTIONS,
        starting=AtOffset("startingOffsets", {A0: 10, A1: EARLIEST}),
        ending=AtOffset("endingOffsets", {A0: 20, A1: LATEST}),
    )

    assert batch_ranges(options, cluster) == ({A0: (10, 20), A1: (4, 8)}, {A1}, {"a": None})


@pytest.mark.parametrize(
    ("starting", "ending", "error", "message"),
    [
        ({A0: 10}, {A0: 9}, ConfigError, r"the end of a-0 \(9\) lies before its start \(10\)"),
        (
            {A0: 60},
            LATEST,
            DataLoss,
            "startingOffsets names. Wanted: from offset 60 on; available: 3 to 50.* Correct st",
        ),
        ({A0: 1}, LATEST, DataLoss, "Wanted: offsets 1 to 50 .*; available: 3 to 50"),
        (
            EARLIEST,
            {A0: 51},
            DataLoss,
            "endingOffsets names. Wanted: offsets 3 to 51 .*; available: 3 to 50.* Correct en",
        ),
        ({A0: 10, A1: 1}, LATEST, ConfigError, "startingOffsets names a-1"),
    ],
)
def test_batch_ranges_that_cannot_be(
    starting: int | Offsets, ending: int | Offsets, error: type[Exception], message: str
) -> None:
    cluster = PlayedCluster({A0: (3, 50)})
    options = replace(
        OPTIONS,
        starting=AtOffset("startingOffsets", starting),
        ending=AtOffset("endingOffsets", ending),
        offset_retry_ms=1,
    )

    with pytest.raises(error, match=message):
        batch_ranges(options, cluster)
