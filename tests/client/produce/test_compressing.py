"""Batches that a thread compresses, because they are large."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aiokc import Producer
from aiokc.errors import DeliveryTimedOut
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
