"""Partitions whose Fetch a broker refuses by an error that may pass: pauses, health().last_error, and the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.core.backoff import Backoff
from aiokc.core.fetch.refusals import FetchRefusals
from aiokc.core.fetch.session import FetchTarget
from aiokc.core.subscription.state import Subscription
from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError, ConnectionFailed
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import disconnect
from aiokc.wire.messages.fetch import FetchRequest, PartitionData

from ...virtually import Asked, virtually

pytestmark = pytest.mark.timeout(30)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class _NoJitter:
    def uniform(self, a: float, b: float, /) -> float:
        return (a + b) / 2


def consumer(cluster: Cluster, **options: Any) -> Consumer[Any, Any]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return Consumer(bootstrap_servers=cluster.bootstrap, **settings)


class Refusing:
    """A fault for Fetch that refuses partition 1, and counts how often."""

    def __init__(self, code: ErrorCode) -> None:
        self.code, self.hits = code, 0

    async def __call__(self, exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.partition_index == 1:
                    self.hits += 1
                    partition.error_code, partition.records = self.code, None
        return response


@pytest.mark.parametrize(
    ("code", "hits"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, range(50, 90)),
        (ErrorCode.KAFKA_STORAGE_ERROR, range(50, 90)),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, range(110, 200)),
    ],
    ids=lambda each: each.name if isinstance(each, ErrorCode) else "",
)
def test_what_may_last_is_asked_for_after_growing_pauses_and_health_says_why(
    code: ErrorCode, hits: range, caplog: pytest.LogCaptureFixture
) -> None:
    """An election is over in a moment: what tells of one is asked for again soon."""
    caplog.set_level(logging.WARNING, "aiokc.fetch")

    async def story(cluster: Cluster) -> None:
        async with consumer(cluster) as reader:
            reader.assign([T0, T1])
            refusing = Refusing(code)
            fault = cluster.intercept(FetchRequest, refusing)
            for number in range(60):
                for tp in (T0, T1):
                    cluster.append(*tp[:1], b"%d" % number, partition=tp.partition)
                batch = await reader.getmany(timeout_ms=1_000)
                assert [(tp, len(records)) for tp, records in batch.items()] == [(T0, 1)]
                await asyncio.sleep(1)
            assert refusing.hits in hits
            error = reader.health().last_error
            assert isinstance(error, BrokerError)
            assert error.code == code
            assert "t-1" in str(error)
            reader.pause(T1)
            assert reader.health().last_error is None, "nobody asks for it"
            reader.resume(T1)
            assert reader.health().last_error is not None
            fault.cancel()
            assert T1 in await reader.getmany(timeout_ms=5_000)
            await asyncio.sleep(2)
            assert reader.health().last_error is None

    virtually(story, brokers=1)
    said = [record.getMessage() for record in caplog.records if code.name in record.getMessage()]
    assert 1 <= len(said) <= 3


def test_many_refused_partitions_share_their_pauses() -> None:
    """With pauses of their own each of them would soon be due at a time of its own, and have a Fetch of its own."""

    async def story(cluster: Cluster) -> None:
        asked = Asked(cluster, asyncio.get_running_loop())  # type: ignore[arg-type]
        partitions = [TopicPartition("many", number) for number in range(200)]
        for tp in partitions:
            cluster.append(tp.topic, b"v", partition=tp.partition)
        cluster.intercept(FetchRequest, refused_by(1))
        async with consumer(cluster) as reader:
            reader.assign(partitions)
            assert not await reader.getmany(timeout_ms=60_000)
        assert 50 <= len(asked.of(FetchRequest)) <= 80

    virtually(story, brokers=1, topics={"many": 200})


def refused_by(node_id: int) -> Callable[[Exchange], Any]:
    """A fault for Fetch: that broker refuses all partitions, for its disk is broken."""

    async def refuse(exchange: Exchange) -> Any:
        response: Any = await exchange.handle()
        for topic in response.responses if exchange.broker == node_id else ():
            for partition in topic.partitions:
                partition.error_code, partition.records = ErrorCode.KAFKA_STORAGE_ERROR, None
        return response

    return refuse


def test_a_new_leader_ends_the_pause_that_the_former_one_has_caused() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v")
        former = cluster.leader("t")
        assert former is not None
        cluster.intercept(FetchRequest, refused_by(former))
        async with consumer(cluster, retry_backoff_max_ms=30_000) as reader:
            reader.assign([T0])
            assert not await reader.getmany(timeout_ms=60_000)
            cluster.move_leader("t")
            reader._runtime.cluster_client.metadata.request_update()
            assert T0 in await reader.getmany(timeout_ms=1_000)

    virtually(story)


def refusals() -> tuple[FetchRefusals, Subscription]:
    subscription = Subscription()
    subscription.assign([T0, T1])
    for tp in (T0, T1):
        subscription.seek(tp, 0)
    return FetchRefusals(subscription, lambda: Backoff(0.1, 1.0, _NoJitter()), counts_for=8.0), subscription


def answer(tp: TopicPartition, code: int = 0) -> tuple[FetchTarget, PartitionData]:
    data = PartitionData(
        partition_index=tp.partition, error_code=code, high_watermark=0, aborted_transactions=None, records=None
    )
    return FetchTarget(tp, 1, 0, 0), data


ANY: Callable[[int], bool] = lambda node_id: True  # noqa: E731
STORAGE, UNKNOWN = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "1"), BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "2")


def test_the_pauses_of_each_broker_grow_until_it_refuses_nothing() -> None:
    known, subscription = refusals()
    token, other = subscription[T0].token, subscription[T1].token
    assert [known.refused(T0, token, STORAGE, 1, now) for now in (10, 20, 30)] == pytest.approx([10.1, 20.2, 30.4])
    assert known.refused(T1, other, UNKNOWN, 1, 30.1) == pytest.approx(30.4), "both are due at the same time"
    assert known.refused(T1, other, UNKNOWN, 2, 30.2) == pytest.approx(30.3), "another broker has pauses of its own"
    assert known.newest(ANY, 31) is UNKNOWN
    known.answered([answer(T0, ErrorCode.KAFKA_STORAGE_ERROR), answer(T1)], 31)
    assert known.newest(ANY, 31) is STORAGE
    known.answered([answer(T0)], 31)
    assert known.newest(ANY, 31) is None
    assert known._pauses == {}
    assert known.refused(T0, token, STORAGE, 1, 40) == pytest.approx(40.1)


def test_a_refusal_that_is_not_repeated_counts_for_a_while() -> None:
    known, subscription = refusals()
    token = subscription[T0].token
    again = [FetchTarget(T0, token, 0, 0)]
    known.refused(T0, token, STORAGE, 1, 10)
    known.answered([answer(T1)], 20)
    assert known.of(T0, token, 1_000) is known.newest(ANY, 1_000) is STORAGE, "it was not asked for again"
    known.asked_in_vain(again, 1_000)
    assert known.of(T0, token, 1_008.1) is None, "that Fetch has failed"
    known.answered([answer(T0, ErrorCode.KAFKA_STORAGE_ERROR)], 1_010)
    assert known.of(T0, token, 2_000) is STORAGE
    known.answered([answer(T1)], 2_000, again)
    known.answered([answer(T1)], 2_005, again)
    assert known.of(T0, token, 2_008) is known.newest(ANY, 2_008) is STORAGE
    assert known.of(T0, token, 2_008.1) is known.newest(ANY, 2_008.1) is None
    known.answered([], 2_008.1)
    assert (known._partitions, known._pauses) == ({}, {})


def test_a_new_leader_ends_no_pause_of_another_cause() -> None:
    known, subscription = refusals()
    position = subscription[T0]
    retry_at = known.refused(T0, position.token, STORAGE, 1, 10)
    assert retry_at is not None
    subscription.retry_later((T0,), retry_at)
    assert known.ends_with(2, T0, position)
    assert not known.ends_with(1, T0, position), "it is the same leader"
    subscription.retry_later((T0,), retry_at + 5)
    assert not known.ends_with(2, T0, position)


def test_an_answer_that_only_throttles_says_nothing_of_a_refused_partition() -> None:
    async def story(cluster: Cluster) -> None:
        async def throttling(exchange: Exchange) -> Any:
            response: Any = await exchange.handle()
            response.responses, response.throttle_time_ms = [], 1_000
            return response

        cluster.append("t", b"v", partition=1)
        async with consumer(cluster) as reader:
            reader.assign([T1])
            cluster.intercept(FetchRequest, Refusing(ErrorCode.KAFKA_STORAGE_ERROR), times=1)
            throttled = cluster.intercept(FetchRequest, throttling)
            reading = asyncio.ensure_future(reader.getmany())
            await asyncio.sleep(20)
            assert "KAFKA_STORAGE_ERROR" in str(reader.health().last_error)
            throttled.cancel()
            assert T1 in await reading
            await asyncio.sleep(2)
            assert reader.health().last_error is None

    virtually(story, brokers=1)


def test_so_does_one_of_a_partition_that_has_stayed_in_the_session() -> None:
    known, subscription = refusals()
    token = subscription[T0].token
    known.refused(T0, token, STORAGE, 1, 10)
    known.answered([answer(T1)], 20, known={T0})
    assert known.of(T0, token, 28) is STORAGE
    assert known.of(T0, token, 28.1) is None


def test_a_refusal_that_has_passed_hides_no_trouble_of_the_next_leader() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"v", partition=1)
        async with consumer(cluster) as reader:
            reader.assign([T1])
            cluster.intercept(FetchRequest, Refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
            reading = asyncio.ensure_future(reader.getmany())
            await asyncio.sleep(0.05)
            leader = cluster.move_leader("t", 1)
            cluster.intercept(FetchRequest, disconnect(), where=lambda exchange: exchange.broker == leader)
            await asyncio.sleep(20)
            error = reader.health().last_error
            assert error is not None
            assert ErrorCode.NOT_LEADER_OR_FOLLOWER.name not in str(error)
            reading.cancel()

    virtually(story, brokers=2)


@pytest.mark.parametrize(
    ("answers_after", "pause", "options"),
    [(0.0, 20.0, {"fetch_buffer_bytes": 20_000}), (20.0, 0.1, {})],
    ids=["a full buffer", "a slow network"],
)
def test_a_refusal_counts_until_its_partition_is_asked_for_again(
    answers_after: float, pause: float, options: dict[str, int]
) -> None:
    async def story(cluster: Cluster) -> None:
        async def slowly(exchange: Exchange) -> Any:
            await asyncio.sleep(answers_after)
            return await refusing(exchange)

        async def application(reader: Consumer[Any, Any]) -> None:
            while True:
                await reader.getmany(max_records=10)
                await asyncio.sleep(pause)

        refusing = Refusing(ErrorCode.KAFKA_STORAGE_ERROR)
        for _ in range(50):
            cluster.append("t", *[bytes(1_000)] * 10)
        cluster.append("t", b"v", partition=1)
        cluster.intercept(FetchRequest, slowly)
        async with consumer(cluster, max_partition_fetch_bytes=10_000, **options) as reader:
            reader.assign([T0, T1])
            await reader.getmany(max_records=1)
            poll = asyncio.ensure_future(application(reader))
            await asyncio.sleep(3)
            for second in range(180):
                await asyncio.sleep(1)
                assert "KAFKA_STORAGE_ERROR" in str(reader.health().last_error), second
            assert refusing.hits < 20, "it is asked for seldom"
            poll.cancel()

    virtually(story, brokers=1)


def test_what_is_not_fetched_any_more_is_forgotten() -> None:
    known, subscription = refusals()
    known.refused(T0, subscription[T0].token, STORAGE, 1, 0)
    known.broker_refused(7, gone := ConnectionFailed("gone"))
    subscription.pause(T0, True)
    assert known.newest(ANY, 0) is gone
    assert known.newest(lambda node_id: False, 0) is None
    subscription.pause(T0, False)
    assert known.newest(ANY, 0) is STORAGE
    subscription.assign([T1])
    assert known.newest(ANY, 0) is gone
    known.answered([], 0)
    assert known._partitions == {}
    known.forget_broker(7)
    assert known.newest(ANY, 0) is None
