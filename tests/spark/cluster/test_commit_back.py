"""How long the offsets of `commitOffsets` last: Kafka forgets those of a group without members."""

from __future__ import annotations

from dataclasses import replace

from spark_source.cluster.commit_back import CommitBack

from ..planning.played_cluster import A0, A1, OPTIONS, PlayedCluster

HOUR = 3_600


def test_what_was_committed_is_committed_again_once_an_hour() -> None:
    """The broker has deleted the offset of a partition without new records."""
    cluster = PlayedCluster({A0: (0, 9), A1: (0, 9)})
    back = CommitBack(replace(OPTIONS, group_id="g", commit_offsets=True), cluster, clock=cluster.clock)
    back.finished({"a": {"0": 5, "1": 5}})

    for hour in range(3):
        del cluster.groups["g"][A1]
        cluster.sleep(HOUR - 1)
        back.finished({"a": {"0": 6 + hour, "1": 5}})
        assert cluster.groups == {"g": {A0: 6 + hour}}, "within the hour only what is new"

        cluster.sleep(1)
        back.finished({"a": {"0": 6 + hour, "1": 5}})  # the query idles
        assert cluster.groups == {"g": {A0: 6 + hour, A1: 5}}
