"""Topics that come and go: a query by pattern remembers no more of them than it needs, however long it runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from aiokc import TopicPartition
from spark_source.cluster.commit_back import CommitBack
from spark_source.offsets import OffsetJson, positions
from spark_source.options.topic_choice import TopicChoice
from spark_source.planning.stream_plan import StreamPlan

from .played_cluster import A0, FROM_EARLIEST, OPTIONS, PlayedCluster, stored

ROUNDS, EACH = 20, 1_000


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="spark_source")  # a warning for each topic that is gone


@pytest.fixture
def cluster() -> PlayedCluster:
    cluster = PlayedCluster({A0: (0, 100)})
    cluster.ids = {"a": UUID(int=1)}
    return cluster


@pytest.fixture
def plan(cluster: PlayedCluster) -> StreamPlan:
    by_pattern = TopicChoice("subscribePattern", None, "a|t.*")
    return cluster.plan(
        choice=by_pattern, starting=FROM_EARLIEST, fail_on_data_loss=False, offset_attempts=1, offset_retry_ms=0
    )


def batches(cluster: PlayedCluster, plan: StreamPlan) -> Iterator[OffsetJson]:
    """Yield the ends of batches, in each of which a thousand topics have taken the place of another thousand."""
    end = stored(plan.initial())
    for number in range(ROUNDS):
        names = [f"t{number * EACH + index}" for index in range(EACH)]
        cluster.ids = {"a": UUID(int=1)} | {name: UUID(int=10 + int(name[1:])) for name in names}
        cluster.logs = {A0: (0, 100)} | {TopicPartition(name, 0): (0, 1) for name in names}
        cluster.sleep(10)
        end = stored(plan.latest(end))
        assert len(positions(end)) == EACH + 1
        yield end


def test_the_plan_forgets_topics_that_are_gone(
    cluster: PlayedCluster, plan: StreamPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_source.planning.stream_plan._MOST_GONE", 100)

    for _ in batches(cluster, plan):
        # What the last batch has read counts until the next one: it may be found to be gone.
        assert len(plan._view._ids) <= 2 * EACH + 101
    assert len(plan._gone) == 100


def test_of_a_topic_that_is_recreated_often_only_the_last_ids_are_remembered(
    cluster: PlayedCluster, plan: StreamPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_source.cluster.topics_view._MOST_LEFT", 5)
    end = stored(plan.latest(stored(plan.initial())))

    for number in range(2, 20):
        cluster.ids["a"] = UUID(int=number)
        cluster.sleep(10)
        start, end = end, stored(plan.latest(end))
        assert plan.ranges(start, end)[A0][0] == 0
    cluster.ids["a"] = UUID(int=18)  # named by a broker that has not heard of the last one yet
    cluster.sleep(10)

    assert plan.latest(end) is end
    assert len(plan._view._left) == 5


def test_commits_forget_partitions_that_are_gone(cluster: PlayedCluster, plan: StreamPlan) -> None:
    options = replace(OPTIONS, group_id="g", commit_offsets=True)
    back = CommitBack(options, cluster, clock=cluster.clock)

    for end in batches(cluster, plan):
        back.finished(end)
        assert len(back._committed) == EACH + 1
    assert len(cluster.groups["g"]) == ROUNDS * EACH + 1
