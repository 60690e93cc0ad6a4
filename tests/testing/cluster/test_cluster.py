"""The Cluster's life, and its metadata, as a client on the wire sees them."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import pytest

from aiokc import LOG_APPEND_TIME, NO_TIMESTAMP, Producer
from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster, NewRecord
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.brokers.apis.table import REQUESTS
from aiokc.testing.brokers.broker import Broker
from aiokc.testing.brokers.cluster_state import Endpoint
from aiokc.testing.refusal import Refusal
from aiokc.wire import encode_request
from aiokc.wire.messages.describing import DescribeClusterRequest
from aiokc.wire.messages.discovery import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from aiokc.wire.messages.group import HeartbeatRequest
from tests.suite.child_process import run_to_end

from ..wire_client import connected

pytestmark = pytest.mark.any_loop


async def _topic(bootstrap: str, name: str, broker: int = 1) -> MetadataResponseTopic:
    async with connected(bootstrap, broker) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (topic,) = (await client.ask(request)).topics
    return topic


async def test_it_starts_at_once() -> None:
    began = time.thread_time()
    async with Cluster(brokers=3, topics={"events": 60}) as cluster:
        assert time.thread_time() - began < 0.3
        assert len(set(cluster.bootstrap.split(","))) == 3


async def test_every_broker_names_all_of_them() -> None:
    async with Cluster(brokers=3, racks=["a", "b"]) as cluster:
        for number in (1, 2, 3):
            async with connected(cluster.bootstrap, number) as client:
                answer = await client.ask(MetadataRequest(topics=None))
            addresses = [f"{broker.host}:{broker.port}" for broker in answer.brokers]
            assert ",".join(addresses) == cluster.bootstrap
            assert [broker.rack for broker in answer.brokers] == ["a", "b", "a"]
            assert answer.controller_id == 1
        async with connected(cluster.bootstrap) as client:
            described = await client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
        assert described.cluster_id == answer.cluster_id
        assert [broker.broker_id for broker in described.brokers] == [1, 2, 3]


async def test_the_versions_that_it_advertises_are_those_that_it_answers() -> None:
    async with Cluster() as cluster, connected(cluster.bootstrap) as client:
        answer = await client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4)
    advertised = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert set(advertised) == set(REQUESTS)
    for key, (first, last) in advertised.items():
        assert ApiKey(key).value == key
        assert first <= last <= REQUESTS[key].max_version
        assert first >= REQUESTS[key].min_version or key == ApiKey.PRODUCE


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    async with Cluster() as cluster, connected(cluster.bootstrap) as client:
        frame = bytearray(encode_request(ApiVersionsRequest(), version=4, correlation_id=1, client_id=None))
        frame[6:8] = (99).to_bytes(2)
        client.write(bytes(frame))
        answer = await client.frame()
    assert answer[:6] == (1).to_bytes(4) + ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)


@pytest.mark.parametrize("damage", ["length", "api", "version", "body"])
async def test_what_is_no_kafka_closes_the_connection(damage: str) -> None:
    frame = bytearray(encode_request(MetadataRequest(topics=None), version=1, correlation_id=1, client_id=None))
    match damage:
        case "length":
            frame[0:4] = b"HTTP"
        case "api":
            frame[4:6] = (999).to_bytes(2)
        case "version":
            frame[6:8] = (99).to_bytes(2)
        case "body":
            frame[-1] = 7
    async with Cluster() as cluster, connected(cluster.bootstrap) as client:
        client.write(bytes(frame))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.frame()


async def test_answers_come_in_the_order_of_the_requests() -> None:
    async with Cluster() as cluster, connected(cluster.bootstrap) as client:
        for _ in range(20):
            client.send(MetadataRequest(topics=[]))
            client.send(FindCoordinatorRequest(coordinator_keys=["group"]))
        for _ in range(20):
            assert (await client.receive()).brokers
            assert (await client.receive()).coordinators


async def test_a_topic_that_is_asked_for_is_created_where_the_client_wants_that() -> None:
    async with Cluster(num_partitions=4) as cluster, connected(cluster.bootstrap) as client:
        wish = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=False)
        assert (await client.ask(wish)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wish = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
        assert (await client.ask(wish)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len((await client.ask(wish)).topics[0].partitions) == 4


async def test_a_topic_can_be_asked_for_by_its_id() -> None:
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        topic_id = (await _topic(cluster.bootstrap, "events")).topic_id
        by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
        assert (await client.ask(by_id)).topics[0].name == "events"
        cluster.recreate_topic("events")
        assert (await client.ask(by_id)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (await _topic(cluster.bootstrap, "events")).topic_id != topic_id


async def test_a_broker_that_dies_hands_its_partitions_over() -> None:
    async with Cluster(brokers=3, topics={"events": 3}) as cluster:
        before = await _topic(cluster.bootstrap, "events", 2)
        cluster.take_down(1)
        after = await _topic(cluster.bootstrap, "events", 2)
    assert [partition.leader_id for partition in before.partitions] == [1, 2, 3]
    assert [partition.leader_id for partition in after.partitions] == [2, 2, 3]
    assert [partition.leader_epoch for partition in after.partitions] == [1, 0, 0]
    assert after.partitions[0].offline_replicas == [1]
    assert 1 not in after.partitions[0].isr_nodes


async def test_a_partition_without_a_living_replica_is_offline_until_one_comes_back() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("single", replication_factor=1)
        cluster.take_down(1)
        (partition,) = (await _topic(cluster.bootstrap, "single", 2)).partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        cluster.bring_up(1)
        while partition.leader_id == -1:  # how many rounds of the loop this takes is up to the loop
            (partition,) = (await _topic(cluster.bootstrap, "single", 2)).partitions
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 1)
        assert (await _topic(cluster.bootstrap, "single", 1)).partitions == [partition]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
async def test_all_replicas_are_in_sync_again_after_an_outage_of_all(order: tuple[int, ...]) -> None:
    """Those that come back before there is a leader, too: else a Produce with acks=all would fail for ever."""
    async with Cluster(brokers=3) as cluster:
        cluster.create_topic("events", config={"min.insync.replicas": "2"})
        for broker in order:
            cluster.take_down(broker)
        assert cluster.leader("events") is None
        cluster.heal()
        for broker in order:
            await _comes_up(cluster, broker)
        (partition,) = (await _topic(cluster.bootstrap, "events")).partitions
        assert (partition.leader_id, sorted(partition.isr_nodes)) == (order[-1], [1, 2, 3])
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer, asyncio.timeout(10):
            await producer.send_and_wait("events", b"stored")


async def test_a_leader_that_was_out_of_sync_is_in_sync() -> None:
    """As after an unclean election: else a Produce with acks=all would fail for ever."""
    async with Cluster(brokers=2, topics={"events": 1}) as cluster:
        cluster.take_down(2)
        cluster.take_down(1)
        cluster.bring_up(2)
        await _comes_up(cluster, 2)
        assert cluster.leader("events") is None
        assert cluster.move_leader("events", to=2) == 2
        (partition,) = (await _topic(cluster.bootstrap, "events", 2)).partitions
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (2, [1, 2], [2])
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer, asyncio.timeout(10):
            await producer.send_and_wait("events", b"stored")


async def test_a_leader_without_a_replica_gets_the_first_one() -> None:
    async with Cluster(brokers=4, topics={"events": 1}) as cluster:
        cluster.take_down(1)
        cluster.bring_up(1)
        await _comes_up(cluster, 1)  # the last one in sync, and still the first replica
        assert cluster.move_leader("events", to=4) == 4
        (partition,) = (await _topic(cluster.bootstrap, "events")).partitions
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (4, [4, 2, 3], [4, 2, 3])


async def test_a_broker_that_is_brought_up_twice_keeps_its_address() -> None:
    async with Cluster(brokers=2, topics={"events": 1}) as cluster:
        before = cluster.bootstrap
        cluster.take_down(1)
        cluster.bring_up(1)
        cluster.heal()  # which would bring it up, too
        await _comes_up(cluster, 1)
        assert cluster.bootstrap == before


async def test_a_broker_that_is_taken_down_while_it_comes_up_is_down() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("single", replication_factor=1)
        before = cluster.bootstrap
        for _ in range(2):
            cluster.take_down(1)
            cluster.bring_up(1)
        cluster.take_down(1)
        for _ in range(20):
            assert not await _answers(cluster, 1)
        assert cluster.leader("single") is None
        cluster.bring_up(1)
        await _comes_up(cluster, 1)
        assert (cluster.leader("single"), cluster.bootstrap) == (1, before)


async def test_a_broker_that_is_down_and_up_again_while_it_comes_up_is_up() -> None:
    async with Cluster(brokers=2) as cluster:
        cluster.take_down(1)
        cluster.bring_up(1)
        before = cluster.bootstrap
        await asyncio.sleep(0)  # it begins to listen
        cluster.take_down(1)
        cluster.bring_up(1)
        await _comes_up(cluster, 1)
        assert cluster.bootstrap == before


async def _comes_up(cluster: Cluster, broker: int) -> None:
    async with asyncio.timeout(10):
        while not await _answers(cluster, broker):
            pass


async def _answers(cluster: Cluster, broker: int) -> bool:
    try:
        async with connected(cluster.bootstrap, broker) as client:
            return bool((await client.ask(MetadataRequest(topics=[]))).brokers)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False


async def test_what_has_nowhere_to_move_to_is_refused() -> None:
    """Else a test of a move would pass in a cluster of one broker, which is the default, and would have tested none."""
    async with Cluster(topics={"events": 1}) as cluster:
        with pytest.raises(ValueError, match="no other replica that is in sync and up: give the cluster more brokers"):
            cluster.move_leader("events")
        with pytest.raises(ValueError, match="no other broker is up that could coordinate 'group'"):
            cluster.move_coordinator("group", loading=1.0)
        assert cluster.move_leader("events", to=1) == 1, "the same broker in a new epoch"
        assert cluster.move_coordinator("group", to=1) == 1
    async with Cluster(brokers=2) as cluster:
        cluster.create_topic("events", replication_factor=1)
        with pytest.raises(ValueError, match="or the topic more replicas"):
            cluster.move_leader("events")
        assert cluster.move_leader("events", to=2) == cluster.leader("events") == 2
        cluster.take_down(1)
        with pytest.raises(ValueError, match="no other broker"):
            cluster.move_coordinator("group")


async def test_a_coordinator_can_be_moved_and_moves_when_it_dies() -> None:
    async with Cluster(brokers=3) as cluster, connected(cluster.bootstrap, 3) as client:
        assert cluster.move_coordinator("group", to=2) == cluster.coordinator("group") == 2
        found = await client.ask(FindCoordinatorRequest(key="group"), 3)
        assert (found.error_code, found.node_id) == (0, 2)
        cluster.take_down(2)
        found = await client.ask(FindCoordinatorRequest(coordinator_keys=["group"]), 4)
        assert found.coordinators[0].node_id in (1, 3)


async def test_a_coordinator_that_is_down_is_named_until_it_comes_up_or_the_next_move() -> None:
    """As brokers do until they have noticed."""
    heartbeat = HeartbeatRequest(group_id="billing", generation_id=1, member_id="m")
    async with Cluster(brokers=3) as cluster, connected(cluster.bootstrap, 3) as client:
        cluster.take_down(2)
        assert cluster.move_coordinator("billing", to=2) == cluster.coordinator("billing") == 2
        assert (await client.ask(FindCoordinatorRequest(key="billing"), 3)).node_id == 2
        assert (await client.ask(heartbeat)).error_code == ErrorCode.NOT_COORDINATOR
        cluster.take_down(1)  # the death of another broker, and its return, change nothing
        cluster.bring_up(1)
        await _comes_up(cluster, 1)
        assert cluster.coordinator("billing") == 2
        assert cluster.move_coordinator("billing") == cluster.coordinator("billing") != 2
        cluster.move_coordinator("billing", to=2)
        cluster.heal()
        await _comes_up(cluster, 2)
        async with connected(cluster.bootstrap, 2) as coordinator:
            assert (await coordinator.ask(heartbeat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        cluster.take_down(2)
        cluster.move_coordinator("billing", to=2, loading=60)
        cluster.bring_up(2)
        await _comes_up(cluster, 2)
        async with connected(cluster.bootstrap, 2) as coordinator:
            # While it loads the group, it agrees to every heartbeat, as Kafka does.
            assert (await coordinator.ask(heartbeat)).error_code == ErrorCode.NONE
        cluster.take_down(2)
        assert cluster.coordinator("billing") == 3


def test_a_cluster_in_a_thread_for_callers_without_a_loop() -> None:
    with Cluster(brokers=2).in_thread() as cluster:
        cluster.create_topic("events", partitions=2)
        assert cluster.append("events", b"a", b"b", partition=1) == 0
        assert [record.value for record in cluster.records("events", 1)] == [b"a", b"b"]
        assert asyncio.run(_topic(cluster.bootstrap, "events")).name == "events"


async def test_an_error_of_an_interceptor_is_not_lost() -> None:
    def broken(exchange: object) -> None:
        raise ZeroDivisionError("of the test")

    cluster = Cluster()
    await cluster.start()
    cluster.intercept(ApiKey.METADATA, broken)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await _topic(cluster.bootstrap, "events")
    with pytest.raises(ZeroDivisionError, match="of the test"):
        await cluster.stop()


async def test_an_error_of_a_timer_is_not_lost_and_the_next_timer_runs() -> None:
    def broken() -> None:
        raise ZeroDivisionError("of a timer")

    cluster, later = Cluster(), asyncio.Event()
    await cluster.start()
    state = cluster._state
    state.groups._groups.timers.schedule(("group", "session", "first"), 0.0, broken)
    state.groups._groups.timers.schedule(("group", "session", "second"), 0.0, later.set)
    state.timers_changed()
    await asyncio.wait_for(later.wait(), 10)
    with pytest.raises(ZeroDivisionError, match="of a timer"):
        await cluster.stop()


async def test_a_broker_that_cannot_come_up_is_told_of_and_can_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    listen, failed = Broker.listen, asyncio.Event()

    async def broken(broker: Broker) -> None:
        failed.set()
        raise OSError("no file descriptor is left")

    cluster = Cluster(brokers=2)
    await cluster.start()
    cluster.take_down(1)
    monkeypatch.setattr(Broker, "listen", broken)
    cluster.bring_up(1)
    await failed.wait()
    monkeypatch.setattr(Broker, "listen", listen)
    cluster.bring_up(1)
    await _comes_up(cluster, 1)
    with pytest.raises(OSError, match="no file descriptor"):
        await cluster.stop()


def test_a_local_kafka_does_not_pay_for_the_cluster() -> None:
    code = "import sys, aiokc.testing.kafka; sys.exit('aiokc.testing.cluster.embedded_cluster' in sys.modules)"
    assert run_to_end([sys.executable, "-c", code], seconds=50).returncode == 0


async def test_creating_a_topic_that_exists_is_an_error() -> None:
    """A client that asked first has created it with default settings: a test that goes on would test another
    topic.
    """
    async with Cluster(topics={"events": 2}) as cluster:
        cluster.append("events", b"kept")
        with pytest.raises(Refusal, match="Topic 'events' already exists"):
            cluster.create_topic("events", 6)
        assert [record.value for record in cluster.records("events")] == [b"kept"]


@pytest.mark.parametrize("name", ["\udcff", "a\x1b[31mb", "..", "", "x" * 250, "two words"])
async def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    """The answers of the brokers could not be sent, and clients would look for the cause elsewhere."""
    with pytest.raises(ValueError, match="is no name of a topic"):
        Cluster(topics={name: 1})
    async with Cluster() as cluster:
        with pytest.raises(ValueError, match="is no name of a topic"):
            cluster.create_topic(name)


def test_names_of_topics_that_collide_are_refused_before_anything_listens() -> None:
    with pytest.raises(ValueError, match=r"'my_events' collides with 'my\.events'"):
        Cluster(topics={"my.events": 1, "other": 1, "my_events": 1})


@pytest.mark.parametrize("fails", ["a topic", "a listener"])
async def test_a_start_that_fails_leaves_no_broker_listening(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``async with`` does not stop what has not started."""
    cluster, opened = Cluster(brokers=2, listeners={"A": "PLAINTEXT", "B": "PLAINTEXT"}), list[asyncio.Server]()
    last, listen = cluster._brokers[2], Broker._open

    async def noted(broker: Broker, listener: str, endpoint: Endpoint) -> asyncio.Server:
        if fails == "a listener" and broker is last and listener == "B":
            raise OSError("no port is free")
        opened.append(await listen(broker, listener, endpoint))
        return opened[-1]

    def fail(*_: object) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(Broker, "_open", noted)
    if fails == "a topic":
        cluster._topics = {"events": 1}
        monkeypatch.setattr(cluster._state, "create_topic", fail)
    with pytest.raises(OSError, match="no "):
        await cluster.start()
    assert len(opened) > 2
    left = [server for server in opened if server.is_serving()]
    for server in left:
        server.close()
    assert left == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"config": {"cleanup_policy": "compact"}}, "Unknown topic config name: cleanup_policy"),
        ({"config": {"retention.ms": "for ever"}}, "Invalid value for ever for configuration retention.ms"),
        ({"replication_factor": 3}, "3 replicas on 2 brokers"),
        ({"replication_factor": 0}, "0 replicas on 2 brokers"),
    ],
)
async def test_a_topic_that_kafka_would_refuse_is_refused(options: dict[str, Any], why: str) -> None:
    async with Cluster(brokers=2, topics={"my.events": 1}) as cluster:
        with pytest.raises(Refusal, match=why):
            cluster.create_topic("new", **options)
        with pytest.raises(Refusal, match=r"'my_events' collides with existing topics: my\.events"):
            cluster.create_topic("my_events")
        for name in ("new", "my_events"):
            with pytest.raises(Refusal, match="there is no topic"):
                cluster.records(name)


async def test_a_topic_whose_name_collides_is_not_created_for_a_client_either() -> None:
    """A broker has only asked the controller for it, and does not hear why there is none."""
    async with Cluster(topics={"my.events": 1}) as cluster, connected(cluster.bootstrap) as client:
        wish = MetadataRequest(topics=[MetadataRequestTopic(name="my_events")], allow_auto_topic_creation=True)
        for _ in range(2):
            assert (await client.ask(wish)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_appended_records_have_the_time_of_the_broker_where_the_topic_wants_that() -> None:
    async with Cluster(clock=lambda: 7.0) as cluster:
        cluster.create_topic("log", config={"message.timestamp.type": "LogAppendTime"})
        cluster.append("log", b"a", NewRecord(b"b", timestamp=5), codec=1)
        times = [(record.timestamp, record.timestamp_type) for record in cluster.records("log")]
        assert times == [(7_000, LOG_APPEND_TIME)] * 2


async def test_appended_records_without_a_timestamp_have_the_present_one_as_producers_give_it() -> None:
    async with Cluster(clock=lambda: 7.0, topics={"log": 1}) as cluster:
        cluster.append("log", b"a", NewRecord(b"b", key=b"k"), NewRecord(b"c", timestamp=5))
        cluster.append("log", b"d", NewRecord(b"e", timestamp=6), timestamp=NO_TIMESTAMP)
        assert [record.timestamp for record in cluster.records("log")] == [7_000, 7_000, 5, NO_TIMESTAMP, 6]
