"""A call with a timeout of 0 lets other tasks run before it says so: an application may repeat it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.errors import NoBrokersAvailable, RequestTimedOut
from aiokc.testing import Cluster

pytestmark = pytest.mark.timeout(30)

ZERO = TopicPartition("t", 0)
CALLS: list[Callable[[Consumer], Coroutine[Any, Any, Any]]] = [
    lambda consumer: consumer.position(ZERO, timeout_ms=0),
    lambda consumer: consumer.seek_to_beginning(ZERO, timeout_ms=0),
    lambda consumer: consumer.seek_to_end(ZERO, timeout_ms=0),
    lambda consumer: consumer.seek_to_committed(ZERO, timeout_ms=0),
    lambda consumer: consumer.committed(ZERO, timeout_ms=0),
    lambda consumer: consumer.commit({ZERO: 1}, timeout_ms=0),
    lambda consumer: consumer.beginning_offsets([ZERO], timeout_ms=0),
    lambda consumer: consumer.end_offsets([ZERO], timeout_ms=0),
    lambda consumer: consumer.offsets_for_times({ZERO: 1}, timeout_ms=0),
    lambda consumer: consumer.partitions_for_topic("not known yet", timeout_ms=0),
    lambda consumer: consumer.list_topics(timeout_ms=0),
    lambda consumer: consumer.getmany(timeout_ms=0),
    lambda consumer: consumer.wait_assigned(timeout_ms=0),
]


@pytest.fixture
async def consumer() -> AsyncIterator[Consumer]:
    async with (
        Cluster(topics={"t": 1}) as cluster,
        Consumer(bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([ZERO])
        yield consumer


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.__code__.co_names[0]))
async def test_other_tasks_run(consumer: Consumer, call: Callable[[Consumer], Coroutine[Any, Any, Any]]) -> None:
    ran: list[bool] = []
    asyncio.get_running_loop().call_soon(ran.append, True)
    with suppress(RequestTimedOut, NoBrokersAvailable):
        await call(consumer)
    assert ran


async def test_the_answer_comes_between_two_calls(consumer: Consumer) -> None:
    for _ in range(100_000):
        with suppress(RequestTimedOut):
            assert await consumer.position(ZERO, timeout_ms=0) == 0
            return
    pytest.fail("no position after 100,000 calls")
