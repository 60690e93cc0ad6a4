"""asyncio.run() ends: all tasks are cancelled at once, those of a client's background, too, and its stop() ends soon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from aiokc import Delivery, Producer
from aiokc.errors import ProduceError
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.produce import ProduceRequest

pytestmark = pytest.mark.timeout(60)

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

    worker = asyncio.run(main())
    assert worker.cancelled()


@pytest.mark.parametrize("in_flight", [False, True], ids=["waits for linger", "in flight"])
@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_a_producer_stopped_by_the_end_of_the_run_waits_for_no_answer(
    cluster: Cluster, transactional_id: str | None, in_flight: bool
) -> None:
    """Its background ends by its own cancellation, while stop() waits until everything is sent."""
    deliveries: list[Delivery] = []
    options: dict[str, Any] = {"linger_ms": 0 if in_flight else 60_000, "transactional_id": transactional_id}

    async def work(ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()

        def never(exchange: Exchange) -> Awaitable[None]:
            loop.call_soon_threadsafe(arrived.set)
            return exchange.never()

        if in_flight:
            cluster.intercept(ProduceRequest, never)
        async with Producer(bootstrap_servers=cluster.bootstrap, **options) as producer:
            if transactional_id is not None:
                await producer.begin_transaction()
            deliveries.append(await producer.send("t", b"0"))
            if in_flight:
                await arrived.wait()
            ready()
            await loop.create_future()

    began = time.monotonic()
    run_and_leave(work)
    assert time.monotonic() - began < SOON
    (delivery,) = deliveries
    with pytest.raises(ProduceError) as failed:
        delivery.result()
    assert failed.value.persisted == ("maybe" if in_flight else "no")
