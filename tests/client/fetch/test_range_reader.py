"""Ranges that are read as the client is stopped, as an error comes, from a full buffer, beside a silent replica; and
what is said of those that can't be read to their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiokc import LATEST, Client, Producer, TopicPartition
from aiokc.client.aio import time_slice
from aiokc.client.fetch import range_reader
from aiokc.errors import (
    AuthorizationFailed,
    BrokerError,
    ClientClosed,
    LogTruncated,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopic,
)
from aiokc.testing import Acl, ApiKey, Cluster, ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import drop
from aiokc.wire.messages.fetch import FetchRequest

from ..virtually import virtually

pytestmark = pytest.mark.timeout(30)

ZERO = TopicPartition("t", 0)

Reader = Callable[..., AsyncIterator[Any]]
Meanwhile = Callable[[range_reader._RangeReading], Awaitable[object]]
readers = pytest.mark.parametrize("reader", [Client.read, Client.read_columns])


@pytest.fixture
def at_first_pause(monkeypatch: pytest.MonkeyPatch) -> Callable[[Meanwhile], None]:
    """Have something happen while the next reading lets other tasks run for the first time."""

    def set_up(meanwhile: Meanwhile) -> None:
        readings: list[range_reader._RangeReading] = []
        begin, give_way = range_reader._RangeReading.__aenter__, time_slice.let_others_run

        async def begins(reading: range_reader._RangeReading) -> range_reader._RangeReading:
            readings.append(reading)
            return await begin(reading)

        async def gives_way() -> None:
            if readings:
                await meanwhile(readings.pop())
            await give_way()

        monkeypatch.setattr(range_reader._RangeReading, "__aenter__", begins)
        monkeypatch.setattr(time_slice, "let_others_run", gives_way)

    return set_up


@readers
async def test_an_error_that_comes_while_others_run_is_raised_at_once(
    reader: Reader, at_first_pause: Callable[[Meanwhile], None]
) -> None:
    """It is notified once, and nobody fetches its partition again: to miss it would be to wait until the timeout."""
    at_first_pause(lambda reading: reading.fetcher.arrived.wait(20))
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            with pytest.raises(OffsetOutOfRange):
                await anext(reader(client, {ZERO: (5, 9)}, timeout_ms=20_000))


@readers
async def test_a_client_that_is_stopped_while_others_run_ends_its_readings(
    reader: Reader, at_first_pause: Callable[[Meanwhile], None]
) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        client = Client(bootstrap_servers=cluster.bootstrap)
        at_first_pause(lambda _: client.stop())
        await client.start()
        with pytest.raises(ClientClosed, match="stopped"):
            await anext(reader(client, {ZERO: (0, 5)}, timeout_ms=20_000))


async def test_a_client_that_is_stopped_ends_its_readings() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        client = Client(bootstrap_servers=cluster.bootstrap)
        await client.start()
        reading = client.read({ZERO: (0, 5)})
        assert len((await anext(reading)).records) == 1
        waiting = asyncio.ensure_future(anext(reading))
        await cluster.intercept(FetchRequest, lambda exchange: None).caught()
        await client.stop()
        with pytest.raises(ClientClosed, match="stopped"):
            async with asyncio.timeout(20):
                await waiting


@readers
async def test_a_topic_that_was_recreated_since_the_last_read_is_told_once(reader: Reader) -> None:
    """The client can't know whether its caller means the former topic's offsets. The next call reads the new topic."""
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        async with Client(bootstrap_servers=cluster.bootstrap) as client, asyncio.timeout(20):
            assert [_ async for _ in reader(client, {ZERO: (0, 1)})]
            cluster.recreate_topic("t")
            cluster.append("t", b"1", b"2")
            with pytest.raises(LogTruncated, match="t-0 at 0: the topic was deleted and created again"):
                await anext(reader(client, {ZERO: (0, 2)}))
            assert [_ async for _ in reader(client, {ZERO: (0, 2)})]


async def test_a_small_buffer_full_of_what_lies_behind_ranges_holds_up_no_other_range() -> None:
    async with Cluster(topics={"t": 4}) as cluster:
        for number in range(4):
            for _ in range(6):
                cluster.append("t", bytes(5000), bytes(5000), partition=number)
        ranges = {TopicPartition("t", number): (0, 3 + 2 * number) for number in range(4)}
        client = Client(
            bootstrap_servers=cluster.bootstrap, fetch_buffer_bytes=30_000, max_partition_fetch_bytes=11_000
        )
        async with client, asyncio.timeout(20):
            got = dict.fromkeys(ranges, 0)
            async for part in client.read(ranges):
                got[part.partition] += len(part.records)
            assert got == {tp: until for tp, (_, until) in ranges.items()}


def test_ranges_are_read_from_the_leader_once_a_replica_was_silent() -> None:
    """Each call reads by a plan of its own. What the client has learned before holds for all."""
    racks = ("a", "b", "c")

    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t")
        assert leader is not None
        follower = leader % 3 + 1
        cluster.append("t", *(b"%d" % number for number in range(10)))
        loop = asyncio.get_running_loop()
        async with Client(bootstrap_servers=cluster.bootstrap, client_rack=racks[follower - 1]) as client:
            silent = cluster.intercept(FetchRequest, drop(), where=lambda exchange: exchange.broker == follower)
            took = []
            for number in range(3):
                began = loop.time()
                parts = [part async for part in client.read({ZERO: (number, number + 1)})]
                assert [record.value for part in parts for record in part.records] == [b"%d" % number]
                columns = [batch async for batch in client.read_columns({ZERO: (number, number + 2)})]
                assert sum(len(batch) for batch in columns) == 2
                took.append(loop.time() - began)
            assert took[0] > 29
            assert max(took[1:]) < 1
            assert silent.hits == 1

    virtually(story, topics={"t": 1}, racks=racks)


@readers
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_silent_replica_is_avoided_after_a_read_that_gave_up_earlier(reader: Reader, is_cancelled: bool) -> None:
    """Less than a tenth of the time is lost to it, whatever time the reads have."""
    racks = ("a", "b", "c")

    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t")
        assert leader is not None
        follower = leader % 3 + 1
        cluster.append("t", *(b"%d" % number for number in range(10)))
        loop = asyncio.get_running_loop()
        async with Client(bootstrap_servers=cluster.bootstrap, client_rack=racks[follower - 1]) as client:
            silent = cluster.intercept(FetchRequest, drop(), where=lambda exchange: exchange.broker == follower)
            with pytest.raises(TimeoutError if is_cancelled else RequestTimedOut):
                async with asyncio.timeout(5 if is_cancelled else None):
                    await anext(reader(client, {ZERO: (0, 1)}, timeout_ms=60_000 if is_cancelled else 5_000))
            began = loop.time()
            while loop.time() < began + 40:
                before = loop.time()
                assert [part async for part in reader(client, {ZERO: (0, 1)})]
                assert loop.time() < before + 1
                await asyncio.sleep(5)
            assert silent.hits == 1

    virtually(story, topics={"t": 1}, racks=racks)


def test_a_replica_that_waits_for_records_is_not_avoided_after_a_read_that_ends() -> None:
    racks = ("a", "b", "c")

    async def story(cluster: Cluster) -> None:
        leader = cluster.leader("t")
        assert leader is not None
        follower = leader % 3 + 1
        async with Client(bootstrap_servers=cluster.bootstrap, client_rack=racks[follower - 1]) as client:
            served = cluster.intercept(FetchRequest, lambda exchange: None, where=lambda e: e.broker == follower)
            for number in range(5):
                with pytest.raises(RequestTimedOut):
                    await anext(client.read({ZERO: (0, 1)}, timeout_ms=2_750))
                assert served.hits > 3 * number

    virtually(story, topics={"t": 1}, racks=racks)


@readers
def test_a_topic_that_may_not_be_seen(reader: Reader) -> None:
    """The offsets are the application's own, so nothing has asked for them before. The reason is no outage."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        loop = asyncio.get_running_loop()
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            began = loop.time()
            for _ in range(2):
                with pytest.raises(AuthorizationFailed, match="topic 't'"):
                    await anext(reader(client, {ZERO: (0, 1)}))
            assert loop.time() < began + 2
            cluster.grant(Acl("ANONYMOUS", "Read", topic="t"))
            assert [_ async for _ in reader(client, {ZERO: (0, 1)})], "what was known before the call says nothing"

    virtually(story, brokers=1, topics={"t": 1}, super_users=(), acls=[])


@readers
def test_what_does_not_exist(reader: Reader) -> None:
    """A topic may be created while its ranges are waited for. That the name can't be one is said at once."""

    async def story(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            began = loop.time()
            with pytest.raises(UnknownTopic, match="the cluster has no topic 'nope'"):
                await anext(reader(client, {TopicPartition("nope", 0): (0, 1)}, timeout_ms=5_000))
            with pytest.raises(UnknownTopic, match="t-7 does not exist: the topic has 1 partition"):
                await anext(reader(client, {TopicPartition("t", 7): (0, 1)}, timeout_ms=5_000))
            assert loop.time() >= began + 10
            with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION: topic 'no name!'"):
                await anext(reader(client, {TopicPartition("no name!", 0): (0, 1)}, timeout_ms=5_000))
            assert loop.time() < began + 12
            later = asyncio.ensure_future(anext(reader(client, {TopicPartition("later", 0): (0, 1)})))
            await asyncio.sleep(10)
            cluster.create_topic("later", 1)
            cluster.append("later", b"0")
            assert await later

    virtually(story, brokers=1, topics={"t": 1})


@readers
def test_an_open_transaction_inside_of_the_range(reader: Reader) -> None:
    """The log has all that is asked for, and yet there is no progress."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        servers = cluster.bootstrap
        async with (
            Producer(bootstrap_servers=servers, transactional_id="x") as producer,
            Client(bootstrap_servers=servers, isolation_level="read_committed") as committed,
            Client(bootstrap_servers=servers) as uncommitted,
        ):
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"1")
            cluster.append("t", b"2")
            reading = reader(committed, {ZERO: (1, 3)}, timeout_ms=2_000)
            said = r"t-0 at offset 1 .*\(its log ends at 3, but a transaction that began at 1 is still open; broker"
            with pytest.raises(RequestTimedOut, match=said):
                await anext(reading)
            assert (await uncommitted.list_offsets({ZERO: LATEST}))[ZERO].offset == 3
            with pytest.raises(RequestTimedOut, match=r"\(its log ends at 3; broker"):
                [_ async for _ in reader(uncommitted, {ZERO: (1, 4)}, timeout_ms=2_000)]
            await producer.abort_transaction()

    virtually(story, brokers=1, topics={"t": 1})


@readers
def test_a_refusal_that_lasts_is_told(reader: Reader) -> None:
    """The broker answers, and the log has the records: only its code says why none come."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        cluster.intercept(ApiKey.FETCH, ErrorCode.KAFKA_STORAGE_ERROR)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            with pytest.raises(RequestTimedOut, match=r"t-0 at offset 0 .*: KAFKA_STORAGE_ERROR") as raised:
                await anext(reader(client, {ZERO: (0, 1)}, timeout_ms=4_000))
        assert isinstance(raised.value.__cause__, BrokerError)

    virtually(story, brokers=1, topics={"t": 1})


@readers
def test_what_a_broker_refused_before_it_was_lost_is_not_told(reader: Reader) -> None:
    async def refuse(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        response.error_code, response.responses = int(ErrorCode.UNKNOWN_SERVER_ERROR), []
        return response

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0")
        refusing = cluster.intercept(FetchRequest, refuse)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            first = asyncio.ensure_future(anext(reader(client, {ZERO: (0, 1)}, timeout_ms=60_000)))
            await refusing.caught()
            cluster.take_down(1)
            with pytest.raises(RequestTimedOut) as raised:
                await first
        assert "UNKNOWN_SERVER_ERROR" not in str(raised.value)
        assert not isinstance(raised.value.__cause__, BrokerError)

    virtually(story, brokers=1, topics={"t": 1})
