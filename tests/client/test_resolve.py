"""resolve() and thread pools of the application: their mistakes raise errors that say so, and nothing hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aiokc import Client, Consumer, TopicPartition
from aiokc.errors import ConfigError, ConsumerClosed, NoBrokersAvailable
from aiokc.testing import Cluster

from .aio.full_pool import full_pool

pytestmark = pytest.mark.timeout(30)

ZERO = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(topics={"t": 1}) as cluster:
        cluster.append("t", b"first")
        yield cluster


class Resolver:
    """Resolves correctly, except for the answers in ``then``: each call takes one of those."""

    def __init__(self, *then: Any) -> None:
        self.then = list(then)
        self.calls = 0

    async def __call__(self, host: str, port: int) -> Any:
        self.calls += 1
        answer = self.then.pop(0) if self.then else [(host, port)]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def reader(cluster: Cluster, resolve: Any, **options: Any) -> Consumer:
    return Consumer("t", bootstrap_servers=cluster.bootstrap, resolve=resolve, auto_offset_reset="earliest", **options)


class Unreadable(Exception):
    """An error whose repr() and str() fail."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "raised",
    [asyncio.CancelledError(), GeneratorExit(), StopAsyncIteration(), Unreadable()],
    ids=lambda raised: type(raised).__name__,
)
@pytest.mark.parametrize("calls_before", range(3))
async def test_what_resolve_raises_once_is_one_failed_attempt(
    cluster: Cluster, calls_before: int, raised: BaseException
) -> None:
    """It happens in start(), for the first connection to the leader, or for the coordinator's connection."""
    resolve = Resolver(*([[("127.0.0.1", port_of(cluster))]] * calls_before), raised)
    async with asyncio.timeout(20), reader(cluster, resolve, group_id="g") as consumer:
        assert (await consumer.getone()).value == b"first"
        cluster.disconnect(cluster.leader("t") or 0)
        cluster.append("t", b"second")
        assert (await consumer.getone()).value == b"second"
        assert consumer.health().running


def port_of(cluster: Cluster) -> int:
    return int(cluster.bootstrap.rpartition(":")[2])


@pytest.mark.parametrize("answer", [None, "nonsense", [None], [Unreadable()]], ids=["None", "str", "[None]", "mute"])
async def test_start_raises_at_once_what_resolve_should_return(cluster: Cluster, answer: Any) -> None:
    for client in (
        reader(cluster, Resolver(answer)),
        Client(bootstrap_servers=cluster.bootstrap, resolve=Resolver(answer)),
    ):
        with pytest.raises(ConfigError, match=r"127.0.0.1:\d+: the configured resolve\(\) returned .* it must return"):
            async with asyncio.timeout(10):
                await client.start()


async def test_start_tries_again_where_resolve_returns_no_address(cluster: Cluster) -> None:
    async with asyncio.timeout(20), reader(cluster, Resolver([], [])) as consumer:
        assert (await consumer.getone()).value == b"first"
    with pytest.raises(NoBrokersAvailable, match="resolves to no address"):
        await reader(cluster, Resolver(*[[]] * 1000)).start(timeout_ms=2500)


async def test_the_error_says_what_resolve_should_return_and_reading_goes_on_where_it_does(cluster: Cluster) -> None:
    resolve = Resolver()
    async with asyncio.timeout(20), reader(cluster, resolve) as consumer:
        assert (await consumer.getone()).value == b"first"
        resolve.then = [None] * 3
        cluster.disconnect(cluster.leader("t") or 0)
        cluster.append("t", b"second")
        with pytest.raises(ConfigError, match=r"resolve\(\) returned None"):
            await read_on(consumer)
        resolve.then = []
        assert (await consumer.getone()).value == b"second"


def background() -> dict[str, asyncio.Task[Any]]:
    """Return the tasks of the running loop, by their names."""
    return {task.get_name(): task for task in asyncio.all_tasks() if "aiokc.testing" not in task.get_name()}


@pytest.mark.parametrize("group_id", ["g", None])
async def test_a_cancelled_task_of_the_background_ends_all_of_it_and_calls_raise(
    cluster: Cluster, group_id: str | None
) -> None:
    before = set(background())
    async with reader(cluster, None, group_id="first") as consumer:
        await consumer.getone()
        names = sorted(set(background()) - before)
    assert len(names) > 8
    for name in names:
        cluster.append("t", b"another")
        consumer = reader(cluster, None, group_id=group_id and name)
        async with asyncio.timeout(10), consumer:
            await consumer.getone()
            if name not in background():
                continue  # a task of the group, or the last response was the one that it had waited for
            waiting = asyncio.ensure_future(read_on(consumer))
            await asyncio.sleep(0)
            background()[name].cancel()
            with pytest.raises(ConsumerClosed, match="the background task was cancelled"):
                await waiting
            assert not consumer.health().running, name


async def read_on(consumer: Consumer[Any, Any]) -> None:
    while True:
        await consumer.getmany()


@pytest.mark.parametrize("names", ["bootstrap_servers", "resolve()"])
async def test_names_are_looked_up_where_the_application_has_no_thread_to_spare(cluster: Cluster, names: str) -> None:
    """A host that resolve() returns may be a name, too: asyncio by itself looks that up while it connects."""
    port = port_of(cluster)
    resolve = Resolver([("localhost", port)]) if names == "resolve()" else None
    bootstrap = cluster.bootstrap if resolve else f"localhost:{port}"
    options: dict[str, Any] = {"resolve": resolve, "auto_offset_reset": "earliest"}
    with full_pool():
        async with asyncio.timeout(20), Consumer("t", bootstrap_servers=bootstrap, **options) as consumer:
            assert (await consumer.getone()).value == b"first"


async def test_a_large_batch_is_opened_where_the_application_has_shut_its_executor_down(cluster: Cluster) -> None:
    gone = ThreadPoolExecutor(1)
    gone.shutdown()
    async with asyncio.timeout(20), reader(cluster, None) as consumer:
        assert (await consumer.getone()).value == b"first"
        cluster.append("t", b"x" * 600_000)
        asyncio.get_running_loop().set_default_executor(gone)
        assert len((await consumer.getone()).value or b"") == 600_000


class Stubborn:
    """Does not answer, and does not let itself be cancelled, until it is released."""

    def __init__(self) -> None:
        self.asked, self.released = asyncio.Event(), asyncio.Event()

    async def __call__(self, host: str, port: int) -> Any:
        self.asked.set()
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                continue
        return [(host, port)]


@pytest.mark.any_loop
async def test_a_resolve_that_ignores_its_cancellation_holds_up_neither_start_nor_stop(cluster: Cluster) -> None:
    resolve = Stubborn()
    try:
        consumer = reader(cluster, resolve)
        async with asyncio.timeout(10):
            with pytest.raises(NoBrokersAvailable):
                await consumer.start(timeout_ms=100)
        other = reader(cluster, resolve)
        resolve.asked.clear()
        starting = asyncio.create_task(other.start())
        await resolve.asked.wait()
        async with asyncio.timeout(10):
            await other.stop()
            with pytest.raises(ConsumerClosed):
                await starting
    finally:
        resolve.released.set()
