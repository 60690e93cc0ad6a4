"""Fetching from a replica in the consumer's rack (KIP-392), and going back to the leader."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.client.consumer.consumer import Consumer as ConsumerType
from aiokc.error_codes import ErrorCode
from aiokc.errors import CorruptRecord
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Interception, disconnect, drop
from aiokc.testing.kafka import LocalKafka
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.fetch import FetchRequest
from tests.producing import Message, produce

from ..virtually import virtually

pytestmark = pytest.mark.timeout(60)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RACKS = ("a", "b", "c")


async def values(consumer: ConsumerType, count: int) -> list[bytes]:
    async with asyncio.timeout(20):
        return [(await consumer.getone()).value or b"" for _ in range(count)]


class Asked:
    """Counts the Fetch requests that each broker gets."""

    def __init__(self, cluster: Cluster) -> None:
        self.brokers: Counter[int] = Counter()
        self.of: Interception = cluster.intercept(FetchRequest, self._note)

    def _note(self, exchange: Exchange) -> None:
        self.brokers[exchange.broker] += 1


@asynccontextmanager
async def from_the_follower(**options: Any) -> AsyncIterator[tuple[Cluster, ConsumerType, int, int]]:
    """A consumer in the rack of a follower, which it reads from already; and the ids of leader and follower."""
    async with Cluster(brokers=3, racks=RACKS, topics={"t": 1}) as cluster:
        leader = cluster.leader("t")
        assert leader is not None
        follower = leader % 3 + 1
        consumer = Consumer(
            **{
                "bootstrap_servers": cluster.bootstrap,
                "auto_offset_reset": "earliest",
                "client_rack": RACKS[follower - 1],
                "fetch_max_wait_ms": 50,
                "retry_backoff_ms": 10,
                "reconnect_backoff_ms": 10,
                **options,
            }
        )
        consumer.assign([T0])
        async with consumer:
            asked = Asked(cluster)
            cluster.append("t", b"first")
            assert await values(consumer, 1) == [b"first"]
            assert asked.brokers[follower] >= 1, "that is where it came from"
            asked.of.cancel()
            yield cluster, consumer, leader, follower


@asynccontextmanager
async def in_rack_of(cluster: Cluster, node_id: int, *partitions: TopicPartition, **options: Any) -> AsyncIterator[Any]:
    """A consumer in the rack of this broker, for a story in virtual time."""
    consumer = Consumer(
        **{
            "bootstrap_servers": cluster.bootstrap,
            "auto_offset_reset": "earliest",
            "client_rack": RACKS[node_id - 1],
            **options,
        }
    )
    consumer.assign(partitions)
    async with consumer:
        yield consumer


async def caught(interception: Interception, hits: int) -> None:
    async with asyncio.timeout(20):
        await interception.caught(hits)


async def test_records_come_from_the_replica_in_the_same_rack() -> None:
    async with from_the_follower() as (cluster, consumer, leader, follower):
        asked = Asked(cluster)
        for number in range(5):
            cluster.append("t", b"%d" % number)
            assert await values(consumer, 1) == [b"%d" % number]
        assert asked.brokers[leader] == 0
        assert asked.brokers[follower] >= 5


async def test_without_a_rack_the_leader_is_read() -> None:
    async with from_the_follower() as (cluster, _, leader, _follower):
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        consumer.assign([T0])
        async with consumer:
            asked = Asked(cluster)
            assert await values(consumer, 1) == [b"first"]
            assert asked.brokers[leader] >= 1


async def test_the_leader_is_asked_again_after_metadata_max_age() -> None:
    async with from_the_follower(metadata_max_age_ms=300) as (cluster, consumer, leader, follower):
        at_leader = cluster.intercept(FetchRequest, lambda exchange: None, where=lambda e: e.broker == leader)
        await caught(at_leader, 2)
        cluster.append("t", b"1")
        assert await values(consumer, 1) == [b"1"], "and it names the follower again"
        at_follower = cluster.intercept(FetchRequest, lambda exchange: None, where=lambda e: e.broker == follower)
        await caught(at_follower, 1)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH],
)
async def test_an_error_of_a_follower_makes_the_leader_be_asked(code: ErrorCode) -> None:
    """The follower's log may lag. This causes no reset, and nothing is lost or repeated."""
    async with from_the_follower(auto_offset_reset="earliest") as (cluster, consumer, leader, follower):
        refused = cluster.intercept(FetchRequest, code, times=1, where=lambda e: e.broker == follower)
        at_leader = cluster.intercept(FetchRequest, lambda exchange: None, where=lambda e: e.broker == leader)
        await caught(refused, 1)
        await caught(at_leader, 1)
        cluster.append("t", b"1")
        assert await values(consumer, 1) == [b"1"]


def _asks_for(request: Any, tp: TopicPartition, offset: int) -> bool:
    asked = [partition for topic in request.topics for partition in topic.partitions]
    return any((each.partition, each.fetch_offset) == (tp.partition, offset) for each in asked)


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_what_a_lagging_follower_says_twice_is_not_believed(reset: str) -> None:
    """Two Fetches ask it for one offset. By the first answer the leader is to be asked again; then comes the second."""

    async def story(cluster: Cluster) -> None:
        follower = next(node for node in (1, 2, 3) if node not in (cluster.leader("t", 0), cluster.leader("t", 1)))
        cluster.append("t", *(b"%d" % number for number in range(100)), partition=0)
        cluster.append("t", b"first", partition=1)
        both_ask = asyncio.Event()

        async def lag(exchange: Exchange) -> Any:
            if lagging.hits == 1:
                cluster.append("t", b"second", partition=1)  # The Fetch that is parked ends; the next asks for all.
            else:
                both_ask.set()
            await both_ask.wait()
            response: Any = await exchange.handle()
            for part in [part for topic in response.responses for part in topic.partitions]:
                if part.partition_index == T0.partition:
                    part.error_code, part.records = ErrorCode.OFFSET_OUT_OF_RANGE, None
            return response

        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset=reset, client_rack=RACKS[follower - 1]
        )
        consumer.assign([T0, T1])
        async with consumer:
            consumer.seek(T0, 0)
            consumer.seek(T1, 0)
            await values(consumer, 101)
            await asyncio.sleep(1)  # until the follower parks a Fetch
            assert {consumer._runtime.subscription[tp].read_replica for tp in (T0, T1)} == {follower}
            lagging = cluster.intercept(
                FetchRequest,
                lag,
                times=2,
                where=lambda exchange: exchange.broker == follower and _asks_for(exchange.request, T0, 90),
            )
            consumer.seek(T0, 90)
            async with asyncio.timeout(20):
                record = await consumer.getone(T0)
            assert lagging.exhausted
            assert record.offset == 90

    virtually(story, topics={"t": 2}, racks=RACKS)


def _garble(response: Any) -> None:
    for part in [part for topic in response.responses for part in topic.partitions]:
        if part.records:
            part.records = bytes(part.records)[:-1] + b"\xff"


def _refuse(code: ErrorCode) -> Callable[[Any], None]:
    def refuse(response: Any) -> None:
        for part in [part for topic in response.responses for part in topic.partitions]:
            part.error_code, part.records = code, None

    return refuse


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(_refuse(ErrorCode.UNKNOWN_SERVER_ERROR), id="server-error"),
        pytest.param(_refuse(ErrorCode.REPLICA_NOT_AVAILABLE), id="no-replica"),
        pytest.param(_refuse(ErrorCode.CORRUPT_MESSAGE), id="corrupt-message"),
        pytest.param(_garble, id="damaged-batch"),
    ],
)
def test_a_follower_that_always_errs_is_left_for_the_leader(damage: Callable[[Any], None]) -> None:
    """It is in sync, so the leader names it again whenever the client names its rack, and sends no records itself."""

    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t")
        assert leader is not None
        follower = leader % 3 + 1

        async def err(exchange: Exchange) -> Any:
            response = await exchange.handle()
            damage(response)
            return response

        async with in_rack_of(cluster, follower, T0) as consumer:
            cluster.append("t", b"first")
            await values(consumer, 1)
            at_follower = cluster.intercept(FetchRequest, err, where=lambda exchange: exchange.broker == follower)
            for number in range(30):
                cluster.append("t", b"%d" % number)
                async with asyncio.timeout(3):
                    assert await _next_value(consumer) == b"%d" % number
                await asyncio.sleep(1)
            assert 3 <= at_follower.hits <= 20, "it is tried now and then"
            at_follower.cancel()
            at_follower = cluster.intercept(FetchRequest, lambda exchange: None, where=lambda e: e.broker == follower)
            async with asyncio.timeout(15):
                await at_follower.caught(2)

    virtually(story, topics={"t": 1}, racks=RACKS)


async def _next_value(consumer: ConsumerType) -> bytes | None:
    """Return the next record's value, as an application has it that goes on after each error."""
    while True:
        with suppress(CorruptRecord):
            return (await consumer.getone()).value


async def test_a_follower_that_breaks_off_is_left_for_the_leader() -> None:
    async with from_the_follower() as (cluster, consumer, leader, follower):
        broken = cluster.intercept(FetchRequest, disconnect(), times=1, where=lambda e: e.broker == follower)
        at_leader = cluster.intercept(FetchRequest, lambda exchange: None, where=lambda e: e.broker == leader)
        await caught(broken, 1)
        await caught(at_leader, 1)
        cluster.append("t", b"1")
        assert await values(consumer, 1) == [b"1"]


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside-others"])
def test_a_replica_that_only_this_client_cannot_fetch_from_is_left_for_the_leader(others: bool) -> None:
    """It is in sync, so the leader names it again whenever the client names its rack. It is read once that works."""

    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t", 0)
        assert leader is not None
        follower = leader % 3 + 1
        cluster.move_leader("t", 1, to=leader)
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            client_rack=RACKS[follower - 1],
        )
        consumer.assign([T0, T1] if others else [T0])
        async with consumer:
            cluster.append("t", b"first", partition=0)
            assert await values(consumer, 1) == [b"first"]
            broken = cluster.intercept(FetchRequest, disconnect(), where=lambda e: e.broker == follower)
            for number in range(20):
                cluster.append("t", b"%d" % number, partition=0)
                async with asyncio.timeout(2):
                    assert (await consumer.getone(T0)).value == b"%d" % number
                await asyncio.sleep(0.3)
            tries = broken.hits
            assert tries >= 5, "it is tried again and again"
            broken.cancel()
            at_follower = cluster.intercept(FetchRequest, lambda exchange: None, where=lambda e: e.broker == follower)
            async with asyncio.timeout(5):
                await at_follower.caught(2)
            assert consumer._runtime.subscription[T0].read_replica == follower
            cluster.append("t", b"last", partition=0)
            assert (await consumer.getone(T0)).value == b"last"

    virtually(story, topics={"t": 2}, racks=RACKS)


def test_a_replica_that_is_silent_does_not_hold_its_partitions_up_again_and_again() -> None:
    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t")
        assert leader is not None
        follower = leader % 3 + 1
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", client_rack=RACKS[follower - 1]
        )
        consumer.assign([T0])
        loop = asyncio.get_running_loop()
        async with consumer:
            cluster.append("t", b"first")
            assert await values(consumer, 1) == [b"first"]
            silent = cluster.intercept(FetchRequest, drop(), where=lambda exchange: exchange.broker == follower)
            waited = []
            for number in range(200):
                cluster.append("t", b"%d" % number)
                began = loop.time()
                assert (await consumer.getone()).value == b"%d" % number
                waited.append(loop.time() - began)
                await asyncio.sleep(1)
            assert silent.hits == 1, "in 200 s it is not asked again"
            assert max(waited[1:]) < 0.1

    virtually(story, topics={"t": 1}, racks=RACKS)


def test_a_partition_that_was_paused_while_its_replica_failed_does_not_go_back_to_it() -> None:
    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t", 0)
        assert leader is not None
        cluster.move_leader("t", 1, to=leader)
        follower = leader % 3 + 1
        for tp in (T0, T1):
            cluster.append("t", b"first", partition=tp.partition)
        loop = asyncio.get_running_loop()
        async with in_rack_of(cluster, follower, T0, T1) as consumer:
            await values(consumer, 2)
            await asyncio.sleep(1)
            assert {consumer._runtime.subscription[tp].read_replica for tp in (T0, T1)} == {follower}
            consumer.pause(T1)
            silent = cluster.intercept(FetchRequest, drop(), where=lambda exchange: exchange.broker == follower)
            await asyncio.sleep(40)
            assert silent.hits == 1
            for tp in (T0, T1):
                cluster.append("t", b"more", partition=tp.partition)
                consumer.resume(tp)
                began = loop.time()
                assert (await consumer.getone(tp)).value == b"more"
                assert loop.time() - began < 0.1
            assert silent.hits == 1

    virtually(story, topics={"t": 2}, racks=RACKS)


@pytest.mark.parametrize("is_gone", [False, True], ids=["in-the-metadata", "gone-for-a-moment"])
def test_a_replica_that_was_silent_is_read_again(is_gone: bool) -> None:
    """It is avoided for 300 s, wherever it was meanwhile: ten times the 30 s for which a Fetch to it has waited."""

    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t")
        assert leader is not None
        follower = leader % 3 + 1
        cluster.append("t", b"first")
        loop = asyncio.get_running_loop()

        async def without(exchange: Exchange) -> Any:
            response: Any = await exchange.handle()
            response.brokers = [broker for broker in response.brokers if broker.node_id != follower]
            return response

        async with in_rack_of(cluster, follower, T0, metadata_max_age_ms=5_000) as consumer:
            await values(consumer, 1)
            silent = cluster.intercept(FetchRequest, drop(), where=lambda exchange: exchange.broker == follower)
            await silent.caught(1)
            began = loop.time()
            if is_gone:  # and is back while the Fetch to it hangs
                gone = cluster.intercept(MetadataRequest, without)
                await asyncio.sleep(12)
                gone.cancel()
            await asyncio.sleep(began + 300 - loop.time())
            assert silent.hits == 1
            silent.cancel()
            at_follower = cluster.intercept(FetchRequest, lambda exchange: None, where=lambda e: e.broker == follower)
            async with asyncio.timeout(60):
                await at_follower.caught(2)
            assert loop.time() - began > 330

    virtually(story, topics={"t": 1}, racks=RACKS)


def test_a_leader_in_another_rack_that_is_silent_takes_nothing_off_this_rack() -> None:
    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t", 0)
        assert leader is not None
        follower, other = leader % 3 + 1, (leader + 1) % 3 + 1
        cluster.move_leader("t", 1, to=other)
        cluster.append("t", b"first", partition=0)
        silent = cluster.intercept(FetchRequest, drop(), times=1, where=lambda exchange: exchange.broker == other)
        async with in_rack_of(cluster, follower, T0, T1) as consumer:
            await values(consumer, 1)
            await asyncio.sleep(40)
            assert silent.exhausted
            asked_by: set[str] = set()
            cluster.intercept(FetchRequest, lambda exchange: asked_by.add(exchange.request.rack_id))
            await asyncio.sleep(5)
            assert asked_by == {RACKS[follower - 1]}

    virtually(story, topics={"t": 2}, racks=RACKS)


def test_a_leader_that_names_a_replica_whatever_the_rack_is_followed() -> None:
    """An avoided replica is not asked; but a leader that sends no records itself leaves no other to ask."""

    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t")
        assert leader is not None
        follower = leader % 3 + 1

        async def name_it(exchange: Exchange) -> Any:
            response: Any = await exchange.handle()
            for part in [part for topic in response.responses for part in topic.partitions]:
                part.preferred_read_replica, part.records = follower, None
            return response

        cluster.append("t", b"first")
        at_leader = cluster.intercept(FetchRequest, name_it, where=lambda exchange: exchange.broker == leader)
        async with in_rack_of(cluster, follower, T0) as consumer:
            await values(consumer, 1)
            silent = cluster.intercept(FetchRequest, drop(), where=lambda exchange: exchange.broker == follower)
            for number in range(100):
                cluster.append("t", b"%d" % number)
                await asyncio.sleep(1)
            assert silent.hits >= 3
            assert at_leader.hits < 100, "the client does not ask the leader all the time"
            silent.cancel()
            async with asyncio.timeout(31):
                assert (await consumer.getone()).value == b"0"

    virtually(story, topics={"t": 1}, racks=RACKS)


async def test_a_follower_that_is_gone_is_left_for_the_leader() -> None:
    async with from_the_follower() as (cluster, consumer, _leader, follower):
        cluster.take_down(follower)
        cluster.append("t", b"1")
        assert await values(consumer, 1) == [b"1"]
        cluster.append("t", b"2")
        assert await values(consumer, 1) == [b"2"]


async def test_a_follower_that_came_back_is_read_as_soon_as_the_metadata_know_of_it() -> None:
    """The leader hears of it first, and gives no more records. The consumer does not keep asking it meanwhile."""
    async with Cluster(brokers=3, racks=RACKS, topics={"t": 1}) as cluster:
        leader = cluster.leader("t")
        assert leader is not None
        follower = leader % 3 + 1
        cluster.take_down(follower)
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            client_rack=RACKS[follower - 1],
            fetch_max_wait_ms=50,
        )
        consumer.assign([T0])
        async with consumer:
            cluster.append("t", b"first")
            assert await values(consumer, 1) == [b"first"]
            at_leader = cluster.intercept(FetchRequest, lambda exchange: None, where=lambda e: e.broker == leader)
            at_follower = cluster.intercept(FetchRequest, lambda exchange: None, where=lambda e: e.broker == follower)
            cluster.bring_up(follower)
            await caught(at_follower, 1)
            assert at_leader.hits <= 20
            cluster.append("t", b"1")
            assert await values(consumer, 1) == [b"1"]


async def test_the_leader_moves_while_the_follower_is_read() -> None:
    async with from_the_follower() as (cluster, consumer, leader, follower):
        cluster.move_leader("t", to=next(node for node in (1, 2, 3) if node not in (leader, follower)))
        cluster.append("t", b"1")
        assert await values(consumer, 1) == [b"1"]
        cluster.move_leader("t", to=follower)
        cluster.append("t", b"2")
        assert await values(consumer, 1) == [b"2"]


@pytest.fixture(scope="module")
def racked() -> Iterator[LocalKafka]:
    """Three nodes, each in a rack of its own, that send each client to the replica in the client's rack."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with LocalKafka(nodes=3, config={"replica.selector.class": selector, "broker.rack": "rack-{node}"}) as kafka:
        yield kafka


@pytest.mark.kafka
@pytest.mark.timeout(120)
@pytest.mark.long
async def test_with_kafka(racked: LocalKafka, topic_name: str) -> None:
    """A real broker chooses the replica. The replica dies, and the leader is read: nothing is lost or repeated."""
    racked.create_topic(topic_name, partitions=1, replication_factor=3)
    tp = TopicPartition(topic_name, 0)
    consumer = Consumer(bootstrap_servers=racked.bootstrap, auto_offset_reset="earliest", client_rack="rack-3")
    consumer.assign([tp])
    async with consumer:
        info = (await consumer.list_topics())[topic_name].partitions[0]
        follower = 3
        if info.leader == follower:
            await consumer.stop()
            consumer = Consumer(bootstrap_servers=racked.bootstrap, auto_offset_reset="earliest", client_rack="rack-1")
            follower = 1
            consumer.assign([tp])
            await consumer.start()
        got: list[bytes] = []
        for number in range(50):
            await asyncio.to_thread(produce, racked.bootstrap, topic_name, [Message(b"%d" % number, partition=0)])
            got += await values(consumer, 1)
        assert consumer._runtime.subscription[tp].read_replica == follower
        racked.node(follower).kill()
        for number in range(50, 60):
            await asyncio.to_thread(produce, racked.bootstrap, topic_name, [Message(b"%d" % number, partition=0)])
            async with asyncio.timeout(60):
                got += [(await consumer.getone()).value or b""]
        assert got == [b"%d" % number for number in range(60)]
        assert consumer._runtime.subscription[tp].read_replica is None
        await consumer.stop()


async def test_a_leader_that_names_itself_is_read_as_the_leader() -> None:
    """The leader is not a replica to stay with: once another broker leads, the consumer asks that one."""

    async def name_itself(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        for topic in response.responses:
            for partition in topic.partitions:
                partition.preferred_read_replica = exchange.broker
        return response

    async with Cluster(brokers=3, topics={"t": 1}) as cluster:
        cluster.append("t", b"first")
        named = cluster.intercept(FetchRequest, name_itself)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50)
        consumer.assign([T0])
        async with consumer:
            assert await values(consumer, 1) == [b"first"]
            await caught(named, named.hits + 1)
            assert consumer._runtime.subscription[T0].read_replica is None
