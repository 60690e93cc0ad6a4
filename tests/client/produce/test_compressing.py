"""Batches that a thread compresses, because they are large."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aiokc import Producer
from aiokc.errors import DeliveryTimedOut, ProduceError, UnsupportedCodec
from aiokc.testing import Cluster

pytestmark = pytest.mark.timeout(30)


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(bootstrap_servers=cluster.bootstrap, **options)


async def test_a_batch_expires_though_no_thread_is_free_to_compress_it() -> None:
    """It goes to the loop's default executor, which the application may keep busy for as long as it likes."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    is_over = threading.Event()
    async with Cluster(topics={"t": 1}) as cluster:
        try:
            times = {"linger_ms": 0, "request_timeout_ms": 500, "delivery_timeout_ms": 500}
            async with producing(cluster, compression_type="gzip", batch_size=1 << 20, **times) as producer:
                await producer.send_and_wait("t", b"0")
                loop.run_in_executor(None, is_over.wait)
                with pytest.raises(DeliveryTimedOut) as expired:
                    await producer.send_and_wait("t", bytes(600_000))
                assert expired.value.persisted == "no"
                is_over.set()
                assert (await producer.send_and_wait("t", b"1")).offset == 1
                await producer.flush()
                assert producer._runtime.accumulator.used == 0
        finally:
            is_over.set()


def shut_down(loop: asyncio.AbstractEventLoop) -> None:
    """As an application does that believes to be alone with its loop's executor."""
    executor = ThreadPoolExecutor(1)
    loop.set_default_executor(executor)
    executor.shutdown()


async def test_batches_are_compressed_in_the_loop_where_its_executor_is_shut_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It belongs to the application. Records are sent all the same, and a warning says what to do."""
    async with Cluster(topics={"t": 1}) as cluster:
        async with producing(cluster, compression_type="gzip", batch_size=1 << 20) as producer:
            await producer.send_and_wait("t", b"0")
            shut_down(asyncio.get_running_loop())
            sent = [await producer.send("t", b"%d" % number + bytes(50_000)) for number in range(1, 40)]
            assert [(await one).offset for one in sent] == list(range(1, 40))
        assert [(record.value or b"")[:2] for record in cluster.records("t")[10:]] == [b"%d" % n for n in range(10, 40)]
    assert "set_default_executor" in caplog.text


class WithoutThreads(ThreadPoolExecutor):
    """The process can have no more threads. One that there is runs the call nevertheless: it was queued before that."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        thread = threading.Thread(target=fn, args=args, kwargs=kwargs)
        thread.start()
        thread.join()
        raise RuntimeError("can't start new thread")


async def test_a_batch_is_compressed_once_where_the_executor_can_start_no_further_thread() -> None:
    options = {"compression_type": "gzip", "batch_size": 1 << 20}
    async with Cluster(topics={"t": 1}) as cluster, producing(cluster, **options) as producer:
        await producer.send_and_wait("t", b"0")
        asyncio.get_running_loop().set_default_executor(WithoutThreads())
        assert (await producer.send_and_wait("t", bytes(600_000))).offset == 1


async def test_a_batch_that_a_shut_down_executor_never_began_with_is_sent() -> None:
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(1)
    loop.set_default_executor(executor)
    is_over = threading.Event()
    async with Cluster(topics={"t": 1}) as cluster:
        try:
            async with producing(cluster, compression_type="gzip", batch_size=1 << 20, linger_ms=0) as producer:
                await producer.send_and_wait("t", b"0")
                loop.run_in_executor(None, is_over.wait)
                delivery = await producer.send("t", bytes(600_000))
                while not executor._work_queue.qsize():  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0)
                executor.shutdown(wait=False, cancel_futures=True)
                assert (await delivery).offset == 1
        finally:
            is_over.set()


async def test_stop_does_not_wait_for_a_thread_that_is_not_free() -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    is_over = threading.Event()
    async with Cluster(topics={"t": 1}) as cluster:
        try:
            producer = producing(cluster, compression_type="gzip", batch_size=1 << 20, linger_ms=0)
            await producer.start()
            await producer.send_and_wait("t", b"0")
            loop.run_in_executor(None, is_over.wait)
            delivery = await producer.send("t", bytes(600_000))
            await producer.stop(timeout_ms=100)
            with pytest.raises(ProduceError) as raised:
                await delivery
            assert raised.value.persisted == "no"
            assert producer._runtime.accumulator.used == 0
        finally:
            is_over.set()


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
