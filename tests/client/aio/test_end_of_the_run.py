"""The end of asyncio.run() cancels all tasks at once, those of a client's background, too: stop() ends soon, then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from aiokc import Consumer, Delivery, Producer, TopicPartition
from aiokc.errors import KafkaError, ProduceError, RequestTimedOut
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire import Request
from aiokc.wire.messages.offsets import OffsetCommitRequest
from aiokc.wire.messages.produce import ProduceRequest

pytestmark = pytest.mark.timeout(60)

ZERO = TopicPartition("t", 0)
#: stop() takes 30 s where it waits for what nobody does any more.
SOON = 10.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 1}).in_thread() as cluster:
        yield cluster


def run_and_leave(work: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
    """Let main() return, and the run end, as soon as the task ``work`` has called what it is given."""

    async def main() -> asyncio.Task[None]:
        ready = asyncio.Event()
        worker = asyncio.ensure_future(work(ready.set))
        await ready.wait()
        return worker

    began = time.monotonic()
    worker = asyncio.run(main())
    assert worker.cancelled()
    assert time.monotonic() - began < SOON


def unanswered(cluster: Cluster, request: type[Request[Any]]) -> asyncio.Event:
    """Have the cluster answer none of these requests. The event is set when one has come."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()

    def never(exchange: Exchange) -> Awaitable[None]:
        loop.call_soon_threadsafe(came.set)
        return exchange.never()

    cluster.intercept(request, never)
    return came


@pytest.mark.parametrize("in_flight", [False, True], ids=["waits for linger", "in flight"])
@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_a_producer_stopped_by_the_end_of_the_run_waits_for_no_answer(
    cluster: Cluster, transactional_id: str | None, in_flight: bool
) -> None:
    """Its background ends by its own cancellation, while stop() waits until everything is sent."""
    deliveries: list[Delivery] = []
    options: dict[str, Any] = {"linger_ms": 0 if in_flight else 60_000, "transactional_id": transactional_id}

    async def work(ready: Callable[[], None]) -> None:
        came = unanswered(cluster, ProduceRequest) if in_flight else None
        async with Producer(bootstrap_servers=cluster.bootstrap, **options) as producer:
            if transactional_id is not None:
                await producer.begin_transaction()
            deliveries.append(await producer.send("t", b"0"))
            if came is not None:
                await came.wait()
            ready()
            await asyncio.Event().wait()

    run_and_leave(work)
    (delivery,) = deliveries
    with pytest.raises(ProduceError) as failed:
        delivery.result()
    assert failed.value.persisted == ("maybe" if in_flight else "no")


@pytest.mark.parametrize("by_hand", [False, True], ids=["member", "assigned"])
def test_a_consumer_stopped_by_the_end_of_the_run_waits_for_no_commit(
    cluster: Cluster, by_hand: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody sends its commits any more, nor its LeaveGroup: the log says so. Callbacks hear that it was not done."""
    cluster.append("t", b"0", b"1")
    told: list[KafkaError | None] = []

    async def work(ready: Callable[[], None]) -> None:
        came = unanswered(cluster, OffsetCommitRequest)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest")
        if by_hand:
            consumer.assign([ZERO])
        else:
            consumer.subscribe(["t"])
        async with consumer:
            await consumer.getone()
            consumer.commit_soon({ZERO: 1}, lambda offsets, error: told.append(error))
            await came.wait()
            consumer.commit_soon({ZERO: 2}, lambda offsets, error: told.append(error))
            ready()
            try:
                await asyncio.Event().wait()
            finally:
                consumer.commit_soon({ZERO: 1}, lambda offsets, error: told.append(error))

    run_and_leave(work)
    assert [type(error) for error in told] == [RequestTimedOut] * 3
    assert len(cluster.members("g")) == (0 if by_hand else 1)
    assert (
        "the background was cancelled, as asyncio.run() does at its end, before stop()" in caplog.text
    ) is not by_hand
