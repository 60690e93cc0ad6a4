"""ClusterClient: what remains after it has stopped, and what a broker with bad answers cannot do to it."""

from __future__ import annotations

import asyncio
import re
from random import Random
from typing import Any

import pytest

from aiokc import Client, Consumer, Producer, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import ConsumerClosed, KafkaError, NoBrokersAvailable, RequestTimedOut, UsageError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Fault, Hold, drop
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import MetadataRequest, MetadataResponse, MetadataResponseBroker
from aiokc.wire.messages.group import ConsumerGroupHeartbeatRequest, LeaveGroupRequest
from tests.suite.unused_faults import may_be_unused

from ..virtually import virtually


@pytest.mark.parametrize("rounds", range(1, 12))
def test_a_stop_that_is_cancelled_closes_everything_all_the_same(rounds: int) -> None:
    loop = VirtualLoop(Random(rounds))

    async def client(bootstrap: str) -> None:
        consumer = Consumer("events", bootstrap_servers=bootstrap)
        await consumer.start()
        await consumer.getmany(timeout_ms=2000)
        stopping = loop.create_task(consumer.stop())
        for _ in range(rounds):
            await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait([stopping])

    async def main() -> None:
        async with Cluster(brokers=2, topics={"events": 2}) as cluster:
            await loop.spawn_on("client", client(cluster.bootstrap))
            await asyncio.sleep(1)
            assert loop.tasks_on("client") == []
            assert loop.network.transports_of("client") == []

    loop.run_until_complete(main())
    loop.end()


@pytest.mark.parametrize(("host", "port"), [("kafka-1..svc", 9092), ("127.0.0.1", 70_000)])
async def test_a_broker_with_an_impossible_address_affects_no_other_broker(host: str, port: int) -> None:
    """For example, a template for advertised.listeners was filled in with nothing: no resolver and no socket takes
    that.
    """
    partitions = [TopicPartition("events", number) for number in range(2)]
    async with Cluster(brokers=2, topics={"events": 2}) as cluster:
        away = cluster.leader("events", 1)
        assert cluster.leader("events", 0) != away

        async def misled(exchange: Exchange) -> MetadataResponse:
            response = await exchange.handle()
            assert isinstance(response, MetadataResponse)
            for broker in response.brokers:
                if broker.node_id == away:
                    broker.host, broker.port = host, port
            return response

        wrong = cluster.intercept(MetadataRequest, misled)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=200)
        consumer.assign(partitions)
        async with asyncio.timeout(20), consumer:
            while consumer.health().last_error is None:
                await consumer.getmany(timeout_ms=10)
            cluster.append("events", b"here")
            assert (await consumer.getone()).value == b"here"
            wrong.cancel()
            cluster.append("events", b"there", partition=1)
            assert (await consumer.getone()).value == b"there"


# Answers that tell nothing of the cluster


def of_a_broker_that_starts(exchange: Exchange) -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[])


def of_brokers_below_zero(exchange: Exchange) -> MetadataResponse:
    return MetadataResponse(brokers=[MetadataResponseBroker(node_id=-7, host="b", port=9092)], topics=[])


TELLS_NOTHING = pytest.mark.parametrize(
    ("fault", "says"),
    [
        (of_a_broker_that_starts, "names no broker"),
        (of_brokers_below_zero, "names no broker"),
        (ErrorCode.REBOOTSTRAP_REQUIRED, "REBOOTSTRAP_REQUIRED"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"),
    ],
)


@TELLS_NOTHING
def test_a_client_goes_on_with_what_it_knows_of_the_cluster(fault: Fault, says: str) -> None:
    """It would believe that all topics are gone, give up its partitions, and close the connections."""

    async def story(cluster: Cluster) -> None:
        pattern = Consumer(
            re.compile("t.*"),
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            metadata_max_age_ms=1_000,
        )
        async with pattern as consumer:
            await consumer.wait_assigned()
            assigned, known = consumer.assignment(), consumer._runtime.cluster_client.metadata
            assert len(assigned) == 2
            wrong = cluster.intercept(MetadataRequest, fault)
            before = known.cluster
            cluster.create_topic("t-new", 1)
            await consumer.getmany(timeout_ms=45_000)
            assert known.cluster is before
            assert consumer.assignment() == assigned
            assert says in str(known.error)
            assert says in str(consumer.health().last_error)
            assert 20 < wrong.hits < 80, "once a second or so: a broker that starts has enough to do"
            cluster.append("t", b"still read")
            assert (await consumer.getone()).value == b"still read"
            wrong.cancel()
            async with asyncio.timeout(10):
                while len(consumer.assignment()) < 3:
                    await consumer.getmany(timeout_ms=100)
            assert known.error is None

    virtually(story)


@TELLS_NOTHING
def test_another_broker_is_asked(fault: Fault, says: str) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(MetadataRequest, fault, where=lambda exchange: exchange.broker != 2)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            for _ in range(5):
                assert list(await client.list_topics()) == ["t"]
                assert list(await client.describe_topics()) == ["t"]
                assert len(await client.log_dirs()) == 3

    virtually(story)


@TELLS_NOTHING
def test_calls_and_start_say_in_the_end_why_they_have_no_answer(fault: Fault, says: str) -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        client = Client(bootstrap_servers=cluster.bootstrap, request_timeout_ms=2_000)
        async with client:
            wrong = cluster.intercept(MetadataRequest, fault)
            for call, error in (
                (client.list_topics, NoBrokersAvailable),
                (client.describe_topics, RequestTimedOut),
                (client.list_groups, KafkaError),
            ):
                began = loop.time()
                with pytest.raises(error, match=says):
                    await call(timeout_ms=3_000)
                assert loop.time() - began == pytest.approx(3.0, abs=0.1)
        with pytest.raises(NoBrokersAvailable, match=says):
            await Client(bootstrap_servers=cluster.bootstrap, request_timeout_ms=2_000).start()
        wrong.cancel()

    virtually(story)


def test_metadata_that_can_t_be_refreshed_are_complained_of_twice_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            cluster.intercept(MetadataRequest, ErrorCode.INVALID_REQUEST)
            client._cluster.metadata.request_update()
            await asyncio.sleep(100)

    virtually(story)
    said = [record.getMessage() for record in caplog.records if "cannot refresh the metadata" in record.getMessage()]
    assert len(said) == 4
    assert re.search(r"\(\d+ more since the last such message\)$", said[-1])


def test_a_client_starts_beside_a_broker_that_starts() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(MetadataRequest, of_a_broker_that_starts, times=5)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            assert list(await client.list_topics()) == ["t"]

    virtually(story, brokers=1)


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            cluster.intercept(MetadataRequest, ErrorCode.INVALID_REQUEST)
            for call in (client.list_topics, client.describe_topics):
                began = loop.time()
                with pytest.raises(KafkaError, match="INVALID_REQUEST"):
                    await call(timeout_ms=30_000)
                assert loop.time() - began < 5

    virtually(story)


# start()


async def test_start_waits_for_a_start_in_another_task() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        hold = Hold()
        held = cluster.intercept(MetadataRequest, hold, times=1)
        consumer = Consumer("events", bootstrap_servers=cluster.bootstrap)
        first, second, given_up = (asyncio.create_task(consumer.start()) for _ in range(3))
        await held.caught()
        given_up.cancel()
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        assert not first.done()
        assert not second.done()
        hold.release()
        await asyncio.gather(first, second)
        assert list(await consumer.list_topics()) == ["events"]
        await consumer.stop()


async def test_a_start_that_waits_for_a_cancelled_one_raises() -> None:
    async with Cluster() as cluster:
        hold = Hold()
        held = cluster.intercept(MetadataRequest, hold, times=1)
        consumer = Consumer("events", bootstrap_servers=cluster.bootstrap)
        first, second = asyncio.create_task(consumer.start()), asyncio.create_task(consumer.start())
        await held.caught()
        first.cancel()
        with pytest.raises(ConsumerClosed):
            await second


@pytest.mark.parametrize("kind", [Client, Consumer])
def test_a_start_that_waits_for_another_one_has_its_own_deadline(kind: type[Client | Consumer]) -> None:
    async def story(cluster: Cluster) -> None:
        loop, hold = asyncio.get_running_loop(), Hold()
        cluster.intercept(MetadataRequest, hold, times=1)
        client = kind(bootstrap_servers=cluster.bootstrap)
        first = asyncio.create_task(client.start())
        await hold.arrived()
        began = loop.time()
        with pytest.raises(RequestTimedOut, match=r"another task's start\(\) was not over within 2 s"):
            await client.start(timeout_ms=2_000)
        assert loop.time() - began == pytest.approx(2.0)
        assert not first.done()
        hold.release()
        await first
        await client.start(timeout_ms=0)
        await client.stop()

    virtually(story)


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("has_coordinator", [True, False])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_whose_start_fails_leaves_its_group(protocol: Any, has_coordinator: bool, is_cancelled: bool) -> None:
    """It joins while the metadata are still asked for. Where the coordinator is silent, start() ends soon as well."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        cluster.intercept(MetadataRequest, ErrorCode.UNKNOWN_SERVER_ERROR)
        consumer = Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g", group_protocol=protocol)
        starting = asyncio.create_task(consumer.start(timeout_ms=10_000))
        await asyncio.sleep(5.0)
        assert len(cluster.members("g")) == 1
        if not has_coordinator:
            for api in (LeaveGroupRequest, ConsumerGroupHeartbeatRequest):
                may_be_unused(cluster.intercept(api, drop()))
        ends = began + 10.0
        if is_cancelled:
            ends = loop.time()
            starting.cancel()
        with pytest.raises(asyncio.CancelledError if is_cancelled else KafkaError):
            await starting
        if has_coordinator:
            assert loop.time() - ends < 0.5
            assert cluster.members("g") == []
        assert loop.time() - ends < 2.5
        await consumer.stop()

    virtually(story)


@pytest.mark.parametrize("kind", [Client, Consumer, Producer])
def test_a_start_under_another_library_than_asyncio_says_that_it_needs_asyncio(kind: Any) -> None:
    """trio runs a coroutine by send(), with no event loop of asyncio."""
    starting = kind(bootstrap_servers="localhost:9092").start()
    with pytest.raises(UsageError, match=r"aiokc needs asyncio: call it under asyncio.run\(\)"):
        starting.send(None)
