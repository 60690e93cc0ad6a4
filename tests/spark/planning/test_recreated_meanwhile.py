"""A topic that is recreated is read from its first record, whatever else the plan is busy with just then."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiokc import ClientConfig
from spark_source.options.topic_choice import TopicChoice, subscribe

from .played_cluster import A0, A1, B0, FROM_EARLIEST, PlayedCluster, stored


@pytest.fixture
def cluster() -> PlayedCluster:
    cluster = PlayedCluster({A0: (0, 100), B0: (0, 1)})
    cluster.ids = {"a": UUID(int=1), "b": UUID(int=9)}
    return cluster


def test_another_topic_is_missing(cluster: PlayedCluster) -> None:
    """That one is looked for each minute only. Those that exist are listed as often as if none were missing."""
    plan = cluster.plan(choice=subscribe("a", "b"), fail_on_data_loss=False, starting=FROM_EARLIEST)
    end = stored(plan.latest(plan.initial()))
    del cluster.logs[B0]
    cluster.sleep(10)
    end = stored(plan.latest(end))
    assert end == {"a": {"0": 100}}
    cluster.sleep(5)
    cluster.ids["a"], cluster.logs[A0] = UUID(int=2), (0, 150)

    after = stored(plan.latest(end))

    assert plan.ranges(end, after) == {A0: (0, 150)}
    assert plan.topic_ids([A0]) == {"a": UUID(int=2)}
    cluster.logs[A1] = (0, 7)
    cluster.sleep(5)
    end, after = after, stored(plan.latest(after))
    assert plan.ranges(end, after) == {A1: (0, 7)}, "a new partition is noticed as soon"
    cluster.ids["b"], cluster.logs[B0] = UUID(int=10), (0, 3)
    cluster.sleep(5)
    assert plan.latest(after) is after
    cluster.sleep(60)
    assert plan.ranges(after, stored(plan.latest(after))) == {B0: (0, 3)}


def test_all_topics_are_missing(cluster: PlayedCluster) -> None:
    plan = cluster.plan(fail_on_data_loss=False, starting=FROM_EARLIEST)
    end = stored(plan.latest(plan.initial()))
    cluster.logs.clear()
    cluster.sleep(10)
    end = stored(plan.latest(end))
    cluster.asked, began = 0, cluster.now
    while cluster.now < began + 45:
        assert plan.latest(end) is end
    assert cluster.asked == 0
    cluster.ids["a"], cluster.logs[A0] = UUID(int=2), (0, 2)
    cluster.sleep(60)

    assert plan.ranges(end, stored(plan.latest(end))) == {A0: (0, 2)}


@pytest.mark.parametrize("is_frozen", [False, True])
def test_its_log_is_shorter_than_the_old_one(
    cluster: PlayedCluster, caplog: pytest.LogCaptureFixture, is_frozen: bool
) -> None:
    """The topics were listed just before: its id is looked at before the log counts as cut."""
    plan = cluster.plan(fail_on_data_loss=False, starting=FROM_EARLIEST)
    if is_frozen:
        plan.freeze()
    end = stored(plan.latest(plan.initial(), 60))
    cluster.ids["a"], cluster.logs[A0] = UUID(int=2), (0, 50)

    after = stored(plan.latest(end))

    assert plan.ranges(end, after) == {A0: (0, 50)}
    assert "its topic was deleted and created again" in caplog.text
    assert "its log ends before" not in caplog.text


@pytest.mark.parametrize("has_open_transaction", [False, True])
def test_what_was_reached_behind_an_open_transaction_of_the_old_one_is_not_in_the_new_one(
    cluster: PlayedCluster, caplog: pytest.LogCaptureFixture, has_open_transaction: bool
) -> None:
    """The high watermark of the old log was asked for a moment ago; or the new log has one that goes as far."""
    config = ClientConfig(isolation_level="read_committed")
    plan = cluster.plan(client=config, fail_on_data_loss=False)
    start = {"a": {"0": 100}}
    cluster.logs[A0], cluster.high_watermark[A0] = (0, 80), 120
    assert plan.latest(start) is start
    cluster.ids["a"], cluster.logs[A0] = UUID(int=2), (0, 30)
    cluster.high_watermark = {A0: 150} if has_open_transaction else {}
    cluster.sleep(3)

    after = stored(plan.latest(start))

    assert plan.ranges(start, after) == {A0: (0, 30)}
    assert "its topic was deleted and created again" in caplog.text
    assert plan.latest(after) is after


def test_it_is_noticed_while_another_log_is_asked_for_again(cluster: PlayedCluster) -> None:
    """The list that names the new topic is the one for the other log: the end of the new log is asked for, too."""
    plan = cluster.plan(choice=subscribe("a", "b"), fail_on_data_loss=False, starting=FROM_EARLIEST)
    end = stored(plan.latest(plan.initial()))
    cluster.ids["a"], cluster.logs[A0] = UUID(int=2), (0, 30)
    cluster.stale = [(A0, 100)]  # the first answer is of the old log
    cluster.logs[B0] = (0, 0)  # it was cut

    after = stored(plan.latest(end))

    assert plan.ranges(end, after) == {A0: (0, 30)}


@pytest.mark.parametrize("was_seen_to_be_gone", [False, True], ids=["at once", "after it was gone"])
@pytest.mark.parametrize(
    "choice",
    [
        TopicChoice("subscribePattern", None, "a"),
        subscribe("a"),
        TopicChoice("assign", frozenset("a"), None, frozenset({A0})),
    ],
    ids=lambda choice: choice.option,
)
def test_its_first_records_that_are_deleted_by_then_are_a_loss(
    cluster: PlayedCluster, caplog: pytest.LogCaptureFixture, choice: TopicChoice, was_seen_to_be_gone: bool
) -> None:
    plan = cluster.plan(choice=choice, fail_on_data_loss=False, starting=FROM_EARLIEST)
    end = stored(plan.latest(plan.initial()))
    if was_seen_to_be_gone:
        del cluster.logs[A0]
        cluster.sleep(10)
        end = stored(plan.latest(end))
        assert end == {}
    cluster.ids["a"], cluster.logs[A0] = UUID(int=2), (500, 550)
    cluster.sleep(100)

    assert plan.ranges(end, stored(plan.latest(end))) == {A0: (500, 550)}
    assert caplog.text.count("the first records of this new partition were deleted") == 1
