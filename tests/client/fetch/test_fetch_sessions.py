"""Fetch sessions (KIP-227) of a consumer, with the test broker and with a real one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import drop, lose_answer
from aiokc.testing.kafka import LocalKafka
from aiokc.wire.messages.fetch import FetchRequest
from tests.producing import Message, produce
from tests.testing.wire_client import connected

from ..reading import reading, values

pytestmark = [pytest.mark.timeout(60), pytest.mark.every_kafka]

ZERO, ONE, TWO = (TopicPartition("t", number) for number in range(3))


class Fetches:
    """Records every Fetch that a cluster gets: (session id, epoch, partitions named, partitions forgotten)."""

    def __init__(self, cluster: Cluster) -> None:
        self.seen: list[tuple[int, int, list[int], list[int]]] = []
        self.news = asyncio.Condition()
        self.arrived = cluster.intercept(FetchRequest, self._note)

    def _note(self, exchange: Exchange) -> None:
        request = exchange.request
        assert isinstance(request, FetchRequest)
        asked = [partition.partition for topic in request.topics for partition in topic.partitions]
        forgotten = [number for topic in request.forgotten_topics_data for number in topic.partitions]
        self.seen.append((request.session_id, request.session_epoch, asked, forgotten))


async def test_an_idle_consumer_sends_the_broker_no_partitions() -> None:
    async with Cluster(topics={"t": 3}) as cluster:
        fetches = Fetches(cluster)
        async with reading(cluster, ZERO, ONE, TWO) as consumer:
            cluster.append("t", b"0", partition=2)
            assert await values(consumer, 1) == [b"0"]
            await fetches.arrived.caught(6)
            opened = next(i for i, (_, epoch, asked, _) in enumerate(fetches.seen) if epoch == 0 and len(asked) == 3)
            told = [asked for _, epoch, asked, _ in fetches.seen[opened + 1 :] if asked]
            assert told in ([[2]], []), "the offset of the one that moved, once"
            assert [forgotten for *_, forgotten in fetches.seen if forgotten] == []


async def test_pausing_puts_a_partition_in_the_forgotten_list_and_resuming_back() -> None:
    """KIP-227: ``forgotten_topics_data`` takes a partition out of the session."""
    async with Cluster(topics={"t": 2}) as cluster:
        fetches = Fetches(cluster)
        async with reading(cluster, ZERO, ONE) as consumer:
            cluster.append("t", b"0")
            assert await values(consumer, 1) == [b"0"]
            await fetches.arrived.caught(len(fetches.seen) + 2)
            consumer.pause(ONE)
            before = len(fetches.seen)
            await fetches.arrived.caught(before + 2)
            assert [1] in [forgotten for *_, forgotten in fetches.seen[before:]]
            cluster.append("t", b"1", partition=1)
            consumer.resume(ONE)
            assert await values(consumer, 1) == [b"1"]
            assert all(session for session, epoch, *_ in fetches.seen if epoch > 0)


@pytest.mark.parametrize(
    "trouble",
    [
        lambda cluster: cluster.forget_fetch_sessions(),
        lambda cluster: cluster.disconnect(1),
        lambda cluster: cluster.intercept(FetchRequest, ErrorCode.INVALID_FETCH_SESSION_EPOCH, times=1),
        lambda cluster: cluster.intercept(FetchRequest, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, times=1),
        lambda cluster: cluster.intercept(FetchRequest, lose_answer(), times=1),
    ],
    ids=["session forgotten", "connection lost", "wrong epoch", "names and ids", "answer lost"],
)
async def test_a_session_that_ends_loses_and_repeats_nothing(trouble: Any) -> None:
    """KIP-227: the next Fetch after it is a full one."""
    pauses = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10}
    async with Cluster(topics={"t": 2}) as cluster, reading(cluster, ZERO, ONE, **pauses) as consumer:
        got: list[bytes] = []
        for number in range(5):
            cluster.append("t", b"%d" % (2 * number))
            trouble(cluster)
            cluster.append("t", b"%d" % (2 * number + 1), partition=1)
            got += await values(consumer, 2)
        assert sorted(got) == sorted(b"%d" % number for number in range(10))


async def test_a_broker_that_ends_every_session_is_no_storm() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        refused = cluster.intercept(FetchRequest, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        async with reading(cluster, ZERO, retry_backoff_ms=100) as consumer:
            await refused.caught(2)
            before = refused.hits
            await consumer.getmany(timeout_ms=1000)
            assert refused.hits - before <= 15
            refused.cancel()
            cluster.append("t", b"0")
            assert await values(consumer, 1) == [b"0"]


async def test_a_broker_without_sessions_is_read_all_the_same() -> None:
    async with Cluster(topics={"t": 3}, max_incremental_fetch_session_cache_slots=0) as cluster:
        fetches = Fetches(cluster)
        async with reading(cluster, ZERO, ONE, TWO) as consumer:
            for number in range(3):
                cluster.append("t", b"%d" % number, partition=number)
            assert sorted(await values(consumer, 3)) == [b"0", b"1", b"2"]
            assert {session for session, *_ in fetches.seen} == {0}


async def test_what_is_buffered_stays_in_the_session() -> None:
    """The Fetch does not have to name other partitions, so a full buffer changes nothing in the session."""
    async with Cluster(topics={"t": 2}) as cluster:
        for partition in (0, 1):
            for _ in range(12):
                cluster.append("t", bytes(1000), partition=partition)
        fetches = Fetches(cluster)
        options: dict[str, Any] = {"fetch_buffer_bytes": 12_000, "max_partition_fetch_bytes": 1000}
        async with reading(cluster, ZERO, ONE, **options) as consumer, asyncio.timeout(20):
            fetcher = consumer._runtime.fetcher
            while fetcher._planner._reading_ahead or fetcher._busy:
                await fetcher.arrived.wait()
            (_, epoch, asked, forgotten), *later = fetches.seen
            assert (epoch, sorted(asked), forgotten) == (0, [0, 1], [])
            assert len(later) > 3, "until the buffer was full"
            assert [epoch for _, epoch, *_ in later] == list(range(1, len(later) + 1))
            assert all(len(asked) <= 1 for _, _, asked, _ in later), "the offset of the one that moved"
            assert [forgotten for *_, forgotten in later if forgotten] == []
            full = len(fetches.seen)
            assert len(await values(consumer, 6)) == 6
            assert [told for _, _, *told in fetches.seen[full:] if told[1]] == []


async def test_a_new_assignment_changes_the_session_only() -> None:
    async with Cluster(topics={"t": 3}) as cluster:
        fetches = Fetches(cluster)
        async with reading(cluster, ZERO, ONE) as consumer:
            cluster.append("t", b"0")
            assert await values(consumer, 1) == [b"0"]
            await fetches.arrived.caught(len(fetches.seen) + 2)
            before = len(fetches.seen)
            consumer.assign([ONE, TWO])
            cluster.append("t", b"2", partition=2)
            assert await values(consumer, 1) == [b"2"]
            await fetches.arrived.caught(len(fetches.seen) + 2)  # it may have come beside the session
            since = fetches.seen[before:]
            assert [0] in [forgotten for *_, forgotten in since]
            assert 0 not in [epoch for _, epoch, *_ in since]


async def test_lag_is_known_again_at_once_where_the_broker_repeats_nothing() -> None:
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0", b"1")
        async with reading(cluster, ZERO, ONE) as consumer:
            assert await values(consumer, 2) == [b"0", b"1"]
            position = consumer._runtime.subscription[ZERO]
            async with asyncio.timeout(10):
                while position.lag(read_committed=False) is None:
                    await consumer._runtime.fetcher.arrived.wait()
            consumer.assign([ONE])
            consumer.assign([ZERO, ONE])
            consumer.seek(ZERO, 1)
            assert await values(consumer, 1) == [b"1"]
            assert consumer._runtime.subscription[ZERO].lag(read_committed=False) == 0


async def test_sessions_with_kafka(kafka: LocalKafka, topic_name: str) -> None:
    """A real broker: late records, seeks, pauses and a new assignment, all in one session."""
    kafka.create_topic(topic_name, partitions=4)
    partitions = [TopicPartition(topic_name, number) for number in range(4)]
    expected: list[bytes] = []
    got: list[bytes] = []
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50)
    consumer.assign(partitions[:3])
    async with consumer:
        for number in range(12):
            batch = [Message(b"%d-%d" % (number, part), partition=part) for part in range(3)]
            await asyncio.to_thread(produce, kafka.bootstrap, topic_name, batch)
            expected += [message.value or b"" for message in batch]
            consumer.pause(partitions[number % 3])
            got += await values(consumer, 2)
            consumer.resume(*consumer.paused())
            got += await values(consumer, 1)
        assert sorted(got) == sorted(expected)
        node = next(iter(consumer._runtime.fetcher._planner._nodes.values()))
        assert node.session.session_id > 0
        assert node.session._epoch > 12
        consumer.seek(partitions[0], 3)
        assert await values(consumer, 9) == [b"%d-0" % number for number in range(3, 12)]
        await asyncio.to_thread(produce, kafka.bootstrap, topic_name, [Message(b"new", partition=3)])
        consumer.assign(partitions[2:])
        consumer.seek(partitions[2], 11)
        assert sorted(await values(consumer, 2)) == [b"11-2", b"new"]


# The end


def sessions(cluster: Cluster) -> int:
    """Return how many fetch sessions the brokers have."""
    return sum(len(node.sessions) for node in cluster._state.nodes.values())


@pytest.mark.parametrize("wait_ms", [20, 20_000], ids=["answered at once", "held back"])
@pytest.mark.parametrize("group", [None, "g"])
async def test_stop_closes_the_sessions(wait_ms: int, group: str | None) -> None:
    """Also where the broker holds back a Fetch: on that connection it would answer nothing else meanwhile."""
    async with Cluster(brokers=2, topics={"t": 2}) as cluster:
        fetches = Fetches(cluster)
        for partition in (0, 1):
            cluster.append("t", b"x", partition=partition)
        consumer = reading(cluster, ZERO, ONE, fetch_max_wait_ms=wait_ms, group_id=group)
        async with consumer:
            assert await values(consumer, 2) == [b"x", b"x"]
            await fetches.arrived.caught(4)
            assert sessions(cluster) == 2
            async with asyncio.timeout(20):
                await consumer.stop()
        assert sessions(cluster) == 0
        assert [epoch for _, epoch, _, _ in fetches.seen].count(-1) == 2


async def test_stop_does_not_wait_for_brokers_that_do_not_answer() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        consumer = reading(cluster, ZERO, fetch_max_wait_ms=20)
        async with consumer:
            cluster.append("t", b"x")
            await values(consumer, 1)
            cluster.intercept(FetchRequest, drop())
            loop = asyncio.get_running_loop()
            began = loop.time()
            await consumer.stop(timeout_ms=30_000)
            assert loop.time() - began < 25, "half a second, and what a busy machine adds"


async def test_stop_closes_the_session_on_kafka(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    produce(kafka.bootstrap, topic_name, [b"x"])
    consumer = Consumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50)
    async with consumer:
        consumer.assign([TopicPartition(topic_name, 0)])
        assert await values(consumer, 1) == [b"x"]
        (plan,) = consumer._runtime.fetcher._planner.closings()
    asked = FetchRequest(
        max_wait_ms=0, min_bytes=0, session_id=plan.session.session_id, session_epoch=0x7FFF, topics=[]
    )
    async with connected(kafka.bootstrap) as client:
        answer = await client.ask(asked, 11)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
