"""Batches that a thread compresses, because they are large."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aiokc import Producer
from aiokc.client.produce import compressing
from aiokc.errors import DeliveryTimedOut, ProduceError, UnsupportedCodec
from aiokc.records.encoding.batch_builder import ClosedBatch, OpenBatch
from aiokc.testing import Cluster

from ..aio.full_pool import full_pool

pytestmark = pytest.mark.timeout(30)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(bootstrap_servers=cluster.bootstrap, **options)


async def test_a_batch_needs_no_thread_of_the_application() -> None:
    """Jobs in all of the loop's default threads may wait until just this batch is stored."""
    async with Cluster(topics={"t": 1}) as cluster:
        producer = producing(cluster, compression_type="gzip", batch_size=1 << 20, linger_ms=0)
        with full_pool():
            async with asyncio.timeout(20), producer:
                assert (await producer.send_and_wait("t", bytes(600_000))).offset == 0


async def test_batches_are_compressed_in_the_loop_where_no_thread_can_be_had(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are sent all the same, and a warning says what to do."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with Cluster(topics={"t": 1}) as cluster:
        async with producing(cluster, compression_type="gzip", batch_size=1 << 20) as producer:
            await producer.send_and_wait("t", b"0")
            monkeypatch.setattr(threading.Thread, "start", refused)
            sent = [await producer.send("t", b"%d" % number + bytes(50_000)) for number in range(1, 40)]
            assert [(await one).offset for one in sent] == list(range(1, 40))
        assert [(record.value or b"")[:2] for record in cluster.records("t")[10:]] == [b"%d" % n for n in range(10, 40)]
    (warning,) = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert "can't start new thread" in warning
    assert "raise that limit" in warning


@contextmanager
def slow_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[threading.Thread]]]:
    """Threads that compress nothing until the event is set, or this context ends; and those that have come to it."""
    over, threads, closed = threading.Event(), list[threading.Thread](), compressing._closed

    def slow(opened: list[OpenBatch]) -> list[ClosedBatch | Exception]:
        threads.append(threading.current_thread())
        over.wait(20)
        return closed(opened)

    monkeypatch.setattr(compressing, "_closed", slow)
    try:
        yield over, threads
    finally:
        over.set()


async def test_a_batch_expires_while_a_thread_compresses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"linger_ms": 0, "request_timeout_ms": 500, "delivery_timeout_ms": 500}
    options = {"compression_type": "gzip", "batch_size": 1 << 20, **times}
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, **options) as producer:
        await producer.send_and_wait("t", b"0")
        with slow_threads(monkeypatch) as (over, _):
            with pytest.raises(DeliveryTimedOut) as expired:
                await producer.send_and_wait("t", bytes(600_000))
            assert expired.value.persisted == "no"
            over.set()
            assert (await producer.send_and_wait("t", b"1")).offset == 1
            await producer.flush()
            assert producer._runtime.accumulator.used == 0


async def test_stop_does_not_wait_for_a_thread_and_ends_those_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"compression_type": "gzip", "batch_size": 1 << 20, "linger_ms": 0}
    async with Cluster(topics={"t": 2}) as cluster:
        with slow_threads(monkeypatch) as (over, threads):
            producer = producing(cluster, **options)
            await producer.start()
            await producer.send_and_wait("t", b"0", partition=0)
            sent = [await producer.send("t", bytes(400_000), partition=number) for number in range(2)]
            while len(threads) < 2:  # noqa: ASYNC110 -- they are no tasks of this loop
                await asyncio.sleep(0.001)
            await producer.stop(timeout_ms=100)
            for delivery in sent:
                with pytest.raises(ProduceError) as raised:
                    await delivery
                assert raised.value.persisted == "no"
            assert producer._runtime.accumulator.used == 0
            over.set()
            for thread in threads:
                await asyncio.to_thread(thread.join, 20)
            assert [(thread.name, thread.is_alive()) for thread in threads] == [("aiokc compressing", False)] * 2


async def test_many_partitions_are_compressed_in_threads_and_each_keeps_its_order() -> None:
    partitions, rounds = 30, 12
    async with Cluster(topics={"t": partitions}) as cluster:
        options = {"compression_type": "zstd", "compression_level": 19, "batch_size": 8192, "linger_ms": 0}
        async with producing(cluster, **options) as producer:
            await producer.partitions_for("t")
            for number in range(rounds):
                for partition in range(partitions):
                    await producer.send("t", b"%d " % number * 1000, partition=partition)
            await producer.flush()
        for partition in range(partitions):
            values = [record.value.split()[0] for record in cluster.records("t", partition) if record.value]
            assert values == [b"%d" % number for number in range(rounds)]


@pytest.mark.parametrize("size", [10, 200_000], ids=["in the loop", "in a thread"])
async def test_a_batch_that_can_t_be_compressed_fails_alone(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its codec's package is not installed, for instance, or there is no memory."""
    options = {"compression_type": "lz4", "batch_size": 1 << 20}
    async with Cluster(topics={"t": 2}) as cluster, producing(cluster, **options) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "cramjam", None)
            with pytest.raises(ProduceError, match=r"could not be compressed: .*cramjam") as failed:
                await asyncio.wait_for(producer.send_and_wait("t", bytes(size), partition=0), 20)
            assert isinstance(failed.value.__cause__, UnsupportedCodec)
            assert failed.value.persisted == "no"
        assert (await producer.send_and_wait("t", b"1", partition=0)).offset == 1
        assert (await producer.send_and_wait("t", b"2", partition=1)).offset == 0


def test_a_producer_can_be_made_without_the_package_that_compresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch tells of it, as of any other reason why it can't be compressed."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    Producer(compression_type="lz4")


async def test_a_flush_in_the_same_step_raises_that_a_batch_could_not_be_compressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"compression_type": "lz4", "linger_ms": 0}
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, **options) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "cramjam", None)
            producer.send_soon("t", b"1", partition=0)
            with pytest.raises(ProduceError, match=r"could not be compressed: .*cramjam"):
                await producer.flush()
