"""Each fault of the Cluster: as a client on the wire sees it, and how aiokc's own client recovers from it."""

from __future__ import annotations

import asyncio

import pytest

import aiokc
from aiokc.error_codes import ErrorCode
from aiokc.records import NewRecord, encode_batch
from aiokc.testing import Cluster
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.brokers.apis.table import REQUESTS
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.brokers.refusals import refused
from aiokc.testing.faults import (
    Fault,
    Hold,
    delay,
    disconnect,
    drop,
    garble,
    half_frame,
    lose_answer,
    stale_leader,
    throttle,
)
from aiokc.wire import Response, encode, encode_request
from aiokc.wire.messages.discovery import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
)
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from aiokc.wire.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.net.scripted import ticks
from tests.suite.unused_faults import may_be_unused

from ...client.virtually import virtually
from ..wire_client import WireClient, connected

pytestmark = pytest.mark.any_loop

#: Of uvloop's clock, in seconds.
TICK = 0.001
BROKEN = (asyncio.IncompleteReadError, ConnectionError)


def _ends() -> ListOffsetsRequest:
    topics = [ListOffsetsTopic(name="events", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


async def _end_code(client: WireClient) -> int:
    return (await client.ask(_ends(), 7)).topics[0].partitions[0].error_code


async def test_an_error_for_a_number_of_requests() -> None:
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        refusal = cluster.intercept(ListOffsetsRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
        codes = [await _end_code(client) for _ in range(3)]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]
        assert refusal.hits == 2


async def test_an_interception_of_some_requests_until_it_is_cancelled() -> None:
    async with Cluster(brokers=2, topics={"events": 1}) as cluster:
        refusal = cluster.intercept(
            ApiKey.LIST_OFFSETS, ErrorCode.OFFSET_NOT_AVAILABLE, where=lambda exchange: exchange.broker == 1
        )
        async with connected(cluster.bootstrap, 1) as first, connected(cluster.bootstrap, 2) as second:
            assert await _end_code(second) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await _end_code(first) == ErrorCode.OFFSET_NOT_AVAILABLE
            refusal.cancel()
            assert await _end_code(first) == 0


async def test_a_function_that_answers() -> None:
    def answer(exchange: Exchange) -> Response:
        assert exchange.request.key == "group"
        assert exchange.client_id == "tests"
        return FindCoordinatorResponse(node_id=77, host="elsewhere", port=1)

    async with Cluster() as cluster, connected(cluster.bootstrap) as client:
        cluster.intercept(FindCoordinatorRequest, answer, times=1)
        assert (await client.ask(FindCoordinatorRequest(key="group"), 3)).node_id == 77
        assert (await client.ask(FindCoordinatorRequest(key="group"), 3)).node_id == 1


async def test_throttle() -> None:
    async with Cluster() as cluster, connected(cluster.bootstrap) as client:
        cluster.intercept(MetadataRequest, throttle(30), times=1)
        began = asyncio.get_running_loop().time()
        assert (await client.ask(MetadataRequest(topics=[]))).throttle_time_ms == 30
        assert (await client.ask(MetadataRequest(topics=[]))).throttle_time_ms == 0
        assert asyncio.get_running_loop().time() - began >= 0.03 - TICK


async def test_delay() -> None:
    async with Cluster() as cluster, connected(cluster.bootstrap) as client:
        cluster.intercept(MetadataRequest, delay(0.03))
        began = asyncio.get_running_loop().time()
        await client.ask(MetadataRequest(topics=[]))
        assert asyncio.get_running_loop().time() - began >= 0.03 - TICK


async def test_drop_is_silence_on_this_connection_only() -> None:
    async with Cluster() as cluster:
        dropping = cluster.intercept(MetadataRequest, drop(), times=1)
        async with connected(cluster.bootstrap) as client, connected(cluster.bootstrap) as other:
            client.send(MetadataRequest(topics=[]))
            client.send(MetadataRequest(topics=[]))
            await dropping.caught()
            await other.ask(MetadataRequest(topics=[]))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.receive(), 0.02)


@pytest.mark.parametrize("fault", [disconnect(), lose_answer(), half_frame()])
async def test_faults_that_break_the_connection(fault: Fault) -> None:
    async with Cluster() as cluster:
        cluster.intercept(MetadataRequest, fault, times=1)
        async with connected(cluster.bootstrap) as client:
            with pytest.raises(BROKEN):
                await client.ask(MetadataRequest(topics=[]))
        async with connected(cluster.bootstrap) as client:
            await client.ask(MetadataRequest(topics=[]))


async def test_half_a_frame_is_a_half() -> None:
    async with Cluster() as cluster, connected(cluster.bootstrap) as client:
        client.send(MetadataRequest(topics=[]))
        whole = await client.frame()
        cluster.intercept(MetadataRequest, half_frame(), times=1)
        client.send(MetadataRequest(topics=[]))
        with pytest.raises(asyncio.IncompleteReadError) as broken:
            await client.frame()
        assert len(broken.value.partial) == (len(whole) + 4) // 2 - 4


async def test_garble_keeps_length_and_correlation_id() -> None:
    async with Cluster() as cluster, connected(cluster.bootstrap) as client:
        client.send(MetadataRequest(topics=[]))
        right = await client.frame()
        cluster.intercept(MetadataRequest, garble(), times=1)
        client.send(MetadataRequest(topics=[]))
        wrong = await client.frame()
        assert wrong[:4] == (2).to_bytes(4)
        assert len(wrong) == len(right)
        assert wrong[4:] != right[4:]


async def test_stale_leader() -> None:
    async with Cluster(brokers=2, topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        cluster.intercept(MetadataRequest, stale_leader(), times=1)
        (first,) = (await client.ask(MetadataRequest(topics=None))).topics[0].partitions
        assert (first.leader_id, first.leader_epoch) == (1, 0), "an epoch has one leader"
        cluster.move_leader("events", to=2)
        cluster.intercept(MetadataRequest, stale_leader(), times=1)
        leaders = []
        for _ in range(2):
            (partition,) = (await client.ask(MetadataRequest(topics=None))).topics[0].partitions
            leaders.append((partition.leader_id, partition.leader_epoch))
        assert leaders == [(1, 0), (2, 1)]
        cluster.intercept(ListOffsetsRequest, stale_leader(), times=1)
        async with connected(cluster.bootstrap, 2) as leader:
            assert await _end_code(leader) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_hold() -> None:
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        hold = Hold()
        cluster.intercept(ListOffsetsRequest, hold)
        client.send(_ends(), 7)
        await hold.arrived()
        cluster.append("events", b"a")  # while the request is under way
        hold.release()
        assert (await client.receive()).topics[0].partitions[0].offset == 1


@pytest.mark.parametrize("fault", [Hold(), delay(1e6)], ids=["hold", "delay"])
@pytest.mark.parametrize("is_cancelled", [False, True], ids=["", "cancelled before"])
async def test_heal_lets_requests_go_on_that_wait(fault: Fault, is_cancelled: bool) -> None:
    """Else a client would wait for its request timeout, in a cluster without a fault."""
    async with Cluster(topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client, asyncio.timeout(20):
        cluster.append("events", b"a")
        for _ in range(2):  # heal() takes nothing from a Hold that is used again
            interception = cluster.intercept(ListOffsetsRequest, fault)
            client.send(_ends(), 7)
            await interception.caught()
            if is_cancelled:
                interception.cancel()
            for _ in range(5):
                await asyncio.sleep(0)  # up to the wait
            cluster.heal()
            assert (await client.receive()).topics[0].partitions[0].offset == 1


async def test_slow_link() -> None:
    async with Cluster() as cluster, connected(cluster.bootstrap) as client:
        cluster.slow_link(1, latency=0.02, bytes_per_second=10_000)
        began = asyncio.get_running_loop().time()
        await client.ask(MetadataRequest(topics=[]))
        assert asyncio.get_running_loop().time() - began >= 0.02 - TICK
        cluster.heal()


async def _arrivals(reader: asyncio.StreamReader, requests: int) -> list[float]:
    """Receive the answers to requests with the correlation ids 0, 1, ... Return when they have come, from now on."""
    loop = asyncio.get_running_loop()
    began, came = loop.time(), list[float]()
    for number in range(requests):
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        assert int.from_bytes(frame[:4]) == number, "in order"
        came.append(round(loop.time() - began, 3))
    return came


def test_latencies_of_pipelined_requests_do_not_add_up() -> None:
    async def story(cluster: Cluster) -> None:
        host, _, port = cluster.bootstrap.split(",")[0].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        request = MetadataRequest(topics=[])

        def send(count: int) -> None:
            for number in range(count):
                writer.write(encode_request(request, version=9, correlation_id=number, client_id="tests"))

        cluster.slow_link(1, latency=0.2)
        send(5)
        came = await _arrivals(reader, 5)
        assert came == pytest.approx([0.2] * 5, abs=0.05)
        cluster.slow_link(1, latency=1e6)
        served = cluster.intercept(MetadataRequest, lambda exchange: None)
        send(2)
        await served.caught(2)
        cluster.heal()  # which lets those arrive that are under way
        assert await _arrivals(reader, 2) == pytest.approx([0.0] * 2, abs=0.05)
        cluster.slow_link(1, latency=0.2)
        cluster.intercept(MetadataRequest, half_frame(), times=1)
        send(1)
        assert len(await reader.read()) > 0, "what is under way arrives before the connection is closed"
        writer.close()

    virtually(story)


@pytest.mark.parametrize("api", sorted(REQUESTS))
def test_every_api_can_be_refused(api: int) -> None:
    """An empty request of each API has an answer with an error code, in each version."""
    request_class = REQUESTS[api]
    for version in range(request_class.min_version, request_class.max_version + 1):
        request = request_class(**{name: _empty(name) for name in request_class._specs if name in _REQUIRED})
        response = refused(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert isinstance(response, request_class.response)
        assert encode(response, version)


_REQUIRED = {
    "acks", "assignments", "auth_bytes", "committed", "generation_id", "group_id", "group_ids", "groups",
    "groups_names", "include_authorized_operations", "include_cluster_authorized_operations",
    "isolation_level", "max_wait_ms", "mechanism", "member_epoch", "member_id", "min_bytes", "producer_epoch",
    "producer_id",
    "protocol_type", "protocols", "replica_id", "resources", "session_timeout_ms", "timeout_ms", "topic_data", "topics",
    "transaction_timeout_ms",
    "transactional_id", "validate_only",
}  # fmt: skip


def _empty(name: str) -> object:
    if name in {"assignments", "group_ids", "groups", "groups_names", "protocols", "resources", "topics", "topic_data"}:
        return []
    if name == "auth_bytes":
        return b""
    return "x" if name in {"group_id", "mechanism", "member_id", "protocol_type", "transactional_id"} else 0


@pytest.mark.parametrize("version", [0, 12, 13])
@pytest.mark.parametrize("names", [["events"], None], ids=["one", "all"])
async def test_a_topic_that_metadata_refuses_is_in_an_answer_with_brokers(
    names: list[str] | None, version: int
) -> None:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    asked = [MetadataRequestTopic(name=name) for name in names] if names else [] if version == 0 else None
    async with Cluster(brokers=2, topics={"events": 1}) as cluster, connected(cluster.bootstrap) as client:
        cluster.intercept(MetadataRequest, denied, times=1)
        answer = await client.ask(MetadataRequest(topics=asked), version)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("events", denied)]
        assert [broker.node_id for broker in answer.brokers] == [1, 2]
        assert answer.error_code == 0
        cluster.intercept(MetadataRequest, ErrorCode.REBOOTSTRAP_REQUIRED, times=1)
        whole = await client.ask(MetadataRequest(topics=asked), 13)
        assert (whole.error_code, whole.brokers) == (ErrorCode.REBOOTSTRAP_REQUIRED, [])


async def test_a_topic_that_metadata_refuses_is_named_by_the_error() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        cluster.intercept(MetadataRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async with aiokc.Consumer("events", bootstrap_servers=cluster.bootstrap) as consumer:
            with pytest.raises(aiokc.errors.AuthorizationFailed, match="'events'"):
                await consumer.getone()


async def test_a_coordinator_that_loads_refuses_the_requests_of_a_transactional_id() -> None:
    request = InitProducerIdRequest(transactional_id="app", transaction_timeout_ms=60_000)
    async with Cluster(brokers=2) as cluster, connected(cluster.bootstrap, 1) as client:
        for loading in (0.05, 5.0):  # a busy machine may be late with the first request
            cluster.move_coordinator("app", to=1, loading=loading)
            code = (await client.ask(request, 4)).error_code
            if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
        assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while (await client.ask(request, 4)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        assert (await client.ask(request, 4)).error_code == 0


async def _read_all(cluster: Cluster, values: list[bytes]) -> None:
    """Read a partition with aiokc while records come and things break."""
    partition = aiokc.TopicPartition("events", 0)
    config = aiokc.ConsumerConfig(bootstrap_servers=cluster.bootstrap, retry_backoff_ms=1, retry_backoff_max_ms=10)
    async with aiokc.Consumer(config=config) as consumer, asyncio.timeout(20):
        consumer.assign([partition])
        consumer.seek(partition, 0)
        read: list[bytes | None] = []
        while len(read) < len(values):
            for records in (await consumer.getmany(timeout_ms=10_000)).values():
                read += [record.value for record in records]
            assert read == values[: len(read)]


@pytest.mark.parametrize(
    "fault",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        disconnect(),
        lose_answer(),
        half_frame(),
        throttle(20),
        delay(0.02),
        stale_leader(),
    ],
)
async def test_aiokc_reads_on_after_a_fault(fault: Fault) -> None:
    async with Cluster(brokers=2, topics={"events": 1}) as cluster:
        values = [f"{number}".encode() for number in range(20)]
        interception = may_be_unused(cluster.intercept(FetchRequest, fault, times=3))  # two may bring all
        for value in values:
            cluster.append("events", value)
        await _read_all(cluster, values)
        assert interception.hits > 0


async def test_aiokc_follows_leaders_and_restarts() -> None:
    async with Cluster(brokers=3, topics={"events": 1}) as cluster, asyncio.timeout(25):
        values = [f"{number}".encode() for number in range(30)]
        for value in values[:10]:
            cluster.append("events", value)
        reading = asyncio.create_task(_read_all(cluster, values))
        fetches = cluster.intercept(FetchRequest, lambda exchange: None)
        await fetches.caught(2)
        cluster.move_leader("events")
        for value in values[10:20]:
            cluster.append("events", value)
        await fetches.caught(fetches.hits + 1)
        cluster.take_down(cluster.leader("events") or 0)
        for value in values[20:]:
            cluster.append("events", value)
        await reading


async def test_a_broker_that_is_brought_up_twice_comes_up_once_at_its_port() -> None:
    async with Cluster(brokers=2) as cluster:
        before = cluster.bootstrap
        cluster.create_topic("single", replication_factor=1)
        cluster.take_down(1)
        cluster.bring_up(1)
        cluster.heal()
        async with connected(cluster.bootstrap, 2) as client:
            while cluster.leader("single") is None:  # until the first one listens: on uvloop that takes a thread, too
                await client.ask(MetadataRequest(topics=[]))
        for _ in range(20):  # rounds of the loop, in which another one would have come
            await asyncio.sleep(0)
        assert cluster.bootstrap == before
        async with connected(cluster.bootstrap) as client:
            assert len((await client.ask(MetadataRequest(topics=[]))).brokers) == 2


@pytest.mark.parametrize("fault", [garble(), throttle(1), half_frame()], ids=["garble", "throttle", "half_frame"])
async def test_a_request_that_a_fault_has_handled_is_handled_once(fault: Fault) -> None:
    """A Produce with acks=0 has no answer to send, which is no reason to store its records again."""
    async with Cluster(topics={"t": 1}) as cluster, connected(cluster.bootstrap) as client:
        faulty = cluster.intercept(ApiKey.PRODUCE, fault, times=1)
        data = PartitionProduceData(index=0, records=memoryview(encode_batch([NewRecord(b"once")])))
        topic = TopicProduceData(name="t", partition_data=[data])
        client.send(ProduceRequest(acks=0, timeout_ms=1_000, topic_data=[topic]), 8)
        await faulty.caught()
        await ticks(50)  # in which it is handled, and would be handled again
        assert [record.value for record in cluster.records("t")] == [b"once"]
