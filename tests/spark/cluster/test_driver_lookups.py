"""The driver's look-ups of times and topics, on a cluster of aiokc.testing instead of one that a test plays."""

from __future__ import annotations

from aiokc import ClientConfig, TopicPartition
from aiokc.testing import Cluster, NewRecord
from spark_source.cluster.driver import DriverCluster

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def test_the_first_offset_at_or_after_a_time_or_none() -> None:
    with Cluster(brokers=1, topics={"a": 2}).in_thread() as cluster:
        for partition in (0, 1):
            for second in (1, 2):
                cluster.append("a", NewRecord(b"x", timestamp=second * 1_000), partition=partition)
        with DriverCluster(ClientConfig(bootstrap_servers=cluster.bootstrap), attempts=3, retry_ms=1) as driver:
            assert driver.offsets_at({A0: 1_000, A1: 1_001}) == {A0: 0, A1: 1}
            assert driver.offsets_at({A0: 2_000, A1: 2_001}) == {A0: 1, A1: None}
            assert driver.offsets_at({}) == {}


def test_of_the_topics_that_are_asked_for_those_that_exist_are_found() -> None:
    with (
        Cluster(brokers=1, topics={"a": 2, "b": 1}).in_thread() as cluster,
        DriverCluster(ClientConfig(bootstrap_servers=cluster.bootstrap), attempts=3, retry_ms=1) as driver,
    ):
        assert set(driver.topics(["a"])) == {"a"}
        assert set(driver.topics(["a", "missing"])) == {"a"}
        assert set(driver.topics(None)) == {"a", "b"}
