"""Administrative calls have threads of their own: none waits for the application's, or for longer than it may take."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from aiokc.admin import TopicDescription
from aiokc.client.admin import leaders, loading
from aiokc.core.admin.first_record import Look, first_record
from aiokc.errors import ClientClosed, ConnectionFailed, RequestTimedOut
from aiokc.net.own_thread import OwnThread
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from tests.net.scripted import ticks

from ..aio.full_pool import full_pool
from .scene import ONE, ZERO, client_of

pytestmark = pytest.mark.timeout(60)


@contextmanager
def pool_shut_down() -> Iterator[None]:
    """As an application does that believes to be alone with its loop's executor."""
    executor = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    executor.shutdown()
    yield


@contextmanager
def no_threads() -> Iterator[None]:
    """The process can have no more threads, whoever asks for one."""
    executor = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    refused = RuntimeError("can't start new thread")
    with patch.object(threading.Thread, "start", side_effect=refused):
        yield
    executor.shutdown(wait=False)


POOLS: list[Callable[[], AbstractContextManager[Any]]] = [full_pool, pool_shut_down, no_threads]


@pytest.fixture
def code_to_load(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The next call is the first one, and its code loads until the event is set."""
    over = threading.Event()
    monkeypatch.setattr(loading, "_DRIVERS", ("no module of this name",))
    monkeypatch.setattr(loading, "_load", lambda: over.wait(8))
    yield over
    over.set()


async def test_a_long_answer_is_read_in_a_thread() -> None:
    async with Cluster() as cluster, client_of(cluster) as client, client._asking(1_000) as asking:
        assert await asking.read(threading.get_ident, 10) == threading.get_ident()
        assert await asking.read(threading.get_ident, 10_000) != threading.get_ident()


def test_the_first_call_loads_its_code_in_a_thread() -> None:
    """Most clients never make one; and the event loop goes on while it loads."""
    program = """
import asyncio, sys, threading
from aiokc import Client
from aiokc.client.admin import loading
from aiokc.testing import Cluster

async def main():
    assert "aiokc.client.admin.groups" not in sys.modules
    threads = []
    load = loading._load
    loading._load = lambda: (threads.append(threading.current_thread()), load())
    async with Cluster() as cluster, Client(bootstrap_servers=cluster.bootstrap) as client:
        assert "aiokc.client.admin.groups" not in sys.modules
        await client.describe_cluster()
        await client.describe_cluster()
    assert "aiokc.client.admin.groups" in sys.modules
    assert len(threads) == 1 and threads[0] is not threading.main_thread()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=55)


@pytest.mark.parametrize("pool", POOLS)
async def test_no_call_needs_a_thread_of_the_application(
    pool: Callable[[], AbstractContextManager[Any]], code_to_load: threading.Event
) -> None:
    """Its first call loads its code, and a long answer is read: both in a thread, or in the loop if there is none."""
    topics = {f"t{number}": 1 for number in range(300)}
    async with Cluster(topics=topics) as cluster, client_of(cluster) as client:
        with pool():
            code_to_load.set()
            described = await asyncio.wait_for(client.describe_topics(), 30)
        assert [name for name, found in described.items() if isinstance(found, TopicDescription)] == sorted(topics)


async def test_loading_the_code_ends_at_the_deadline(code_to_load: threading.Event) -> None:
    async with Cluster() as cluster, client_of(cluster) as client:
        with pytest.raises(RequestTimedOut, match=r"importing the code .* not done within 0\.05 s"):
            await asyncio.wait_for(client.describe_cluster(timeout_ms=50), 20)


async def test_loading_the_code_ends_with_the_client(code_to_load: threading.Event) -> None:
    async with Cluster() as cluster, client_of(cluster) as client:
        call = asyncio.create_task(client.describe_cluster())
        await ticks(5)  # it is under way
        await client.stop()
        with pytest.raises(ClientClosed):
            await call


#: The second one is for a busy machine, which has not come to the batch within the first one.
TIMEOUTS_MS = (500, 10_000)


async def age_of_a_large_batch(cluster: Cluster, timeout_ms: int) -> object:
    """Ask for the timestamp of a record in a batch that a thread opens."""
    cluster.append("t", NewRecord(bytes(300 << 10), timestamp=1_000), partition=0)
    async with client_of(cluster) as client:
        await client.commit("g", {ZERO: 0})
        found = await asyncio.wait_for(client.group_lag(["g"], with_time=True, timeout_ms=timeout_ms), 30)
    lags = found["g"]
    assert isinstance(lags, dict)
    return lags[ZERO].error or lags[ZERO].timestamp


@pytest.mark.parametrize("pool", [full_pool, pool_shut_down])
async def test_a_large_batch_needs_no_thread_of_the_application(
    pool: Callable[[], AbstractContextManager[Any]],
) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        with pool():
            assert await age_of_a_large_batch(cluster, 20_000) == 1_000


async def test_a_large_batch_is_waited_for_until_the_deadline() -> None:
    over, looked_at = threading.Event(), []

    def slow(*args: Any, **options: Any) -> Look:
        looked_at.append(threading.current_thread())
        over.wait()
        return first_record(*args, **options)

    with patch.object(leaders, "first_record", slow):
        try:
            async with Cluster(topics={"t": 1}) as cluster:
                for timeout_ms in TIMEOUTS_MS:
                    looked_at.clear()
                    error = await age_of_a_large_batch(cluster, timeout_ms)
                    assert isinstance(error, RequestTimedOut)
                    if "opening the batch" in str(error):
                        break
        finally:
            over.set()
    assert "opening the batch of t-0 at offset 0" in str(error)
    assert [thread.name for thread in looked_at] == ["aiokc large batches"]


async def test_large_batches_of_several_leaders_are_opened_at_once() -> None:
    both = threading.Barrier(2)

    def together(*args: Any, **options: Any) -> Look:
        both.wait(20)  # BrokenBarrierError if the other leader's batch waits behind this one
        return first_record(*args, **options)

    async with Cluster(brokers=2, topics={"t": 2}) as cluster, client_of(cluster) as client:
        for tp in (ZERO, ONE):
            cluster.append("t", NewRecord(bytes(300 << 10), timestamp=1_000), partition=tp.partition)
        await client.commit("g", {ZERO: 0, ONE: 0})
        described = (await client.describe_topics("t"))["t"]
        assert isinstance(described, TopicDescription)
        assert len({one.leader for one in described.partitions.values()}) == 2
        with patch.object(leaders, "first_record", together):
            lags = (await client.group_lag(["g"], with_time=True))["g"]
    assert isinstance(lags, dict)
    assert [lag.timestamp for lag in lags.values()] == [1_000, 1_000]


async def test_without_a_thread_for_a_large_batch_the_error_says_so() -> None:
    """Opening it in the loop might hold the loop for seconds."""
    refused = ConnectionFailed("the thread 'aiokc large batches' can't be started (can't start new thread)")
    with patch.object(OwnThread, "_start", side_effect=refused):
        async with Cluster(topics={"t": 1}) as cluster:
            for timeout_ms in TIMEOUTS_MS:
                error = await age_of_a_large_batch(cluster, timeout_ms)
                assert isinstance(error, RequestTimedOut)
                if "can't be started" in str(error):
                    break
    assert "can't be started" in str(error)
