"""HomeCluster: whose answers count."""

from __future__ import annotations

import pytest

from aiokc.core.admin.cluster_answers import cluster_of_metadata
from aiokc.core.cluster.home_cluster import HomeCluster, OtherCluster
from aiokc.core.cluster.snapshot import Cluster, merge
from aiokc.wire.messages.discovery import MetadataResponse, MetadataResponseBroker


def answer(cluster_id: str | None, *, brokers: int = 1) -> MetadataResponse:
    told = [MetadataResponseBroker(node_id=number, host="b", port=9092) for number in range(brokers)]
    return MetadataResponse(brokers=told, cluster_id=cluster_id, topics=[])


def test_the_first_answer_that_names_a_cluster_decides() -> None:
    home = HomeCluster()
    assert home.why_unusable("b", answer(None)) is None
    assert home.why_unusable("b", answer("useless", brokers=0)) is not None
    assert home.why_unusable("b", answer("redpanda.initializing")) is None
    assert home.cluster_id is None
    for cluster_id in ("A", "A", None, "", "redpanda.initializing"):  # it stays though the last ones name none
        assert home.why_unusable("b", answer(cluster_id)) is None
    error = home.why_unusable("broker 1 (b:9092)", answer("B\n"))
    assert isinstance(error, OtherCluster)
    assert error.retriable
    told = str(error)
    assert told.startswith(r"broker 1 (b:9092) belongs to cluster B\n now, and this client to cluster A: ")
    assert "restart the client to go over to another cluster" in told
    assert home.cluster_id == "A"


@pytest.mark.parametrize(
    ("known", "told", "then"), [("A", "B", "A"), (None, "redpanda.initializing", None), (None, "A", "A")]
)
def test_a_snapshot_keeps_its_cluster_id(known: str | None, told: str, then: str | None) -> None:
    merging = merge(Cluster(cluster_id=known), answer(told), complete=True)
    with pytest.raises(StopIteration) as merged:
        next(merging)
    assert merged.value.value.cluster_id == then
    assert cluster_of_metadata(answer(told)).cluster_id == (None if then is None else told)
