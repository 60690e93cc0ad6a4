"""What metrics() tells of positions, times, memory, brokers, rebalances and the loop, beside what it counts."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

import pytest

from aiokc import Consumer, RebalanceListener, TopicPartition
from aiokc.client.consumer.health import PollRecord
from aiokc.errors import DeserializationFailed
from aiokc.testing import Cluster
from aiokc.testing.faults import throttle
from aiokc.wire.messages.fetch import FetchRequest
from aiokc.wire.messages.group import HeartbeatRequest

from ...virtually import virtually

pytestmark = pytest.mark.timeout(30)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def consumer(cluster: Cluster, *topics: str, **options: Any) -> Consumer[Any, Any]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return Consumer(*topics, bootstrap_servers=cluster.bootstrap, **settings)


def test_lead_position_and_committed() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v"] * 10)
        cluster.trim("t", 0, to=2)
        async with consumer(cluster, "t", group_id="g") as reader:
            before = reader.metrics()
            assert before.position == before.committed == before.lead == {}
            await reader.wait_assigned()
            await reader.getmany(T0, max_records=3)
            await asyncio.sleep(1.0)  # by then the broker of the empty partition has answered
            now = reader.metrics()
            assert (now.position[T0], now.lead[T0], now.lag[T0]) == (5, 3, 5)
            assert (now.position[T1], now.lead[T1], now.lag[T1]) == (0, 0, 0)
            assert now.committed == {T0: None, T1: None}
            await reader.commit()
            await reader.getmany(T0, max_records=2)
            now = reader.metrics()
            assert (now.position[T0], now.committed[T0]) == (7, 5)
        async with consumer(cluster, "t", group_id="g") as successor:
            await successor.getmany()
            assert successor.metrics().committed[T0] == 5, "it has looked that up to start there"
            await successor.commit({T0: 9})
            assert successor.metrics().committed[T0] == 9

    virtually(story)


def test_sums_by_topic() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v"] * 10)
        cluster.append("t", *[b"v"] * 20, partition=1)
        async with consumer(cluster) as reader:
            reader.assign([T0, T1])
            assert reader.metrics(per_partition=False).lag == {TopicPartition("t", -1): None}
            await reader.getmany(T0, max_records=1)
            await reader.getmany(T1, max_records=4)
            whole = reader.metrics(per_partition=False)
            assert whole.lag == {TopicPartition("t", -1): 25}
            assert whole.lead == {TopicPartition("t", -1): 1}
            assert whole.position == whole.committed == {}
            assert whole.records == 5

    virtually(story)


def test_time_in_calls_and_between_calls() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        async with consumer(cluster, "t") as reader:
            assert (reader.metrics().poll_wait_ms, reader.metrics().user_ms) == (0.0, 0.0)
            await reader.getmany()
            waited = reader.metrics().poll_wait_ms
            await asyncio.sleep(7.0)
            assert reader.metrics().user_ms == pytest.approx(7_000, abs=1), "also before the next call"
            assert reader.metrics().poll_wait_ms == waited
            waiting = asyncio.ensure_future(reader.getmany())
            await asyncio.sleep(3.0)
            assert reader.metrics().poll_wait_ms == pytest.approx(waited + 3_000, abs=1), "also while the call waits"
            assert reader.metrics().user_ms == pytest.approx(7_000, abs=1)
            waiting.cancel()
            await asyncio.wait([waiting])
        stopped = reader.metrics()
        await asyncio.sleep(5.0)
        assert reader.metrics().user_ms == stopped.user_ms, "nothing counts after stop()"

    virtually(story)


def test_times_of_calls_only_grow() -> None:
    polls = PollRecord()
    assert polls.times(1.0) == (0.0, 0.0)
    polls.begins(1.0)
    assert polls.times(1.5) == (0.5, 0.0)
    polls.ends(2.0)
    assert polls.times(4.0) == (1.0, 2.0)
    polls.begins(5.0)
    polls.stops(7.0)
    polls.ends(8.0)  # a call that waits while the consumer stops ends after that
    assert polls.times(99.0) == (3.0, 3.0)


@pytest.mark.parametrize("line", range(1, 6))
def test_a_call_that_ends_while_another_thread_reads_counts_once(line: int) -> None:
    """The loop runs on between any two lines of the thread that reads."""
    polls, lines = PollRecord(), 0
    polls.begins(1.0)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code is PollRecord.times.__code__:
            lines += event == "line"
            if event == "line" and lines == line:
                polls.ends(3.0)
            return trace
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        waited, _ = polls.times(3.0)
    finally:
        sys.settrace(before)
    assert waited == 2.0


def test_what_is_buffered() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", *[b"v" * 100] * 10)
        async with consumer(cluster) as reader:
            reader.assign([T0])
            await reader.getmany(max_records=4)
            now = reader.metrics()
            assert now.buffered_records == 6
            assert now.buffered_bytes >= 600
            await reader.getmany()
            assert reader.metrics().buffered_records == 0

    virtually(story)


def test_what_is_exchanged_with_each_broker() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        leader = cluster.leader("t")
        assert leader is not None
        async with consumer(cluster) as reader:
            reader.assign([T0])
            await reader.getmany()
            node = reader.metrics().nodes[leader]
            assert node.connected
            assert node.connects >= 1
            assert node.requests.count >= reader.metrics().fetches.count >= 1
            assert node.throttle.count == 0
            cluster.intercept(FetchRequest, throttle(2_000), times=1)
            await reader.getmany(timeout_ms=3_000)
            throttled = reader.metrics().nodes[leader].throttle
            assert (throttled.count, throttled.total_ms) == (1, 2_000)
            cluster.take_down(leader)
            await reader.getmany(timeout_ms=100)
            down = reader.metrics().nodes[leader]
            assert (down.connected, down.connects) == (False, node.connects)
            cluster.bring_up(leader)
            cluster.append("t", b"w")
            await reader.getmany()
            assert reader.metrics().nodes[leader].connected
            assert reader.metrics().nodes[leader].connects > node.connects, "counters outlive the connections"
        assert not reader.metrics().nodes[leader].connected

    virtually(story, brokers=1)


def test_records_that_a_deserializer_refuses() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"1", b"one", b"2")
        async with consumer(cluster, value_deserializer=int) as reader:
            reader.assign([T0])
            assert [record.value for record in (await reader.getmany())[T0]] == [1]
            for attempts in (2, 3):
                with pytest.raises(DeserializationFailed):
                    await reader.getmany()
                assert reader.metrics().undecodable == attempts

    virtually(story)


class Slow(RebalanceListener):
    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(2.0)


def test_what_rebalances_take() -> None:
    async def story(cluster: Cluster) -> None:
        listener = Slow()
        async with consumer(cluster, group_id="g") as reader:
            reader.subscribe("t", listener=listener)
            await reader.wait_assigned()
            now = reader.metrics()
            assert (now.revoked, now.lost) == (0, 0)
            assert now.listener.count == 1
            assert now.listener.last_ms == pytest.approx(2_000, abs=1)
            cluster.expire_member("g")
            lost = cluster.intercept(HeartbeatRequest, lambda exchange: None, times=1)
            waiting = asyncio.ensure_future(reader.getmany())
            await lost.caught()
            await asyncio.sleep(1.0)
            assert (reader.metrics().revoked, reader.metrics().lost) == (0, 2)
            await asyncio.sleep(10.0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert reader.assignment() == {T0, T1}
        assert (reader.metrics().revoked, reader.metrics().lost) == (2, 2), "stop() gives them up in order"

    virtually(story)


def test_how_late_the_loop_is() -> None:
    async def story(cluster: Cluster) -> None:
        async with consumer(cluster) as reader:
            await asyncio.sleep(10.5)
            lag = reader.metrics().loop_lag
            assert lag.count == 10
            assert lag.max_ms < 1
            asyncio.get_running_loop()._now += 2.0  # type: ignore[attr-defined]  # a handler that computes
            await asyncio.sleep(0.1)
            assert 1_400 < reader.metrics().loop_lag.max_ms < 2_000

    virtually(story)


async def test_any_thread_may_read_them_while_the_consumer_reads() -> None:
    """A scrape comes in a thread of prometheus_client, and each batch changes the order of service."""
    async with Cluster(topics={"t": 8}) as cluster:
        for number in range(8):
            cluster.append("t", *[b"v"] * 2_000, partition=number)
        async with consumer(cluster) as reader:
            reader.assign([TopicPartition("t", number) for number in range(8)])
            done = False
            totals: list[int] = []

            def scrape() -> None:
                while not done:
                    found = reader.metrics()
                    reader.health()
                    totals.append(found.records)

            scraping = asyncio.ensure_future(asyncio.to_thread(scrape))
            try:
                for _ in range(8_000):
                    await reader.getone()
                seen = 8_000
                while seen < 16_000:
                    seen += sum(map(len, (await reader.getmany(max_records=50)).values()))
            finally:
                done = True
                await scraping
            assert totals == sorted(totals), "a counter never falls"
            assert reader.metrics().records == 16_000
