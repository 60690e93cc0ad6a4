"""maxOffsetsPerTrigger and minOffsetsPerTrigger for a query that goes on after a loss (failOnDataLoss=false)."""

from __future__ import annotations

import logging

import pytest

from spark_source.offsets import ANCHOR, OffsetJson
from spark_source.options.topic_choice import TopicChoice

from .played_cluster import A0, A1, B0, PlayedCluster, stored


def test_deleted_offsets_do_not_count_as_a_part_of_max_offsets(caplog: pytest.LogCaptureFixture) -> None:
    cluster = PlayedCluster({A0: (1_000_000, 1_000_100), A1: (0, 5_000)})
    plan = cluster.plan(fail_on_data_loss=False)
    start: OffsetJson = {"a": {"0": 0, "1": 0}}

    first = stored(plan.latest(start, 510))
    with caplog.at_level(logging.WARNING, logger="spark_source"):
        assert plan.ranges(start, first) == {A0: (1_000_000, 1_000_010), A1: (0, 500)}
        assert caplog.text.count("going on after data loss: topic 'a', partition 0: its oldest") == 1
        caplog.clear()
        second = stored(plan.latest(first, 510))
        assert plan.ranges(first, second) == {A0: (1_000_010, 1_000_020), A1: (500, 1_000)}
        assert not caplog.records


def test_a_log_without_any_record_that_is_left_has_no_part_of_max_offsets() -> None:
    cluster = PlayedCluster({A0: (0, 100), A1: (0, 50)})
    plan = cluster.plan(fail_on_data_loss=False)
    plan.freeze()
    cluster.logs[A0] = (1_000, 1_000)

    end = stored(plan.latest({"a": {"0": 0, "1": 0}}, 20))

    assert end == {"a": {"0": 100, "1": 20}}
    assert plan.ranges({"a": {"0": 0, "1": 0}}, end) == {A1: (0, 20)}


def test_earliest_offsets_are_asked_for_only_where_deleted_ones_may_count() -> None:
    cluster = PlayedCluster({A0: (5, 100)})
    start: OffsetJson = {"a": {"0": 50}}

    def requests(max_offsets: int, *, fail: bool) -> int:
        plan, cluster.asked = cluster.plan(fail_on_data_loss=fail), 0
        assert plan.latest(start, max_offsets) == {"a": {"0": 50 + max_offsets}}
        return cluster.asked

    assert requests(50, fail=False) == requests(49, fail=True) == 2
    assert requests(49, fail=False) == 3


def test_what_a_new_partition_has_lost_is_told_once_though_min_offsets_are_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan(choice=TopicChoice("subscribePattern", None, "[ab]"), fail_on_data_loss=False)
    end = stored(plan.latest(plan.initial(), None, 100))
    cluster.logs[B0] = (40, 50)
    cluster.sleep(10)

    with caplog.at_level(logging.WARNING, logger="spark_source"):
        after = stored(plan.latest(end, None, 100))
        for _ in range(10):
            assert plan.latest(after, None, 100) is after

    assert after == {"a": {"0": 5}, "b": {"0": 50}, ANCHOR: {"b": {"0": 40}}}
    assert caplog.text.count("the first records of this new partition were deleted") == 1


def test_a_new_partition_that_has_lost_nothing_waits_for_min_offsets() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan(choice=TopicChoice("subscribePattern", None, "[ab]"), fail_on_data_loss=False)
    end = stored(plan.latest(plan.initial(), None, 100))
    cluster.logs[B0] = (0, 50)
    cluster.sleep(10)

    assert plan.latest(end, None, 100) is end
    cluster.asked, began = 0, cluster.now
    while cluster.now < began + 60:
        assert plan.latest(end, None, 100) is end
    assert cluster.asked <= 60 * 5
