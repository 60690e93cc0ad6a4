"""A topic: whether it exists, leaders, replicas, permissions; and one Fetch from each leader."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import ErrorCode
from aiokc.client.doctor import login
from aiokc.doctor import Step, Verdict
from aiokc.testing import Acl, ApiKey, Cluster, faults
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataResponse
from aiokc.wire.messages.fetch import FetchRequest, FetchResponse
from aiokc.wire.messages.offsets import ListOffsetsResponse

from .examining import USER, cause, examined, happen, ill, only, problems

ALICE: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", **USER}


def secured(*acls: Acl) -> Cluster:
    return Cluster(2, topics={"orders": 2}, sasl={"alice": "alice-secret"}, acls=acls)


# The topic


async def test_a_topic_that_is_not_there() -> None:
    async with Cluster(topics={"orders.v1": 1, "invoices": 1}) as cluster:
        report = await examined(cluster.bootstrap, topic="Orders_v1")
        assert problems(report) == ["topic.unknown"]
        assert cause(report).step is Step.TOPIC
        assert "is 'orders.v1' meant?" in cause(report).text
        report = await examined(cluster.bootstrap, topic="nothing-like-it")
        assert "meant" not in cause(report).text
        assert problems(await examined(cluster.bootstrap, topic="no name")) == ["topic.invalid"]


async def test_partitions_without_a_leader() -> None:
    async with Cluster(3, topics={}) as cluster:
        cluster.create_topic("orders", 3, replication_factor=1)
        cluster.take_down(2)
        report = await examined(cluster.bootstrap, topic="orders")
        assert problems(report) == ["topic.no_leader"]
        assert "1 of 3 partitions have no leader (partition 1)" in cause(report).text
        assert "broker 2" in cause(report).advice


async def test_partitions_that_are_under_replicated() -> None:
    async with Cluster(3, topics={"orders": 2}) as cluster:
        cluster.take_down(3)
        report = await examined(cluster.bootstrap, topic="orders")
        found = only(report, "topic.under_replicated")
        assert found.verdict is Verdict.WARNING
        assert "2 of 2 partitions are under-replicated (partitions 0, 1); not in sync: broker 3" in found.text
        assert report.cause is None


async def test_a_broker_that_is_in_sync_is_not_named_for_partitions_of_others() -> None:
    async def apart(exchange: Exchange) -> MetadataResponse:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        for topic in response.topics:
            for partition, first in zip(topic.partitions, (1, 4), strict=True):
                partition.replica_nodes = [first, first + 1, first + 2]
                partition.isr_nodes = [first, first + 1]
        return response

    async with Cluster(topics={"orders": 2}) as cluster:
        cluster.intercept(ApiKey.METADATA, apart)
        report = await examined(cluster.bootstrap, topic="orders")
        assert only(report, "topic.under_replicated").text.endswith("not in sync: brokers 3, 6")


async def test_leaders_that_have_no_listener_or_are_not_in_the_cluster() -> None:
    def leaders(**changes: Any) -> Any:
        async def fault(exchange: Exchange) -> MetadataResponse:
            response = await exchange.handle()
            assert isinstance(response, MetadataResponse)
            for topic in response.topics:
                for name, value in changes.items():
                    setattr(topic.partitions[0], name, value)
            return response

        return fault

    async with Cluster(2, topics={"orders": 2}) as cluster:
        fault = leaders(leader_id=-1, error_code=ErrorCode.LISTENER_NOT_FOUND)
        cluster.intercept(ApiKey.METADATA, fault)
        assert problems(await examined(cluster.bootstrap, topic="orders")) == ["topic.no_listener"]
        cluster.heal()
        cluster.intercept(ApiKey.METADATA, leaders(leader_id=77))
        report = await examined(cluster.bootstrap, topic="orders")
        assert problems(report) == ["topic.unknown_leader"]
        assert "broker 77" in cause(report).text


async def test_a_topic_that_may_not_be_seen_or_not_be_read() -> None:
    async with secured(Acl("alice", "Describe", topic="seen")) as cluster:
        cluster.create_topic("seen")
        report = await examined(cluster.bootstrap, topic="orders", **ALICE)
        assert problems(report) == ["topic.denied"]
        assert "looks the same" in cause(report).text
        report = await examined(cluster.bootstrap, topic="seen", **ALICE)
        assert problems(report) == ["topic.no_read"]
        assert "it may: Describe" in cause(report).text


async def test_what_the_client_may_do_is_told() -> None:
    async with secured(Acl("alice", "Read", topic="orders")) as cluster:
        report = await examined(cluster.bootstrap, topic="orders", **ALICE)
        assert only(report, "topic.described").details["operations"] == ["Read", "Describe"]
        assert report.is_healthy


@pytest.mark.parametrize("version", ["2.1", "2.8", "4.4"])
async def test_brokers_of_all_ages(version: str) -> None:
    async with Cluster(2, topics={"orders": 2}, as_version=version) as cluster:
        cluster.append("orders", b"x" * 2000)
        report = await examined(cluster.bootstrap, topic="orders")
        assert report.is_healthy
        assert len([found for found in report.findings if found.code == "fetch.answered"]) == 2


# A Fetch


async def test_a_fetch_from_each_leader_tells_latency_and_throughput() -> None:
    async with Cluster(2, topics={"orders": 4}) as cluster:
        for partition in (1, 2):
            for _ in range(3):
                cluster.append("orders", *[bytes(1000)] * 500, partition=partition)
        report = await examined(cluster.bootstrap, topic="orders")
        one, two = (found for found in report.findings if found.code == "fetch.answered")
        assert [found.details["partition"] for found in (one, two)] == [2, 1]  # those with records
        assert all(found.details["bytes"] >= 1 << 19 for found in (one, two))
        assert all(found.details["bytes_per_second"] > 0 and found.details["latency_ms"] > 0 for found in (one, two))
        assert "/s)" in one.text


async def test_a_fetch_asks_for_no_more_than_the_client_accepts() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        for _ in range(20):
            cluster.append("orders", bytes(50_000))
        report = await examined(cluster.bootstrap, topic="orders", max_response_bytes=400_000)
        assert report.is_healthy
        assert 0 < only(report, "fetch.answered").details["bytes"] <= 300_000


async def test_an_empty_topic_is_healthy() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        report = await examined(cluster.bootstrap, topic="orders")
        assert report.is_healthy
        assert "it has no records" in only(report, "fetch.answered").text


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "fetch.not_leader"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "fetch.denied"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "fetch.disk"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "fetch.refused"),
    ],
)
async def test_a_fetch_that_is_refused(code: ErrorCode, finding: str) -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.intercept(FetchRequest, code)
        report = await examined(cluster.bootstrap, topic="orders")
        assert problems(report) == [finding]
        assert cause(report).step is Step.FETCH
        assert code.name in cause(report).text


async def test_a_leader_that_names_no_offsets() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.intercept(ApiKey.LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert problems(await examined(cluster.bootstrap, topic="orders")) == ["fetch.not_leader"]


async def test_a_leader_that_names_the_offsets_of_some_partitions_only() -> None:
    def refused(codes: dict[int, ErrorCode]) -> Any:
        async def fault(exchange: Exchange) -> ListOffsetsResponse:
            response = await exchange.handle()
            assert isinstance(response, ListOffsetsResponse)
            for one in response.topics[0].partitions:
                if one.partition_index in codes:
                    one.error_code, one.offset = codes[one.partition_index], -1
            return response

        return fault

    async with Cluster(topics={"orders": 4}) as cluster:
        cluster.append("orders", b"x" * 1000)
        cluster.intercept(ApiKey.LIST_OFFSETS, refused({1: ErrorCode.KAFKA_STORAGE_ERROR}), times=2)
        report = await examined(cluster.bootstrap, topic="orders")
        found = only(report, "fetch.disk")
        assert (found.verdict, found.text) == (
            Verdict.WARNING,
            "The offsets of orders-1 are refused: KAFKA_STORAGE_ERROR",
        )
        assert only(report, "fetch.answered").details["partition"] == 0
        several = {
            1: ErrorCode.KAFKA_STORAGE_ERROR,
            2: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            3: ErrorCode.KAFKA_STORAGE_ERROR,
        }
        cluster.intercept(ApiKey.LIST_OFFSETS, refused(several))
        report = await examined(cluster.bootstrap, topic="orders")
        assert ill(report) == ["fetch.disk", "fetch.not_leader"]
        assert "orders-1 and 1 more partition are refused" in only(report, "fetch.disk").text


def test_small_answers_come_and_large_ones_do_not() -> None:
    async def story(cluster: Cluster, loop: VirtualLoop) -> None:
        cluster.intercept(FetchRequest, faults.drop())
        report = await examined(cluster.bootstrap, topic="t")
        assert problems(report)[0] == "fetch.timeout"
        assert "MTU" in cause(report).advice

    happen(story, brokers=1, topics={"t": 1})


async def test_a_broker_that_breaks_the_connection_at_a_fetch() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.intercept(FetchRequest, faults.half_frame())
        assert problems(await examined(cluster.bootstrap, topic="orders")) == ["fetch.failed"]


# Racks


async def test_a_follower_in_the_rack_of_the_client() -> None:
    async with Cluster(3, racks=["a", "b", "c"], topics={"orders": 1}) as cluster:
        cluster.append("orders", bytes(1000))
        leader = cluster.leader("orders")
        other = "b" if leader == 1 else "a"
        report = await examined(cluster.bootstrap, topic="orders", client_rack=other)
        found = only(report, "fetch.follower")
        assert found.subject.startswith(f"broker {leader} ")
        assert only(report, "fetch.answered").details["from_follower"] is True
        assert report.is_healthy


async def test_a_rack_that_no_broker_is_in() -> None:
    async with Cluster(2, racks=["a", "b"], topics={"orders": 1}) as cluster:
        report = await examined(cluster.bootstrap, topic="orders", client_rack="z")
        assert ill(report) == ["fetch.unknown_rack"]
        assert "racks: a, b" in only(report, "fetch.unknown_rack").text


async def test_a_follower_that_refuses() -> None:
    async with Cluster(2, racks=["a", "b"], topics={"orders": 1}) as cluster:
        cluster.append("orders", bytes(1000))
        leader = cluster.leader("orders")
        cluster.intercept(FetchRequest, ErrorCode.OFFSET_OUT_OF_RANGE, where=lambda one: one.broker != leader)
        report = await examined(cluster.bootstrap, topic="orders", client_rack="ab"[2 - (leader or 1)])
        assert problems(report) == ["fetch.refused"]
        assert "by the follower" in cause(report).text


@pytest.mark.parametrize("of_follower", [False, True], ids=["leader", "follower"])
async def test_a_log_whose_beginning_moves_before_the_fetch_is_no_problem(of_follower: bool) -> None:
    """The leader names the beginning, and retention deletes those records before the Fetch comes."""
    async with Cluster(2, racks=["a", "b"], topics={"orders": 1}) as cluster:
        cluster.append("orders", bytes(1000))
        cluster.append("orders", bytes(1000))
        leader = cluster.leader("orders") or 0

        async def trimmed(exchange: Exchange) -> Any:
            cluster.trim("orders", to=1)
            return await exchange.handle()

        cluster.intercept(FetchRequest, trimmed, times=1, where=lambda one: (one.broker != leader) == of_follower)
        rack = "ab"[2 - leader] if of_follower else "ab"[leader - 1]
        report = await examined(cluster.bootstrap, topic="orders", client_rack=rack)
        assert problems(report) == []
        assert only(report, "fetch.answered").details["from_follower"] is of_follower


async def test_a_fetch_stays_refused_where_the_leader_does_not_name_the_beginning_again() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:

        async def refused(exchange: Exchange) -> Any:
            cluster.intercept(ApiKey.LIST_OFFSETS, faults.half_frame())
            return exchange.refusal(ErrorCode.OFFSET_OUT_OF_RANGE)

        cluster.intercept(FetchRequest, refused)
        assert problems(await examined(cluster.bootstrap, topic="orders")) == ["fetch.refused"]


async def test_a_leader_that_sends_the_client_to_a_broker_that_is_not_there() -> None:
    async def away(exchange: Exchange) -> FetchResponse:
        response = await exchange.handle()
        assert isinstance(response, FetchResponse)
        response.responses[0].partitions[0].preferred_read_replica = 9
        return response

    async with Cluster(2, racks=["a", "b"], topics={"orders": 1}) as cluster:
        cluster.intercept(FetchRequest, away)
        report = await examined(cluster.bootstrap, topic="orders", client_rack="a")
        assert problems(report) == ["fetch.unreachable_follower"]


async def test_a_follower_and_a_rack_that_were_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "MOST_BROKERS", 2)
    async with Cluster(3, racks=["a", "b", "c"], topics={}) as cluster:
        cluster.create_topic("orders", 3)
        cluster.append("orders", bytes(1000))
        report = await examined(cluster.bootstrap, topic="orders", client_rack="c")
        assert ill(report) == []
        found = {one.text for one in report.findings if one.code == "fetch.not_looked_at"}
        assert found == {
            "leads partitions of the topic, and is not among the brokers that were looked at",
            "sends this client to broker 3, which is not among the brokers that were looked at",
        }


async def test_a_leader_that_keeps_a_client_though_a_replica_is_near() -> None:
    async def kept(exchange: Exchange) -> FetchResponse:
        assert isinstance(exchange.request, FetchRequest)
        exchange.request.rack_id = ""  # as a broker without a replica.selector.class
        response = await exchange.handle()
        assert isinstance(response, FetchResponse)
        return response

    async with Cluster(2, racks=["a", "b"], topics={"orders": 1}) as cluster:
        cluster.append("orders", bytes(1000))
        cluster.intercept(FetchRequest, kept)
        other = "ab"[2 - (cluster.leader("orders") or 1)]
        report = await examined(cluster.bootstrap, topic="orders", client_rack=other)
        found = only(report, "fetch.not_redirected")
        assert found.verdict is Verdict.NOTE
        assert "replica.selector.class" in found.advice


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, "topic.failed"),
        ("no partitions", "topic.no_partitions"),
        ("another topic", "topic.no_metadata"),
    ],
)
async def test_metadata_that_say_nothing_useful_of_a_topic(fault: ErrorCode | str, code: str) -> None:
    async def change(exchange: Exchange) -> MetadataResponse:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        for topic in response.topics:
            if isinstance(fault, ErrorCode):
                topic.error_code = fault
            if fault == "another topic":
                topic.name = "another"
            topic.partitions = []
        return response

    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.intercept(ApiKey.METADATA, change)
        assert problems(await examined(cluster.bootstrap, topic="orders")) == [code]
