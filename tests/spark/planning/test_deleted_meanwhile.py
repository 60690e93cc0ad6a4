"""A topic that is deleted between two questions of one plan: its loss is told, and the query goes on if it may."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from aiokc import LATEST, ClientConfig, TopicInfo, TopicPartition
from aiokc.errors import ConfigError, UnknownTopic
from spark_source.data_loss import DataLoss
from spark_source.offsets import ANCHOR
from spark_source.options.bounds import AtOffset, AtTime
from spark_source.options.topic_choice import TopicChoice, subscribe
from spark_source.planning.batch_plan import batch_ranges

from .played_cluster import A0, A1, B0, FROM_EARLIEST, OPTIONS, PlayedCluster, stored

BY_PATTERN = TopicChoice("subscribePattern", None, "[ab]")
READ = {"a": {"0": 5}}


class Deleting(PlayedCluster):
    """Topic "b" is deleted as soon as the end of its log was listed."""

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = super().list_offsets(timestamps)
        if timestamps.get(B0) == LATEST:
            del self.logs[B0]
        return found


class DeletingOneByOne(PlayedCluster):
    """Each of these topics is deleted just after it was listed."""

    doomed: Sequence[TopicPartition] = ()

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        found = super().topics(names)
        if self.doomed:
            first, *self.doomed = self.doomed
            del self.logs[first]
        return found


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="spark_source")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "data loss" in record.message]


def test_a_new_topic(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Deleting({A0: (0, 5), B0: (0, 3)})
    plan = cluster.plan(fail_on_data_loss=False, choice=BY_PATTERN)
    cluster.logs[A0] = (0, 7)

    after = stored(plan.latest(READ))

    assert after == {"a": {"0": 7}}
    assert (
        "topic 'b', partition 0: it is gone. Wanted: offsets 0 to 3 (exclusive); available: nothing" in told(caplog)[0]
    )
    assert plan.ranges(READ, after) == {A0: (5, 7)}
    assert plan.latest(after) is after
    assert len(told(caplog)) == 1


@pytest.mark.parametrize("fail", [True, False])
def test_a_named_topic_that_is_deleted_before_the_end_of_its_log_was_asked_for(fail: bool) -> None:
    """A batch would have no row of it, and say nothing."""
    cluster = DeletingOneByOne({A0: (0, 5), B0: (0, 3)})
    cluster.doomed = [B0]

    with pytest.raises(ConfigError, match="option 'subscribe': no topic 'b' on the cluster"):
        batch_ranges(replace(OPTIONS, choice=subscribe("a", "b"), fail_on_data_loss=fail), cluster)


def test_a_new_topic_is_a_loss_if_it_had_records() -> None:
    with pytest.raises(DataLoss, match=r"topic 'b', partition 0: it is gone.*set failOnDataLoss=false"):
        Deleting({A0: (0, 5), B0: (0, 3)}).plan(choice=BY_PATTERN).latest(READ)

    assert Deleting({A0: (0, 5), B0: (0, 0)}).plan(choice=BY_PATTERN).latest(READ) == READ


@pytest.mark.parametrize("choice", [BY_PATTERN, subscribe("a", "b")])
def test_a_new_topic_of_a_batch_that_sparks_own_source_has_planned(
    choice: TopicChoice, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    start, end = {"a": {"0": 2}}, {"a": {"0": 5}, "b": {"0": 3}}

    assert cluster.plan(fail_on_data_loss=False, choice=choice).ranges(start, end) == {A0: (2, 5)}

    (said,) = told(caplog)
    assert re.search("topic 'b', partition 0: (it|the partition) is gone. Wanted: offsets 0 to 3 .exclusive.", said)
    with pytest.raises(DataLoss, match=r"topic 'b', partition 0: (it|the partition) is gone"):
        cluster.plan(choice=choice).ranges(start, end)


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_a_log_whose_end_is_asked_for_again(caplog: pytest.LogCaptureFixture, isolation_level: str) -> None:
    """It seemed to end before what was read: because of a new leader, or of an open transaction."""
    cluster = Deleting({A0: (0, 5), B0: (0, 3)})
    client = ClientConfig(isolation_level=isolation_level)  # type: ignore[arg-type]
    plan = cluster.plan(fail_on_data_loss=False, choice=BY_PATTERN, client=client)
    start = {"a": {"0": 5}, "b": {"0": 9}}

    after = stored(plan.latest(start))

    assert after == READ
    assert "topic 'b', partition 0: it is gone. Wanted: from offset 9 on" in told(caplog)[0]
    assert plan.ranges(start, after) == {}


def test_a_log_whose_end_is_asked_for_again_for_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Deleting({A0: (0, 5), B0: (0, 3)})
    plan = cluster.plan(fail_on_data_loss=False, choice=BY_PATTERN)

    assert plan.ranges({"a": {"0": 2}, "b": {"0": 2}}, {"a": {"0": 5}, "b": {"0": 9}}) == {A0: (2, 5)}
    assert "topic 'b', partition 0: the partition is gone. Wanted: offsets 2 to 9" in told(caplog)[0]


def test_a_topic_to_read_from_its_first_record(caplog: pytest.LogCaptureFixture) -> None:
    options = replace(OPTIONS, starting=FROM_EARLIEST, choice=BY_PATTERN, offset_retry_ms=1)
    logs = {A0: (1, 5), B0: (0, 3)}

    with pytest.raises(DataLoss, match="topic 'b', partition 0: it is gone"):
        batch_ranges(options, Deleting(logs))
    lenient = replace(options, fail_on_data_loss=False)
    assert batch_ranges(lenient, Deleting(logs))[0] == {A0: (1, 5)}
    plan = Deleting(logs).plan(lenient)
    start = plan.initial()
    assert start == {"a": {"0": 1}}
    assert plan.latest(start) == {"a": {"0": 5}, ANCHOR: {"a": {"0": 1}}}
    assert len(told(caplog)) == 2, "by the batch query and by the stream"


def test_a_topic_to_read_from_a_time_on(caplog: pytest.LogCaptureFixture) -> None:
    starting = AtTime("startingTimestamp", 2000, LATEST)
    options = replace(OPTIONS, starting=starting, choice=BY_PATTERN, offset_retry_ms=1)
    logs = {A0: (1, 5), B0: (0, 3)}

    with pytest.raises(DataLoss, match="topic 'b', partition 0: it is gone"):
        batch_ranges(options, Deleting(logs))
    strict = Deleting(logs).plan(options)
    with pytest.raises(DataLoss, match="topic 'b', partition 0: it is gone"):
        strict.latest(strict.initial())
    lenient = replace(options, fail_on_data_loss=False)
    assert batch_ranges(lenient, Deleting(logs))[0] == {A0: (2, 5)}
    plan = Deleting(logs).plan(lenient)
    start = plan.initial()
    assert start == {"a": {"0": 2}}
    assert plan.latest(start) == {"a": {"0": 5}, ANCHOR: {"a": {"0": 2}}}
    assert len(told(caplog)) == 2, "by the batch query and by the stream"


def test_a_topic_to_read_until_a_time(caplog: pytest.LogCaptureFixture) -> None:
    by_offset = AtOffset("startingOffsets", 0)
    options = replace(
        OPTIONS,
        starting=by_offset,
        ending=AtTime("endingTimestamp", 2000, LATEST),
        choice=BY_PATTERN,
        offset_retry_ms=1,
    )
    logs = {A0: (0, 5), B0: (0, 3)}

    with pytest.raises(DataLoss, match="topic 'b', partition 0: it is gone"):
        batch_ranges(options, Deleting(logs))
    lenient = replace(options, fail_on_data_loss=False)
    assert batch_ranges(lenient, Deleting(logs))[0] == {A0: (0, 2)}
    assert len(told(caplog)) == 1


@pytest.mark.parametrize("fail", [False, True])
def test_topics_that_are_deleted_one_after_the_other(fail: bool, caplog: pytest.LogCaptureFixture) -> None:
    topics = [TopicPartition(name, 0) for name in "abcdef"]
    cluster = DeletingOneByOne(dict.fromkeys(topics, (0, 5)))
    plan = cluster.plan(fail_on_data_loss=fail, choice=TopicChoice("subscribePattern", None, "[a-f]"))
    end = stored(plan.latest(plan.initial()))
    cluster.sleep(10)
    cluster.doomed = topics[1:]

    if fail:
        with pytest.raises(DataLoss, match="topic 'b', partition 0: it is gone"):
            plan.latest(end)
    else:
        assert stored(plan.latest(end)) == {"a": {"0": 5}}
        assert len(told(caplog)) == 5


def test_a_topic_that_is_listed_though_its_leader_does_not_know_it() -> None:
    cluster = PlayedCluster({A0: (0, 5)})
    plan = cluster.plan(choice=BY_PATTERN)
    end = stored(plan.latest(plan.initial()))
    cluster.unknown = [A0] * 3
    assert plan.latest(end) is end
    cluster.unknown = [A0] * 99

    with pytest.raises(UnknownTopic):
        plan.latest(end)


def test_a_topic_that_only_one_broker_has_not_heard_of(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked for again, as if it had been missing from the list of topics before the ends were listed."""
    cluster = PlayedCluster({A0: (0, 5), A1: (0, 5)})
    plan = cluster.plan(choice=BY_PATTERN)
    end = {"a": {"0": 5, "1": 5}}
    assert plan.latest(end) is end
    cluster.unknown, cluster.hidden = [A1], [A1]

    assert plan.latest(end) is end

    assert not cluster.unknown
    assert not cluster.hidden
    assert "asking again" in caplog.text
