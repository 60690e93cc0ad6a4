"""Planning a batch query while the cluster changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from aiokc import EARLIEST, TopicPartition
from spark_source.data_loss import DataLoss
from spark_source.options.bounds import AtCommitted, AtOffset, AtTime, Bound
from spark_source.planning.batch_plan import batch_ranges

from .played_cluster import A0, OPTIONS, PlayedCluster

NO_ID = {"a": None}


class LiveCluster(PlayedCluster):
    """Records are written, and a member of the group commits them, whenever the start of the query is asked for."""

    def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        self.logs[A0] = (0, 14)
        self.groups[group_id] = {A0: 12}
        return super().committed(group_id, partitions)

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self.logs[A0] = (0, 14)
        return super().offsets_at(times)


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
