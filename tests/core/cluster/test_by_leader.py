"""What is asked about partitions, by the leader that can tell."""

from __future__ import annotations

from aiokc.core.cluster.by_leader import group_by_leader
from aiokc.core.cluster.snapshot import Cluster
from aiokc.types import Broker, PartitionInfo, TopicInfo, TopicPartition


def test_partitions_without_a_known_leader_are_left_out() -> None:
    leaders = [1, 2, 1, None, 9]  # 9 is no broker of the snapshot
    partitions = {number: PartitionInfo("t", number, leader) for number, leader in enumerate(leaders)}
    cluster = Cluster(brokers={one: Broker(one, "h", one) for one in (1, 2)}, topics={"t": TopicInfo("t", partitions)})
    asked = {TopicPartition("t", number): f"about {number}" for number in (2, 1, 0, 3, 4, 5)}
    asked[TopicPartition("u", 0)] = "another topic"
    grouped = group_by_leader(cluster, asked)
    assert grouped == {
        1: {TopicPartition("t", 0): "about 0", TopicPartition("t", 2): "about 2"},
        2: {TopicPartition("t", 1): "about 1"},
    }
    assert list(grouped[1]) == [TopicPartition("t", 2), TopicPartition("t", 0)]  # in the order of what is asked
