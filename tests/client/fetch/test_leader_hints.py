"""Leaders that a Fetch response names (KIP-951), throttled clients (KIP-219), and fairness between partitions."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest

from aiokc import Consumer, PartitionInfo, TopicPartition
from aiokc.errors import AuthorizationFailed
from aiokc.net.connection import Connection
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, throttle
from aiokc.testing.kafka import LocalKafka
from aiokc.wire import Request, Response
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.fetch import FetchRequest, FetchResponse
from tests.producing import produce
from tests.testing.brokers.quotas import set_quota

from ..consumer.errors.refused_fetches import refuse_the_second
from ..reading import reading, values

pytestmark = pytest.mark.timeout(60)

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


async def test_the_new_leader_is_read_before_any_metadata_name_it() -> None:
    """The response names it, with its address, while the refresh of the metadata is under way and held up.

    Only a request to the new leader itself is not held up, or the question about its log would wait behind that: it has
    not heard of the election yet.
    """
    async with Cluster(brokers=3, topics={"t": 1}) as cluster, reading(cluster, T0) as consumer:
        cluster.append("t", b"0")
        assert await values(consumer, 1) == [b"0"]
        old = consumer._runtime.cluster_client.metadata.cluster.partition(T0)
        assert old is not None
        hold = Hold()

        async def not_yet(exchange: Exchange) -> Any:
            return await (yesterday(exchange, old) if exchange.broker == new else hold(exchange))

        refresh = cluster.intercept(MetadataRequest, not_yet)
        new = cluster.move_leader("t")
        cluster.append("t", b"1")
        assert await values(consumer, 1) == [b"1"]
        await refresh.caught(1)
        hold.release()
        cluster.append("t", b"2")
        assert await values(consumer, 1) == [b"2"]


async def yesterday(exchange: Exchange, old: PartitionInfo) -> Any:
    """Return the metadata as of before the election."""
    response: Any = await exchange.handle()
    for topic in response.topics:
        topic.partitions[0].leader_id, topic.partitions[0].leader_epoch = old.leader, old.leader_epoch
    return response


async def test_metadata_that_know_less_do_not_lead_back() -> None:
    """The consumer had asked for them before, from another broker, which had not heard of the election yet."""
    async with Cluster(brokers=3, topics={"t": 1}) as cluster, reading(cluster, T0) as consumer:
        cluster.append("t", b"0")
        assert await values(consumer, 1) == [b"0"]
        metadata = consumer._runtime.cluster_client.metadata
        old = metadata.cluster.partition(T0)
        assert old is not None

        stale = cluster.intercept(MetadataRequest, lambda exchange: yesterday(exchange, old))
        new = cluster.move_leader("t")
        cluster.append("t", b"1")
        assert await values(consumer, 1) == [b"1"]
        async with asyncio.timeout(10):
            await stale.caught(1)
            while metadata.cluster.version < 3:
                metadata.request_update()
                await metadata.changed.wait()
        assert metadata.cluster.leader(T0) is not None
        assert metadata.cluster.leader(T0).node_id == new  # type: ignore[union-attr]


async def test_a_leader_of_a_topic_that_was_recreated_meanwhile_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The response named that leader. Then the consumer hears of the new topic, whose epochs start anew, before it
    hears of the election.
    """
    async with Cluster(brokers=3, topics={"t": 1}) as cluster, reading(cluster, T0) as consumer:
        cluster.append("t", b"0")
        assert await values(consumer, 1) == [b"0"]
        metadata, learned = consumer._runtime.cluster_client.metadata, asyncio.Event()
        learn_as_ever = metadata.learn_leaders

        def note(*said: Any) -> set[TopicPartition]:
            moved = learn_as_ever(*said)
            learned.set()
            return moved

        monkeypatch.setattr(metadata, "learn_leaders", note)
        hold = Hold()
        refresh = cluster.intercept(MetadataRequest, hold, times=1)
        cluster.move_leader("t")
        async with asyncio.timeout(10):
            await learned.wait()
            await refresh.caught(1)
        assert metadata.cluster.leader_epoch(T0) == 1
        cluster.recreate_topic("t")
        cluster.append("t", b"a", b"b")
        hold.release()
        assert await values(consumer, 2) == [b"a", b"b"]


async def test_a_late_answer_about_the_topic_of_before_moves_nothing() -> None:
    """It names a leader, and was on its way while the metadata heard of the new topic."""
    async with Cluster(brokers=3, topics={"t": 1}) as cluster, reading(cluster, T0) as consumer:
        cluster.append("t", b"0")
        assert await values(consumer, 1) == [b"0"]
        metadata = consumer._runtime.cluster_client.metadata
        moved, named, late = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def wait(exchange: Exchange) -> Any:
            await moved.wait()
            response: Any = await exchange.handle()
            assert response.responses[0].partitions[0].current_leader is not None
            named.set()
            await late.wait()
            return response

        delayed = cluster.intercept(FetchRequest, wait, times=1)
        await delayed.caught(1)
        cluster.move_leader("t")
        moved.set()
        await named.wait()
        cluster.recreate_topic("t")
        cluster.append("t", b"a", b"b")
        async with asyncio.timeout(10):
            old = metadata.cluster.topic_id("t")
            while metadata.cluster.topic_id("t") == old:
                metadata.request_update()
                await metadata.changed.wait()
        late.set()
        assert await values(consumer, 2) == [b"a", b"b"]


async def test_a_throttled_client_asks_no_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-219: the broker does not read from a muted connection, so what counts is when the next Fetch is written."""
    written: list[float] = []
    answered: list[float] = []
    exchange_as_ever = Connection._exchange

    async def note(connection: Connection, request: Request[Any], *rest: Any) -> memoryview:
        loop = asyncio.get_running_loop()
        if not isinstance(request, FetchRequest):
            return await exchange_as_ever(connection, request, *rest)
        written.append(loop.time())
        body = await exchange_as_ever(connection, request, *rest)
        answered.append(loop.time())
        return body

    monkeypatch.setattr(Connection, "_exchange", note)
    for pause in (1.5, 5.0, 20.0):  # a machine may be so busy that the first one is over before the consumer returns
        written.clear()
        answered.clear()
        async with Cluster(topics={"t": 1}) as cluster:
            cluster.append("t", b"0")
            cluster.intercept(FetchRequest, throttle(int(pause * 1e3)), times=1)
            async with reading(cluster, T0) as consumer:
                assert await values(consumer, 1) == [b"0"]
                was_handed_out_at_once = len(written) == 1
                cluster.append("t", b"1")
                assert await values(consumer, 1) == [b"1"]
                assert written[1] - answered[0] >= pause
                if was_handed_out_at_once:
                    return
    pytest.fail("what came with the throttled answer was not handed out at once")


async def test_a_throttled_answer_without_partitions_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A client over its quota, before a Fetch that opens a session: the response holds neither data nor a session."""
    nothing = FetchResponse(throttle_time_ms=20, session_id=0, responses=[])
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"0")
        throttled = cluster.intercept(FetchRequest, lambda exchange: nothing, times=3)
        async with reading(cluster, T0) as consumer:
            refreshes = consumer._runtime.cluster_client.metadata.cluster.version
            assert await values(consumer, 1) == [b"0"]
            assert throttled.hits == 3
            assert consumer._runtime.cluster_client.metadata.cluster.version == refreshes
            assert consumer.metrics().failed_fetches == 0
        assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_group_goes_on_while_kafka_throttles_the_reads_of_a_member(
    kafka: LocalKafka, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota of the client id: ten seconds' worth come at once, and then nothing for a second, again and again."""
    heartbeats: list[int] = []  # until each answer that was throttled
    waits: list[tuple[float, float]] = []  # when it came, and until when the client is to be quiet
    enough = asyncio.Event()
    throttle_as_ever = Connection._throttle

    def note(connection: Connection, response: Response) -> None:
        if isinstance(response, FetchResponse) and response.throttle_time_ms:
            now = asyncio.get_running_loop().time()
            heartbeats.append(consumer.metrics().heartbeats.count)
            waits.append((now, now + response.throttle_time_ms / 1000))
            # The first pause may be short, and each other is nearly a second.
            if len(waits) >= 3 and heartbeats[-1] - heartbeats[-3] >= 3:
                enough.set()
        throttle_as_ever(connection, response)

    monkeypatch.setattr(Connection, "_throttle", note)
    kafka.create_topic(topic_name)
    sent = [b"%02d" % number + bytes(50_000) for number in range(30)]
    await asyncio.to_thread(produce, kafka.bootstrap, topic_name, sent, batch_num_messages=1)
    await set_quota(kafka.bootstrap, topic_name, "consumer_byte_rate", 50_000)
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 50}
    consumer = Consumer(
        topic_name,
        bootstrap_servers=kafka.bootstrap,
        client_id=topic_name,
        group_id=topic_name,
        max_partition_fetch_bytes=50_000,
        **options,
    )
    async with consumer, asyncio.timeout(50):
        reading_all = asyncio.create_task(values(consumer, len(sent)))
        await enough.wait()
        await set_quota(kafka.bootstrap, topic_name, "consumer_byte_rate", None)
        assert await reading_all == sent
        for (_, until), (then, _) in pairwise(waits):
            assert then > until - 0.01, "the next Fetch was answered once the wait was over"
        metrics = consumer.metrics()
        assert (metrics.rebalances.count, metrics.failed_heartbeats, metrics.failed_fetches) == (1, 0, 0)


async def test_an_error_of_one_partition_waits_behind_all_records() -> None:
    """Partition A has good data, B may not be read: first all of A, then B's error, and nothing is lost or repeated."""
    async with Cluster(topics={"t": 2}) as cluster:
        cluster.append("t", b"0", b"1", b"2")
        cluster.append("t", b"x", partition=1)

        refused = cluster.intercept(FetchRequest, refuse_the_second)
        async with reading(cluster, T0, T1) as consumer:
            assert [record.value for record in (await consumer.getmany())[T0]] == [b"0", b"1", b"2"]
            with pytest.raises(AuthorizationFailed, match="t-1"):
                await consumer.getmany()
            cluster.append("t", b"3")
            got: list[bytes] = []
            while not got:
                try:
                    got = await values(consumer, 1)
                except AuthorizationFailed:
                    continue
            assert got == [b"3"], "and A is read on"
            refused.cancel()
            async with asyncio.timeout(20):
                while b"x" not in got:
                    try:
                        got += await values(consumer, 1)
                    except AuthorizationFailed:
                        continue


async def test_partitions_without_data_or_with_errors_starve_no_other_partition() -> None:
    """One partition is always refused, one is empty, one has much more than fits: each of the others is still read."""
    async with Cluster(topics={"t": 3}) as cluster:
        for number in range(20):
            cluster.append("t", bytes(1000))
            cluster.append("t", b"%d" % number, partition=2)
        options: dict[str, Any] = {
            "max_partition_fetch_bytes": 2000,
            "fetch_max_bytes": 2500,
            "fetch_buffer_bytes": 5000,
            "max_poll_records": 1,
        }
        async with reading(cluster, T0, T1, T2, **options) as consumer:
            small: list[bytes] = []
            turns = 0
            async with asyncio.timeout(20):
                while len(small) < 20:
                    turns += 1
                    small += [record.value or b"" for record in (await consumer.getmany()).get(T2, ())]
            assert small == [b"%d" % number for number in range(20)]
            assert turns <= 45, "bytes decide about reading ahead, turns about handing out"
