"""A broker that is cut off from the controllers, and well otherwise: its answers are valid, and of no use for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from aiokc import Client, Consumer, Producer, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.errors import NoBrokersAvailable
from aiokc.net.pool import Pool
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest
from aiokc.wire.messages.produce import InitProducerIdRequest
from tests.client.virtually import Asked, port_of, virtually

T0 = TopicPartition("t", 0)


def first_only(cluster: Cluster) -> str:
    """The address of broker 1, which is the one to be cut off."""
    return cluster.bootstrap.split(",")[0]


async def _without_leaders(exchange: Exchange) -> Any:
    response: Any = await exchange.handle()
    for partition in [partition for topic in response.topics for partition in topic.partitions]:
        partition.leader_id = -1
    return response


async def _without_topics(exchange: Exchange) -> Any:
    response: Any = await exchange.handle()
    for topic in response.topics:
        topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
    return response


async def _with_former_leader(exchange: Exchange) -> Any:
    response: Any = await exchange.handle()
    for partition in [partition for topic in response.topics for partition in topic.partitions]:
        partition.leader_id, partition.leader_epoch = 2, partition.leader_epoch - 1
    return response


async def _with_former_topic(exchange: Exchange) -> Any:
    """Answer as a broker that has not heard that topic "t" was recreated: the former one has one partition."""
    response: Any = await exchange.handle()
    for topic in response.topics:
        if topic.name == "t":
            topic.topic_id, topic.partitions = UUID(int=1), topic.partitions[:1]
    return response


def _failing_once(pool: Pool) -> Any:
    """Return what fails, and makes the pool ask for metadata as before from then on."""
    ask = pool.metadata

    async def fail(*args: Any, **options: Any) -> Any:
        pool.metadata = ask  # type: ignore[method-assign]
        raise NoBrokersAvailable("no broker answered, for once")

    return fail


@pytest.mark.parametrize("answer", [_without_leaders, _without_topics])
def test_leaders_that_one_broker_does_not_hear_of_are_found_by_others(answer: Any) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(MetadataRequest, answer, where=lambda exchange: exchange.broker == 1)
        async with Producer(bootstrap_servers=first_only(cluster)) as producer, asyncio.timeout(5):
            await producer.send_and_wait("t", b"v", partition=0)

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize("fails", [False, True], ids=["answered", "failed-once"])
@pytest.mark.parametrize("is_wrong", [False, True], ids=["lacking", "wrong"])
def test_a_former_leader_is_believed_only_by_a_client_whose_metadata_are_found_wrong(
    is_wrong: bool, fails: bool
) -> None:
    """A client that looks for other topics, or whose question fails, has found nothing wrong."""

    async def story(cluster: Cluster) -> None:
        cluster.move_leader("t", to=2)
        cluster.move_leader("t", to=1)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            metadata = client._cluster.metadata
            with metadata.interest() as interest:
                interest.set(["t"])
                await metadata.wait_for(lambda known: known.leader(T0), 5, "the leader")
                epoch = metadata.cluster.leader_epoch(T0)
                cluster.intercept(MetadataRequest, _with_former_leader)
                for _ in range(10):
                    assert metadata.cluster.leader_epoch(T0) == epoch
                    refreshed_at = metadata.refreshed_at
                    if fails:
                        metadata._pool.metadata = _failing_once(metadata._pool)  # type: ignore[method-assign]
                    (metadata.request_update if is_wrong else metadata.request_missing)()
                    while metadata.refreshed_at == refreshed_at:
                        await metadata.changed.wait()
                assert metadata.cluster.leader_epoch(T0) == (epoch - 1 if is_wrong else epoch)

    virtually(story, brokers=2, topics={"t": 1})


def test_an_id_that_a_coordinator_assigns_is_believed_though_it_was_taken_for_a_former_one() -> None:
    """A broker that was behind has named the older id last. A member does not fetch what it knows no name of."""

    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            metadata = client._cluster.metadata
            with metadata.interest() as interest:
                interest.set(["t"])
                current = await metadata.wait_for(lambda known: known.topic_id("t"), 5, "the topic")
                cluster.intercept(MetadataRequest, _with_former_topic, times=1)
                metadata.request_update()
                while metadata.cluster.topic_id("t") == current:
                    await metadata.changed.wait()
                interest.set((), [current])
                async with asyncio.timeout(60):
                    while metadata.cluster.topic_id("t") != current:
                        await metadata.changed.wait()

    virtually(story, brokers=1, topics={"t": 1})


def test_a_refresh_that_was_only_due_counts_for_no_former_topic_though_it_fails_at_first() -> None:
    async def story(cluster: Cluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap, metadata_max_age_ms=10_000) as client:
            cluster.intercept(MetadataRequest, _with_former_topic, times=1)
            metadata = client._cluster.metadata
            with metadata.interest() as interest:
                interest.set(["t"])
                await metadata.wait_for(lambda known: known.topic_id("t"), 5, "the former topic")
                metadata.request_update()
                current = await metadata.wait_for(
                    lambda known: known.topic_id("t") if known.topic_id("t") != UUID(int=1) else None, 5, "the topic"
                )
                cluster.intercept(MetadataRequest, _with_former_topic)
                for _ in range(20):
                    refreshed_at = metadata.refreshed_at
                    metadata._pool.metadata = _failing_once(metadata._pool)  # type: ignore[method-assign]
                    while metadata.refreshed_at == refreshed_at:
                        await metadata.changed.wait()
                    assert metadata.cluster.topic_id("t") == current

    virtually(story, brokers=1, topics={"t": 1})


def test_a_partition_that_only_the_recreated_topic_has_can_be_written_to() -> None:
    """The producer has heard of the new topic, and then of the former one from a broker that was behind."""

    async def story(cluster: Cluster) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            assert len(await producer.partitions_for("t")) == 2
            cluster.intercept(MetadataRequest, _with_former_topic, times=1)
            metadata = producer._runtime.cluster_client.metadata
            metadata.request_update()
            await metadata.changed.wait()
            assert metadata.cluster.topic_id("t") == UUID(int=1)
            async with asyncio.timeout(15):
                await producer.send_and_wait("t", b"v", partition=1)

    virtually(story, brokers=1, topics={"t": 2})


def test_a_reader_of_a_recreated_topic_that_looks_for_another_one_stays_with_the_new_one() -> None:
    """It can ask two brokers, and one of them is cut off: that one does not give ten answers in a row."""

    async def story(cluster: Cluster) -> None:
        asked: list[int] = []

        async def answer(exchange: Exchange) -> Any:
            asked.append(exchange.broker)
            return await _with_former_topic(exchange) if exchange.broker == 1 else None

        cluster.move_leader("t", to=2)
        cluster.intercept(MetadataRequest, answer)
        cluster.append("t", b"v")
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False}
        async with Consumer("t", "missing", bootstrap_servers=first_only(cluster), **options) as consumer:
            assert (await consumer.getone()).value == b"v"
            metadata = consumer._runtime.cluster_client.metadata
            current, begun = metadata.cluster.topic_id("t"), len(asked)
            assert current != UUID(int=1)
            assert await consumer.getmany(timeout_ms=60_000) == {}
            assert metadata.cluster.topic_id("t") == current
            first, second = asked[begun::2], asked[begun + 1 :: 2]
            assert len(second) > 25
            assert [{*first}, {*second}] in ([{1}, {2}], [{2}, {1}]), "in turn"

    virtually(story, brokers=2, topics={"t": 1})


def test_each_question_of_a_refresh_goes_to_each_of_two_brokers() -> None:
    """One asks by ids, one by names. A broker that is cut off must not be the only one that is asked one of them."""

    async def story(cluster: Cluster) -> None:
        asked: list[tuple[str, int]] = []

        def note(exchange: Exchange) -> None:
            asked.append(("ids" if exchange.request.topics[0].name is None else "names", exchange.broker))

        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            cluster.intercept(MetadataRequest, note)
            with client._cluster.metadata.interest() as interest:
                interest.set(["missing"], [UUID(int=1)])
                await asyncio.sleep(60)
        often = Counter(asked)
        assert often.keys() == {("ids", 1), ("ids", 2), ("names", 1), ("names", 2)}
        assert min(often.values()) > len(asked) / 5, often

    virtually(story, brokers=2, topics={"t": 1})


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT])
def test_a_producer_id_that_one_broker_cannot_give_is_had_from_others(code: ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(InitProducerIdRequest, code, where=lambda exchange: exchange.broker == 1)
        cluster.move_leader("t", to=1)
        async with Producer(bootstrap_servers=first_only(cluster)) as producer, asyncio.timeout(5):
            await producer.send_and_wait("t", b"v", partition=0)

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize("is_named", [False, True], ids=["none", "the-wrong-one"])
def test_a_coordinator_that_one_broker_does_not_know_is_found_by_others(is_named: bool) -> None:
    async def story(cluster: Cluster) -> None:
        coordinator = cluster.coordinator("g")
        wrong = next(node_id for node_id in (1, 2, 3) if node_id != coordinator)

        async def misname(exchange: Exchange) -> Any:
            response: Any = await exchange.handle()
            if is_named:
                response.node_id, response.port = wrong, port_of(cluster, wrong)
            else:
                response.node_id, response.error_code = -1, ErrorCode.COORDINATOR_NOT_AVAILABLE
            return response

        cluster.append("t", b"v")
        cluster.intercept(FindCoordinatorRequest, misname, where=lambda exchange: exchange.broker == 1)
        consumer = Consumer("t", bootstrap_servers=first_only(cluster), group_id="g", auto_offset_reset="earliest")
        async with consumer, asyncio.timeout(15):
            assert (await consumer.getone()).value == b"v"

    virtually(story, topics={"t": 1})


def test_a_client_whose_metadata_are_found_wrong_now_and_then_needs_no_other_connection() -> None:
    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        cluster.move_leader("t", to=1)
        asked = Asked(cluster, loop)
        async with Producer(bootstrap_servers=first_only(cluster)) as producer:
            for _ in range(20):
                await producer.send_and_wait("t", b"v", partition=0)
                producer._runtime.cluster_client.metadata.request_update()
                await asyncio.sleep(20)
        assert len(asked.connects_per_second(0.0)) == 1

    virtually(story, topics={"t": 1})
