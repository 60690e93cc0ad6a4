"""Clients in a loop with asyncio.eager_task_factory (Python 3.12), where a task begins within create_task()."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from aiokc import Consumer, Producer
from aiokc.testing import Cluster

pytestmark = pytest.mark.timeout(60)

EAGER: Any = vars(asyncio).get("eager_task_factory")  # conftest.py here leaves this file out where there is none


def eagerly(story: Coroutine[Any, Any, None]) -> None:
    """Run ``story`` in asyncio's own loop: uvloop gives this factory an argument that not each Python's takes."""

    async def within_limits() -> None:
        async with asyncio.timeout(30):
            await story

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.get_loop().set_task_factory(EAGER)
        runner.run(within_limits())


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics={"t": 2}).in_thread() as cluster:
        yield cluster


@pytest.mark.parametrize("transactional_id", [None, "id"])
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_a_member_reads_what_a_producer_writes_and_both_stop(
    cluster: Cluster, transactional_id: str | None, group_protocol: Any
) -> None:
    values = {b"%d" % number for number in range(10)}

    async def write() -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap, transactional_id=transactional_id) as producer:
            if transactional_id is not None:
                await producer.begin_transaction()
            await asyncio.gather(*(asyncio.create_task(producer.send_and_wait("t", value)) for value in values))
            if transactional_id is not None:
                await producer.commit_transaction()

    async def story() -> None:
        consumer = Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            group_protocol=group_protocol,
            auto_offset_reset="earliest",
        )
        async with consumer:
            writing = asyncio.create_task(write())
            assert {(await consumer.getone()).value for _ in values} == values
            await writing
            await consumer.commit()

    eagerly(story())
    assert sum(cluster.committed("g").values()) >= len(values)
    assert cluster.members("g") == []


def test_a_callback_may_stop_its_producer_in_a_task(cluster: Cluster) -> None:
    """The task begins within the callback, which stop() waits for, as in other loops."""
    stopping: list[asyncio.Task[None]] = []
    called: list[str] = []
    over = asyncio.Event()

    def stop(metadata: object, error: Exception | None) -> None:
        stopping.append(asyncio.create_task(producer.stop()))
        called.append("stop")
        over.set()

    async def story() -> None:
        await producer.start()
        await producer.send("t", b"", partition=0, on_done=stop)
        await producer.send("t", b"", partition=0, on_done=lambda *told: called.append("next"))
        await over.wait()
        await stopping[0]

    producer = Producer(bootstrap_servers=cluster.bootstrap)
    eagerly(story())
    assert called == ["stop", "next"]
