"""A Producer that is dropped without stop(): it warns, sends what it has, and nothing of it remains."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from aiokc import Producer, RecordMetadata
from aiokc.testing import Cluster
from tests.client.test_in_use import LeftBehind, forget

pytestmark = [pytest.mark.timeout(60), pytest.mark.any_loop]

FORGOTTEN = r"a Producer \(client_id='p'\) was forgotten and is still running: use 'async with'"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"t": 1}).in_thread() as cluster:
        yield cluster


async def running(cluster: Cluster) -> Producer[Any, Any]:
    producer: Producer[Any, Any] = Producer(bootstrap_servers=cluster.bootstrap, client_id="p", linger_ms=20)
    await producer.start()
    await producer.send_and_wait("t", b"0")
    producer.send_soon("t", b"1")
    return producer


def noted(producer: Producer[Any, Any], metadata: RecordMetadata, error: Exception | None) -> None:
    assert producer.metrics().acknowledged


async def test_it_warns_and_what_it_had_is_sent(cluster: Cluster) -> None:
    producer = await running(cluster)
    left = LeftBehind(producer._runtime.cluster_client.pool)
    waits = producer.send_soon("t", b"2")
    held = [producer]
    del producer
    with pytest.warns(ResourceWarning, match=FORGOTTEN):
        forget(held)
    await left.is_gone()
    assert (await waits).offset == 2
    assert [record.value for record in cluster.records("t")] == [b"0", b"1", b"2"]


async def test_a_producer_that_was_stopped_leaves_nothing(cluster: Cluster) -> None:
    producer = await running(cluster)
    left = LeftBehind(producer._runtime.cluster_client.pool)
    await producer.stop()
    held = [producer]
    del producer
    forget(held)
    await left.is_gone()


async def test_a_callback_that_refers_to_the_producer_does_not_keep_it(cluster: Cluster) -> None:
    producer = await running(cluster)
    left = LeftBehind(producer._runtime.cluster_client.pool)
    producer.send_soon("t", b"2", on_done=partial(noted, producer))
    await producer.flush()
    await asyncio.sleep(0.1)
    held = [producer]
    del producer
    gc.collect()
    with pytest.warns(ResourceWarning, match=FORGOTTEN):
        forget(held)
    await left.is_gone()
