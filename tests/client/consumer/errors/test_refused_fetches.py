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
from aiokc.wire.messages.fetch import FetchRequest, PartitionData

from ...virtually import virtually

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


def refusals() -> tuple[FetchRefusals, Subscription]:
    subscription = Subscription()
    subscription.assign([T0, T1])
    for tp in (T0, T1):
        subscription.seek(tp, 0)
    return FetchRefusals(subscription, lambda: Backoff(0.1, 1.0, _NoJitter())), subscription


def answer(tp: TopicPartition, code: int = 0) -> tuple[FetchTarget, PartitionData]:
    data = PartitionData(
        partition_index=tp.partition, error_code=code, high_watermark=0, aborted_transactions=None, records=None
    )
    return FetchTarget(tp, 1, 0, 0), data


ANY: Callable[[int], bool] = lambda node_id: True  # noqa: E731
STORAGE, UNKNOWN = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "1"), BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "2")


def test_the_pauses_of_each_partition_grow_until_it_is_answered() -> None:
    known, subscription = refusals()
    token = subscription[T0].token
    assert [known.refused(T0, token, STORAGE) for _ in range(3)] == pytest.approx([0.1, 0.2, 0.4])
    assert known.refused(T1, subscription[T1].token, UNKNOWN) == pytest.approx(0.1)
    assert known.newest(ANY) is UNKNOWN
    known.answered([answer(T0, ErrorCode.KAFKA_STORAGE_ERROR), answer(T1)])
    assert known.newest(ANY) is STORAGE
    known.answered([answer(T0)])
    assert known.newest(ANY) is None
    assert known.refused(T0, token, STORAGE) == pytest.approx(0.1)


def test_what_is_not_fetched_any_more_is_forgotten() -> None:
    known, subscription = refusals()
    known.refused(T0, subscription[T0].token, STORAGE)
    known.broker_refused(7, gone := ConnectionFailed("gone"))
    subscription.pause(T0, True)
    assert known.newest(ANY) is gone
    assert known.newest(lambda node_id: False) is None
    subscription.pause(T0, False)
    assert known.newest(ANY) is STORAGE
    subscription.assign([T1])
    assert known.newest(ANY) is gone
    known.answered([])
    assert known._partitions == {}
    known.broker_answered(7)
    assert known.newest(ANY) is None
