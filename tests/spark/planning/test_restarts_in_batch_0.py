"""A query that died in batch 0 is restarted, and startingOffsets now resolve to other offsets, or to none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

import pytest

from aiokc import EARLIEST
from aiokc.errors import ConfigError
from spark_source.data_loss import DataLoss
from spark_source.offsets import ANCHOR, OffsetJson
from spark_source.options.bounds import AtCommitted, AtOffset, AtTime, Bound

from .played_cluster import A0, A1, FROM_EARLIEST, PlayedCluster, stored

COMMITTED = AtCommitted("startingOffsets", "g")
GIVEN = AtOffset("startingOffsets", {A0: 3})
BY_TIME = AtTime("startingTimestamp", 3_000)


def planned(bound: Bound) -> tuple[PlayedCluster, OffsetJson]:
    """Return a cluster, and the end of the batch 0 that was planned on it: [3, 5) of the first partition."""
    cluster = PlayedCluster({A0: (0, 5)})
    cluster.groups["g"] = {A0: 3}
    died = cluster.plan(starting=bound)
    end = stored(died.latest(stored(died.initial())))
    assert end == {"a": {"0": 5}, ANCHOR: {"a": {"0": 3}}}
    return cluster, end


def group_gone(cluster: PlayedCluster) -> None:
    cluster.groups.clear()


def nothing_that_young(cluster: PlayedCluster) -> None:
    cluster.logs[A0] = (3, 5)
    cluster.no_times = True


def partition_added(cluster: PlayedCluster) -> None:
    cluster.logs[A1] = (0, 2)


Change: TypeAlias = Callable[[PlayedCluster], None]
CHANGES: list[tuple[Bound, Change]] = [(COMMITTED, group_gone), (BY_TIME, nothing_that_young), (GIVEN, partition_added)]


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize(("bound", "change"), CHANGES)
def test_batch_0_is_repeated_from_its_anchor(bound: Bound, change: Change, is_frozen: bool) -> None:
    cluster, end = planned(bound)
    change(cluster)
    restarted = cluster.plan(starting=bound)
    if is_frozen:
        restarted.freeze()

    start = stored(restarted.initial())
    assert restarted.ranges(start, end) == {A0: (3, 5)}
    assert restarted.ranges(end, end) == {}, "a checkpoint whose JSON has other blanks, and no new records"
    after = stored(restarted.latest(end))
    assert after == ({"a": {"0": 5, "1": 2}, ANCHOR: {"a": {"1": 0}}} if change is partition_added else end)


@pytest.mark.parametrize(("bound", "change"), CHANGES)
def test_a_new_query_fails_with_what_is_wrong(bound: Bound, change: Change) -> None:
    cluster = planned(bound)[0]
    change(cluster)
    plan = cluster.plan(starting=bound)

    start = stored(plan.initial())
    assert stored(plan.initial()) == start == {}
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"committed nothing|no record is that young|leaves out a-1"):
            plan.latest(start)


@pytest.mark.parametrize(("bound", "change"), CHANGES)
def test_what_the_built_in_source_has_planned_is_not_guessed(bound: Bound, change: Change) -> None:
    cluster, end = planned(bound)
    change(cluster)
    restarted = cluster.plan(starting=bound)
    start = stored(restarted.initial())
    del end[ANCHOR]

    with pytest.raises(ConfigError, match=r"planned by format\('kafka'\) and is not finished"):
        restarted.ranges(start, end)


def test_an_anchor_that_lacks_a_partition_does_not_say_where_that_begins() -> None:
    cluster, end = planned(COMMITTED)
    group_gone(cluster)
    cluster.logs[A1] = (0, 2)
    restarted = cluster.plan(starting=COMMITTED)
    end["a"]["1"] = 2

    with pytest.raises(ConfigError, match="group 'g' has committed nothing for a-0"):
        restarted.ranges(stored(restarted.initial()), end)


@pytest.mark.parametrize("bound", [COMMITTED, GIVEN, BY_TIME])
def test_a_topic_that_was_deleted_meanwhile_is_a_loss(bound: Bound, caplog: pytest.LogCaptureFixture) -> None:
    cluster, end = planned(bound)
    cluster.logs.clear()

    strict = cluster.plan(starting=bound)
    with pytest.raises(DataLoss, match="topic 'a', partition 0: the partition is gone"):
        strict.ranges(stored(strict.initial()), end)

    lenient = cluster.plan(starting=bound, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING, logger="spark_source"):
        assert lenient.ranges(stored(lenient.initial()), end) == {}
        after = stored(lenient.latest(end))
        assert lenient.latest(after) is after
    assert after == {}
    assert "going on after data loss: topic 'a', partition 0: the partition is gone" in caplog.text


def test_a_topic_that_never_was_there() -> None:
    plan = PlayedCluster({}).plan(starting=FROM_EARLIEST)

    with pytest.raises(ConfigError, match="'subscribe': no topic 'a' on the cluster at localhost:9092: create it"):
        plan.latest(stored(plan.initial()))


TRIMMED = [FROM_EARLIEST, AtOffset("startingOffsets", {A0: EARLIEST}), AtTime("startingTimestamp", 1_000)]


@pytest.mark.parametrize("bound", TRIMMED)
def test_the_earliest_offset_may_have_moved_since_the_built_in_source_began(
    bound: Bound, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = PlayedCluster({A0: (2, 9)})
    end: OffsetJson = {"a": {"0": 5}}

    strict = cluster.plan(starting=bound)
    with pytest.raises(ConfigError, match=r"planned by format\('kafka'\) and is not finished.*sources/0/0"):
        strict.ranges(stored(strict.initial()), end)

    lenient = cluster.plan(starting=bound, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING, logger="spark_source"):
        assert lenient.ranges(stored(lenient.initial()), end) == {A0: (2, 5)}
    assert "failOnDataLoss=false: going on from a-0 offset 2, although batch 0 of this checkpoint" in caplog.text


@pytest.mark.parametrize("bound", [AtOffset("startingOffsets", {A0: 3}), AtTime("startingTimestamp", 3_000)])
def test_an_offset_behind_the_earliest_one_says_where_the_built_in_source_began(bound: Bound) -> None:
    plan = PlayedCluster({A0: (2, 9)}).plan(starting=bound)

    assert plan.ranges(stored(plan.initial()), {"a": {"0": 5}}) == {A0: (3, 5)}


def test_a_partition_that_initial_did_not_see_begins_as_the_options_say() -> None:
    """A broker had not heard of it. In a later batch, a partition that is not in the start would be a new one."""
    cluster = PlayedCluster({A0: (0, 9), A1: (1, 9)})
    plan = cluster.plan(starting=FROM_EARLIEST)
    cluster.hidden = [A1]
    start = stored(plan.initial())
    assert start == {"a": {"0": 0}}

    assert plan.ranges(start, {"a": {"0": 5, "1": 5}}) == {A0: (0, 5), A1: (1, 5)}
