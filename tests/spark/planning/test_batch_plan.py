"""Planning a batch query while the cluster changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

import pytest

from aiokc import EARLIEST, LATEST, TopicPartition
from aiokc.errors import ConfigError
from spark_source.data_loss import DataLoss
from spark_source.options.bounds import AtCommitted, AtOffset, AtTime, Bound
from spark_source.planning.batch_plan import batch_ranges

from .played_cluster import A0, A1, FROM_EARLIEST, OPTIONS, PlayedCluster

NO_ID = {"a": None}
BY_GROUP = AtCommitted("startingOffsets", "g")


class LiveCluster(PlayedCluster):
    """Records are written, and a member of the group commits them, whenever the start of the query is asked for."""

    def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        self.logs[A0] = (0, 14)
        self.groups[group_id] = {A0: 12}
        return super().committed(group_id, partitions)

    def offsets_at(
        self, times: Mapping[TopicPartition, int], *, isolation_level: Literal["read_uncommitted"] | None = None
    ) -> dict[TopicPartition, int | None]:
        self.logs[A0] = (0, 14)
        return super().offsets_at(times, isolation_level=isolation_level)


@pytest.mark.parametrize("bound", [AtCommitted("startingOffsets", "g"), AtTime("startingTimestamp", 12_000)])
def test_a_start_behind_the_ends_that_were_asked_for_first_is_no_loss(bound: Bound) -> None:
    cluster = LiveCluster({A0: (0, 10)})

    assert batch_ranges(replace(OPTIONS, starting=bound), cluster) == ({A0: (12, 14)}, set(), NO_ID)
    assert batch_ranges(replace(OPTIONS, starting=bound, ending=None), LiveCluster({A0: (0, 10)})) == (
        {A0: (12, 14)},
        set(),
        NO_ID,
    )


class TrimmedCluster(PlayedCluster):
    """Retention deletes more records once the earliest offsets have been asked for."""

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = super().list_offsets(timestamps)
        if EARLIEST in timestamps.values():
            self.logs[A0] = (4, 10)
        return found


def test_retention_while_a_query_from_the_earliest_is_planned_is_no_loss() -> None:
    assert batch_ranges(replace(OPTIONS, starting=None), TrimmedCluster({A0: (0, 10)})) == ({A0: (4, 10)}, {A0}, NO_ID)

    given = AtOffset("startingOffsets", {A0: 0})
    with pytest.raises(DataLoss, match="Wanted: offsets 0 to 10"):
        batch_ranges(replace(OPTIONS, starting=given), PlayedCluster({A0: (4, 10)}))


def between(starting: Bound, ending: Bound, log: tuple[int, int]) -> dict[TopicPartition, tuple[int, int]]:
    """Return what a batch reads of partition 0, whose log this is, and of partition 1, which has 0 to 100."""
    cluster = PlayedCluster({A0: log, A1: (0, 100)})
    cluster.groups["g"] = {A0: 60, A1: 20}
    options = replace(OPTIONS, starting=starting, ending=ending, offset_retry_ms=1)
    return batch_ranges(options, cluster)[0]


@pytest.mark.parametrize(
    ("starting", "ending", "log"),
    [
        (BY_GROUP, AtTime("endingTimestamp", 50_000), (0, 100)),
        (BY_GROUP, AtOffset("endingOffsets", {A0: 50, A1: 50}), (0, 100)),
        (FROM_EARLIEST, AtOffset("endingOffsets", {A0: 50, A1: 50}), (70, 100)),
        (AtOffset("startingOffsets", {A0: EARLIEST, A1: 20}), AtOffset("endingOffsets", {A0: 50, A1: 50}), (70, 100)),
        (AtOffset("startingOffsets", {A0: 60, A1: 20}), AtTime("endingTimestamp", 50_000), (0, 100)),
    ],
    ids=["a group and a time", "a group and offsets", "trimmed", "trimmed, by JSON", "offsets and a time"],
)
def test_of_a_partition_whose_end_lies_before_its_start_nothing_is_read(
    starting: Bound, ending: Bound, log: tuple[int, int]
) -> None:
    assert between(starting, ending, log) == {A1: (0 if starting is FROM_EARLIEST else 20, 50)}


@pytest.mark.parametrize(
    ("starting", "ending"),
    [
        (AtOffset("startingOffsets", {A0: 60, A1: 20}), AtOffset("endingOffsets", {A0: 50, A1: 50})),
        (AtOffset("startingOffsets", {A0: 600, A1: 20}), AtOffset("endingOffsets", {A0: 50, A1: 50})),
        (AtTime("startingTimestamp", 60_000), AtTime("endingTimestamp", 50_000, LATEST)),
        (AtTime("startingTimestamp", 60_000), AtTime("endingOffsetsByTimestamp", {A0: 50_000, A1: 99_000}, LATEST)),
    ],
    ids=["offsets", "offsets beyond the log", "times", "times for each"],
)
def test_options_that_end_a_partition_before_its_start_are_refused(starting: Bound, ending: Bound) -> None:
    with pytest.raises(ConfigError, match=r"the end of a-0 \(50\) lies before its start"):
        between(starting, ending, (0, 100))


def test_a_group_that_has_committed_beyond_the_log_is_a_loss_wherever_the_query_ends() -> None:
    with pytest.raises(DataLoss, match="Wanted: from offset 60 on; available: 0 to 55"):
        between(BY_GROUP, AtOffset("endingOffsets", {A0: 50, A1: 50}), (0, 55))


def test_the_end_of_a_log_is_asked_for_again_before_a_start_lies_beyond_it() -> None:
    """A new leader does not know yet where its log ends."""
    cluster = PlayedCluster({A0: (0, 100)})
    cluster.stale = [(A0, 98), (A0, 99)]
    options = replace(OPTIONS, starting=AtOffset("startingOffsets", {A0: 100}), offset_retry_ms=1)

    assert batch_ranges(options, cluster)[0] == {}
    assert not cluster.stale


def test_a_partition_that_is_gone_when_its_end_is_asked_for_again_is_a_loss() -> None:
    class Deleted(PlayedCluster):
        def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
            found = super().list_offsets(timestamps)
            self.logs.pop(A1, None)
            return found

    options = replace(OPTIONS, starting=AtOffset("startingOffsets", {A0: 0, A1: 20}), ending=None, offset_retry_ms=1)

    with pytest.raises(DataLoss, match=r"topic 'a', partition 1: .*gone"):
        batch_ranges(options, Deleted({A0: (0, 10), A1: (0, 10)}))
    lenient = replace(options, fail_on_data_loss=False)
    assert batch_ranges(lenient, Deleted({A0: (0, 10), A1: (0, 10)}))[0] == {A0: (0, 10)}
