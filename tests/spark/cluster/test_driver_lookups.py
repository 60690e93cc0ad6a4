"""The driver's look-ups of times and topics, on a cluster of aiokc.testing instead of one that a test plays."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import ClientConfig, ErrorCode, TopicPartition
from aiokc.errors import AuthorizationFailed, BrokerError
from aiokc.testing import ApiKey, Cluster, NewRecord
from aiokc.testing.brokers.exchange import Exchange
from spark_source.cluster.driver import DriverCluster

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokc.client.cluster.cluster_client._NEW_TOPIC_SECONDS", 0.2)


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
        assert set(driver.topics(["missing"])) == set()
        assert set(driver.topics(["a", "missing"])) == {"a"}
        assert set(driver.topics(["a", "missing", "b", "lost"])) == {"a", "b"}
        assert set(driver.topics(None)) == {"a", "b"}


def leave_out_b(cluster: Cluster, named: ErrorCode) -> None:
    """Topic "b" is in no list of all topics, and has this error where it is named."""

    async def answer(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        if exchange.request.topics is None:
            response.topics = [topic for topic in response.topics if topic.name != "b"]
        for topic in response.topics:
            if topic.name == "b" and named is not ErrorCode.NONE:
                topic.error_code, topic.partitions = named, []
        return response

    cluster.intercept(ApiKey.METADATA, answer)


@pytest.mark.parametrize(
    ("named", "error"),
    [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed), (ErrorCode.LEADER_NOT_AVAILABLE, BrokerError)],
)
def test_a_topic_that_is_missing_does_not_hide_the_error_of_another_one(
    named: ErrorCode, error: type[BrokerError]
) -> None:
    """What a list of all topics leaves out may exist: a stream that took it for deleted would forget its position."""
    with (
        Cluster(brokers=1, topics={"b": 1, "c": 1}).in_thread() as cluster,
        DriverCluster(ClientConfig(bootstrap_servers=cluster.bootstrap)) as driver,
    ):
        leave_out_b(cluster, named)
        with pytest.raises(error, match=f"{named.name}: topic 'b'"):
            driver.topics(["a", "b", "c"])


def test_a_topic_that_a_list_leaves_out_exists_if_it_is_found_by_its_name() -> None:
    """The broker that is asked for the list has just started, and has not heard of it yet."""
    with (
        Cluster(brokers=1, topics={"b": 1, "c": 1}).in_thread() as cluster,
        DriverCluster(ClientConfig(bootstrap_servers=cluster.bootstrap)) as driver,
    ):
        leave_out_b(cluster, ErrorCode.NONE)
        assert list(driver.topics(["a", "b", "c"])) == ["b", "c"]
