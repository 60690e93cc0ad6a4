"""Client's calls about brokers, topics, settings and disks: old brokers, brokers that are gone, what is not allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from aiokc import TopicPartition
from aiokc.admin import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    AclOperation,
    ConfigSource,
    ConfigType,
    partition_sizes,
)
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerError,
    ClientClosed,
    ConfigError,
    ConnectionFailed,
    KafkaError,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
)
from aiokc.records import NewRecord
from aiokc.testing import Acl, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import disconnect, drop
from aiokc.wire.messages.describing import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
)
from aiokc.wire.messages.discovery import MetadataRequest

from ..virtually import virtually
from .scene import SECURED, ZERO, as_alice, client_of

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize("release", ["2.1", "2.8", "3.7", "4.3"])
def test_the_cluster(release: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            found = await client.describe_cluster()
            assert [(one.node_id, one.rack) for one in found.brokers] == [(1, "a"), (2, "b"), (3, "a")]
            assert (found.controller_id, len(found.cluster_id or "")) == (1, 22)
            known = {"2.1": None}.get(release, True)
            assert (found.authorized_operations is not None) == bool(known)
            described = {f"{one.host}:{one.port}" for one in found.brokers}
            assert cluster.bootstrap in described or set(cluster.bootstrap.split(",")) == described

    virtually(story, as_version=release, racks=["a", "b"])


def test_the_versions_of_each_broker() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            found = await client.api_versions()
            assert list(found) == [1, 2, 3]
            first = found[1]
            assert not isinstance(first, Exception)
            assert first.apis[3].name == "Metadata"
            assert first.apis[3].max_version == 13
            assert first.features["transaction.version"].finalized == 2
            assert list(await client.api_versions([2])) == [2]

    virtually(story)


def test_topics() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            everything = await client.describe_topics()
            assert list(everything) == ["t", "u"]
            found = await client.describe_topics(["t", "missing", "t"])
            topic, missing = found["t"], found["missing"]
            assert not isinstance(topic, Exception)
            assert (len(topic.partitions), topic.under_replicated, topic.without_leader) == (2, (), ())
            assert topic.authorized_operations is not None
            assert AclOperation.READ in topic.authorized_operations
            assert isinstance(missing, UnknownTopic)
            assert "missing" in str(missing)
            assert "missing" not in await client.list_topics(), "describing creates no topic"
            cluster.take_down(topic.partitions[0].replicas[0])
            after = (await client.describe_topics("t"))["t"]
            assert not isinstance(after, Exception)
            assert after.under_replicated == (0, 1)

    virtually(story, topics={"t": 2, "u": 1})


@pytest.mark.parametrize(("release", "type_of"), [("2.1", ConfigType.UNKNOWN), ("4.3", ConfigType.LONG)])
def test_settings_of_topics(release: str, type_of: ConfigType) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.create_topic("kept", 1, config={"retention.ms": "-1"})
        async with client_of(cluster) as client:
            found = await client.topic_configs(["kept", "t", "missing"])
            kept, plain, missing = found["kept"], found["t"], found["missing"]
            assert isinstance(kept, dict)
            assert isinstance(plain, dict)
            assert isinstance(missing, UnknownTopic)
            entry = kept["retention.ms"]
            assert (entry.value, entry.source, entry.is_default) == ("-1", ConfigSource.DYNAMIC_TOPIC_CONFIG, False)
            assert (plain["retention.ms"].value, plain["retention.ms"].is_default) == ("604800000", True)
            assert entry.type is type_of
            assert [one.name for one in plain["segment.bytes"].synonyms] == ["log.segment.bytes"]

    virtually(story, as_version=release)


def test_an_error_of_settings_that_passes_is_tried_again() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(DescribeConfigsRequest, ErrorCode.REQUEST_TIMED_OUT, times=2)
        async with client_of(cluster) as client:
            assert isinstance((await client.topic_configs("t"))["t"], dict)

    virtually(story)


MANY = [f"t{number:03}" for number in range(101)]


def is_second(exchange: Exchange) -> bool:
    """A request for settings has a hundred topics: the last one of MANY has its own, as one that is tried again has."""
    assert isinstance(exchange.request, DescribeConfigsRequest)
    return len(exchange.request.resources) == 1


def test_settings_that_brokers_have_answered_outlive_a_later_request() -> None:
    """The topics of a request that nobody answers have the error, and no others."""

    async def story(cluster: Cluster) -> None:
        cluster.intercept(DescribeConfigsRequest, drop(), where=is_second)
        async with client_of(cluster, request_timeout_ms=1_000) as client:
            found = await client.topic_configs(MANY, timeout_ms=5_000)
        assert [name for name, one in found.items() if isinstance(one, dict)] == MANY[:100]
        assert isinstance(found["t100"], RequestTimedOut)

    virtually(story, topics=dict.fromkeys(MANY, 1))


def test_a_later_request_for_settings_ends_with_the_client() -> None:
    """The first one is answered, and the second one waits for a connection when the client stops.

    The attempts to connect are given up before the call is ended, so its request fails by that.
    """

    async def story(cluster: Cluster) -> None:
        async with as_alice(cluster) as client:
            cluster.intercept(DescribeConfigsRequest, disconnect(), where=is_second)
            cluster.slow_login(60)
            call = asyncio.create_task(client.topic_configs(MANY))
            await asyncio.sleep(1)  # of virtual time: no connection is left
            await client.stop()
            with pytest.raises(ClientClosed):
                await call

    virtually(story, topics=dict.fromkeys(MANY, 1), **SECURED)


@pytest.mark.parametrize("is_late", [False, True])
def test_why_settings_are_not_asked_for_again(is_late: bool) -> None:
    """The login that is refused meanwhile, and not the error that would have passed; at the deadline that error."""

    async def one_fails(exchange: Exchange) -> DescribeConfigsResponse:
        response = await exchange.handle()
        assert isinstance(response, DescribeConfigsResponse)
        for result in response.results:
            if result.resource_name == "u":
                result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        return response

    async def story(cluster: Cluster) -> None:
        async with as_alice(cluster) as client:
            cluster.intercept(DescribeConfigsRequest, drop() if is_late else disconnect(), where=is_second)
            cluster.intercept(DescribeConfigsRequest, one_fails, times=1)
            if not is_late:
                cluster.refuse_login()
            found = await client.topic_configs(["t", "u"], timeout_ms=2_000)
        assert isinstance(found["t"], dict)
        error = found["u"]
        if is_late:
            assert isinstance(error, BrokerError)
            assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            assert isinstance(error, AuthenticationFailed)

    virtually(story, topics={"t": 1, "u": 1}, **SECURED)


@pytest.mark.parametrize("release", ["2.1", "4.3"])
def test_sizes(release: str) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *(b"x" * 1_000 for _ in range(5)))
        async with client_of(cluster) as client:
            found = await client.log_dirs()
            sizes = partition_sizes(found)
            assert {1, 2, 3} == set(sizes[ZERO])
            (size,) = set(sizes[ZERO].values())
            assert 5_000 < size < 6_000
            ((path, log_dir),) = found[1].items()  # type: ignore[union-attr]
            assert path == log_dir.path
            assert (log_dir.total_bytes is not None) == (release == "4.3")
            assert list(await client.log_dirs([2])) == [2]

    virtually(story, as_version=release)


def test_a_broker_that_does_not_answer_has_its_error() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(DescribeLogDirsRequest, drop(), where=lambda exchange: exchange.broker == 2)
        async with client_of(cluster) as client:
            found = await client.log_dirs(timeout_ms=3_000)
            assert [type(found[node]) for node in (1, 2, 3)] == [dict, RequestTimedOut, dict]
            unknown = await client.log_dirs([1, 9], timeout_ms=3_000)
            assert isinstance(unknown[9], ConnectionFailed)
            assert "broker 9 is not in the cluster's metadata" in str(unknown[9])

    virtually(story)


def test_a_broker_that_has_died_is_not_waited_for() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            cluster.take_down(2)
            found = await client.log_dirs()
            assert [type(found[node]) for node in found] == [dict, dict]
            assert list(found) == [1, 3]

    virtually(story)


@pytest.mark.parametrize(
    ("timestamp", "too_old", "old_enough"),
    [(MAX_TIMESTAMP, "2.8", "3.0"), (EARLIEST_LOCAL, "3.4", "3.5"), (LATEST_TIERED, "3.8", "3.9")],
)
def test_special_timestamps(timestamp: int, too_old: str, old_enough: str) -> None:
    async def refused(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            with pytest.raises(
                UnsupportedVersion, match=rf"broker \d does not know the timestamp .* \(Kafka {old_enough}\)"
            ):
                await client.list_offsets({ZERO: timestamp})
            assert await client.list_offsets({ZERO: EARLIEST}), "the client goes on"

    async def answered(cluster: Cluster) -> None:
        for time in (1_000, 3_000, 2_000):
            cluster.append("t", NewRecord(b"v", timestamp=time))
        async with client_of(cluster) as client:
            (found,) = (await client.list_offsets({ZERO: timestamp})).values()
            if timestamp == LATEST_TIERED:
                assert found is None
            else:
                assert found is not None
                assert (found.offset, found.timestamp) == {MAX_TIMESTAMP: (1, 3_000), EARLIEST_LOCAL: (0, -1)}[
                    timestamp
                ]

    virtually(refused, as_version=too_old)
    virtually(answered, as_version=old_enough)


def test_what_a_user_may_not_do() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.grant(Acl("alice", "Describe", topic="t"))
        async with as_alice(cluster) as client:
            assert list(await client.describe_topics()) == ["t"]
            found = await client.describe_topics(["t", "u"])
            topic = found["t"]
            assert not isinstance(topic, KafkaError)
            assert topic.authorized_operations == frozenset({AclOperation.DESCRIBE})
            assert isinstance(found["u"], AuthorizationFailed)
            assert isinstance((await client.topic_configs(["t"]))["t"], AuthorizationFailed)
            for answer in (await client.log_dirs()).values():
                assert isinstance(answer, AuthorizationFailed)
            assert (await client.describe_cluster()).authorized_operations == frozenset()

    virtually(story, topics={"t": 1, "u": 1}, acls=[], **SECURED)


def test_an_answer_that_never_comes() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster, request_timeout_ms=1_000) as client:
            for api in (DescribeClusterRequest, DescribeConfigsRequest):
                cluster.intercept(api, drop())
            with pytest.raises(RequestTimedOut, match="DescribeCluster: not done within 5 s"):
                await client.describe_cluster(timeout_ms=5_000)
            with pytest.raises(RequestTimedOut, match="DescribeConfigs"):
                await client.topic_configs(["t"], timeout_ms=5_000)
            cluster.intercept(MetadataRequest, drop())
            with pytest.raises(RequestTimedOut, match="Metadata"):
                await client.describe_topics(timeout_ms=5_000)

    virtually(story)


def test_one_broker_that_hangs_is_left_for_another() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(DescribeClusterRequest, drop(), times=1)
        async with client_of(cluster, request_timeout_ms=1_000) as client:
            assert len((await client.describe_cluster()).brokers) == 3

    virtually(story)


def no_brokers(exchange: Exchange) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=0, cluster_id="", brokers=[])


PASSING_ANSWERS = [no_brokers, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBOOTSTRAP_REQUIRED]


@pytest.mark.parametrize("answer", PASSING_ANSWERS, ids=["no brokers", "retriable", "rebootstrap"])
def test_a_broker_that_can_not_describe_the_cluster_yet_is_left_for_another(answer: Any) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            starting = cluster.intercept(DescribeClusterRequest, answer, times=2)
            assert len((await client.describe_cluster()).brokers) == 3
            assert starting.hits == 2
            cluster.intercept(DescribeClusterRequest, answer)
            with pytest.raises(RequestTimedOut, match=r"names no broker|REQUEST_TIMED_OUT|REBOOTSTRAP_REQUIRED"):
                await client.describe_cluster(timeout_ms=5_000)

    virtually(story)


def test_a_refusal_to_describe_the_cluster_is_raised_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        refused = cluster.intercept(DescribeClusterRequest, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        async with client_of(cluster) as client:
            with pytest.raises(AuthorizationFailed):
                await client.describe_cluster()
        assert refused.hits == 1

    virtually(story)


@pytest.mark.parametrize("nodes", [5, "1", [-1], [True], [1.5], [1 << 40]])
def test_what_is_no_broker(nodes: Iterable[int]) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            with pytest.raises(ConfigError, match="broker"):
                await client.log_dirs(nodes)

    virtually(story, brokers=1)


def test_what_is_no_topic() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            for wrong in ([""], [5], 5, None):
                with pytest.raises(ConfigError):
                    await client.topic_configs(wrong)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="isolation_level"):
                await client.list_offsets({ZERO: EARLIEST}, isolation_level="both")  # type: ignore[call-overload]

    virtually(story, brokers=1)


def test_the_end_by_isolation_level() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            committed = await client.list_offsets({TopicPartition("t", 1): -1}, isolation_level="read_committed")
            assert committed == await client.list_offsets({TopicPartition("t", 1): -1})
            assert isinstance((await client.describe_topics(["x"]))["x"], BrokerError)

    virtually(story)
