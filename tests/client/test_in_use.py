"""A client that is dropped without stop(): what it warns of, what it still does, and that nothing of it remains."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from weakref import ref

import pytest

from aiokc import Client, Consumer, RebalanceListener, TopicPartition
from aiokc.client.in_use import InUse
from aiokc.errors import NoBrokersAvailable
from aiokc.net.pool import Pool
from aiokc.testing import Cluster
from tests.net.scripted import dead_port
from tests.suite.child_process import run_to_end

pytestmark = [pytest.mark.timeout(60), pytest.mark.any_loop]

WITHIN = 20.0
T0 = TopicPartition("t", 0)
FORGOTTEN = r"a Consumer \(group_id='g', client_id='.*'\) was forgotten and is still running: use 'async with'"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster in a thread of its own: all tasks of the test's loop are the client's."""
    with Cluster(topics={"t": 1}).in_thread() as cluster:
        cluster.append("t", b"0", b"1")
        yield cluster


def watchdogs() -> int:
    return sum(thread.name == "aiokc watchdog" for thread in threading.enumerate())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not condition():  # noqa: ASYNC110 - threads and sockets tell of no event
            await asyncio.sleep(0.005)


def forget(held: list[Any]) -> None:
    """Drop the references in ``held``, and have the collector find what is only in cycles."""
    held.clear()
    gc.collect()


class LeftBehind:
    """The tasks, connections and threads that a client has while it runs. ``is_gone`` returns when they are gone."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        assert pool._connections

    async def is_gone(self) -> None:
        await until(lambda: len(asyncio.all_tasks()) == 1)
        await until(lambda: not self._pool._connections)
        await until(lambda: not watchdogs())


async def member(cluster: Cluster, **options: Any) -> tuple[Consumer, LeftBehind]:
    """Return one that has joined and read, so that there is a thread, too."""
    options = {"group_id": "g", "auto_offset_reset": "earliest", **options}
    consumer = Consumer("t", bootstrap_servers=cluster.bootstrap, **options)
    await consumer.start()
    assert len(await consumer.getmany()) == 1
    assert watchdogs() == 1
    return consumer, LeftBehind(consumer._runtime.cluster_client.pool)


async def test_it_warns_and_leaves_nothing_behind_no_member_no_task_no_socket_no_thread(cluster: Cluster) -> None:
    consumer, left = await member(cluster)
    assert len(cluster.members("g")) == 1
    assert len(asyncio.all_tasks()) > 5
    with pytest.warns(ResourceWarning, match=FORGOTTEN) as warned:
        del consumer  # at once: no collector has to find it
    assert "made at" not in str(warned[0].message)
    assert isinstance(warned[0].source, InUse)
    await left.is_gone()
    assert cluster.members("g") == []


async def test_it_commits_what_stop_would_commit(cluster: Cluster) -> None:
    consumer, left = await member(cluster, enable_auto_commit=True)
    cluster.append("t", b"2")
    await consumer.getmany()
    with pytest.warns(ResourceWarning):
        del consumer
    await left.is_gone()
    assert cluster.committed("g") == {T0: 2}, "what the last call returned may not be processed"


async def test_a_listener_that_refers_to_its_consumer_does_not_keep_it(cluster: Cluster) -> None:
    told: list[object] = []

    class Listener(RebalanceListener):
        consumer: Consumer

        async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            await self.consumer.commit({T0: 1})
            told.append(partitions)

    listener = Listener()
    consumer, left = await member(cluster, listener=listener)
    listener.consumer = consumer
    freed = ref(consumer)
    held = [consumer, listener]
    del consumer, listener
    with pytest.warns(ResourceWarning, match=FORGOTTEN):
        forget(held)
    await left.is_gone()
    assert told == [frozenset([T0])]
    assert cluster.committed("g") == {T0: 1}
    gc.collect()
    assert freed() is None


async def test_a_listener_lives_as_long_as_its_consumer(cluster: Cluster) -> None:
    told: list[object] = []

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            told.append(partitions)

    consumer, _ = await member(cluster, listener=Listener())
    gc.collect()
    assert told == [frozenset([T0])]
    consumer.subscribe(["t"], listener=Listener())
    consumer.enforce_rebalance()
    async with asyncio.timeout(WITHIN):
        while len(told) < 2:
            await consumer.getmany(timeout_ms=10)
    await consumer.stop()


@pytest.mark.parametrize("how", ["aiter", "anext"])
async def test_an_iterator_goes_on_without_its_consumer(cluster: Cluster, how: str) -> None:
    async def records() -> AsyncIterator[Any]:
        consumer, left = await member(cluster)
        lefts.append(left)
        return aiter(consumer)

    async def step() -> Any:
        consumer, left = await member(cluster)
        lefts.append(left)
        return anext(consumer)

    lefts: list[LeftBehind] = []
    waiting: Any = None
    if how == "aiter":
        iterator = await records()
        waiting = anext(iterator)
        del iterator
    else:
        waiting = await step()
    gc.collect()
    cluster.append("t", b"2")
    assert (await waiting).value == b"2"
    held = [waiting]
    del waiting
    with pytest.warns(ResourceWarning, match=FORGOTTEN):
        forget(held)
    await lefts[0].is_gone()


@pytest.mark.parametrize("read", [Client.read, Client.read_columns])
async def test_a_client_is_warned_of_too_but_not_while_it_reads(cluster: Cluster, read: Callable[..., Any]) -> None:
    async def reading() -> Any:
        client = Client(bootstrap_servers=cluster.bootstrap)
        await client.start()
        lefts.append(LeftBehind(client._cluster.pool))
        return read(client, {T0: (0, 3)})

    lefts: list[LeftBehind] = []
    parts = await reading()
    gc.collect()
    cluster.append("t", b"2")
    found: list[int] = []

    async def read_all() -> None:
        async with asyncio.timeout(WITHIN):
            found.extend([len(getattr(part, "records", part)) async for part in parts])

    with pytest.warns(ResourceWarning, match=r"a Client \(bootstrap_servers='.*'\) was forgotten"):
        await read_all()
    assert sum(found) == 3, "it came to its end first"
    await lefts[0].is_gone()


async def test_in_debug_mode_it_says_where_it_was_made(cluster: Cluster) -> None:
    asyncio.get_running_loop().set_debug(True)
    consumer, left = await member(cluster)
    with pytest.warns(ResourceWarning, match=FORGOTTEN) as warned:
        del consumer
    said = str(warned[0].message)
    assert "it was made at (most recent call last):\n" in said
    assert said.endswith('consumer = Consumer("t", bootstrap_servers=cluster.bootstrap, **options)')
    assert "test_in_debug_mode" in said
    await left.is_gone()
    client = Client(bootstrap_servers=cluster.bootstrap)
    await client.start()
    with pytest.warns(ResourceWarning, match=r"most recent call last[^$]*client = Client\(bootstrap_servers"):
        del client
    await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_it_ends_also_where_warnings_are_errors(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: unraisable.append(type(told.exc_value)))
    consumer, left = await member(cluster)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del consumer
    assert unraisable == [ResourceWarning]
    await left.is_gone()


async def test_another_thread_may_find_it_forgotten(cluster: Cluster) -> None:
    consumer, left = await member(cluster)
    held = [consumer]
    del consumer
    with pytest.warns(ResourceWarning, match=FORGOTTEN):
        await asyncio.to_thread(held.clear)
    await left.is_gone()


async def test_one_that_is_stopped_failed_or_was_never_started_is_not_warned_of(cluster: Cluster) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        consumer, left = await member(cluster)
        await consumer.stop()
        del consumer
        await left.is_gone()
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            await client.list_topics()
        del client
        Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g")
        Client(bootstrap_servers=cluster.bootstrap)
        failed = Consumer("t", bootstrap_servers=f"127.0.0.1:{dead_port()}")
        with pytest.raises(NoBrokersAvailable):
            await failed.start(timeout_ms=50)
        del failed
        gc.collect()
    assert warned == []


async def test_one_whose_background_was_cancelled_has_nothing_left(cluster: Cluster) -> None:
    """asyncio.run() cancels all tasks in the same way at its end."""
    consumer, left = await member(cluster)
    background = consumer._runtime.cluster_client.background._task
    assert background is not None
    background.cancel()
    await left.is_gone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del consumer, background


async def test_in_a_forked_child_it_is_the_parents(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent goes on with it: the child writes nothing to the socket that wakes its loop, and no member leaves."""
    consumer, left = await member(cluster)
    link = consumer._runtime.cluster_client
    with warnings.catch_warnings(), monkeypatch.context() as child:
        warnings.simplefilter("error")
        child.setattr(type(link), "is_forked", True)
        del consumer
    await asyncio.sleep(0)
    assert not link.stopped
    await link.stop()
    await left.is_gone()


_FORKS = """\
import asyncio, os, warnings
from aiokc import Consumer
from aiokc.testing import Cluster

async def forget(held):
    await held[0].start()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        held.clear()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.005)
    print([str(warning.message).split(" (")[0] for warning in told], flush=True)

with Cluster(topics={"t": 1}).in_thread() as cluster:
    held = [Consumer("t", bootstrap_servers=cluster.bootstrap)]
    child = os.fork()
    if child == 0:
        asyncio.run(forget(held))
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_one_that_was_made_before_a_fork_and_started_in_the_child_is_the_childs() -> None:
    done = run_to_end([sys.executable, "-c", _FORKS], seconds=30)
    assert (done.stdout, done.returncode) == ("['a Consumer']\n", 0), done.stderr


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # asyncio's own, of its transports
def test_with_a_loop_that_was_closed_under_it_the_thread_ends_at_least(cluster: Cluster) -> None:
    loop = asyncio.SelectorEventLoop()
    loop.set_exception_handler(lambda loop, context: None)  # its tasks are destroyed while they are pending
    slow = {
        "session_timeout_ms": 300_000,
        "heartbeat_interval_ms": 90_000,
    }  # else it would soon ask the loop, and notice
    held = [*loop.run_until_complete(member(cluster, **slow))]
    loop.close()
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "aiokc watchdog")
    with pytest.warns(ResourceWarning, match=FORGOTTEN):
        forget(held)  # the task of its last caller has it as its result
    thread.join(WITHIN)
    assert not thread.is_alive()


_PROGRAM = """\
import asyncio, contextlib
from aiokc import Consumer
from aiokc.testing import Cluster

async def hold(consumer):
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()

async def start():
    global kept
    consumer = kept = Consumer("t", bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest")
    await consumer.start()
    await consumer.getmany()
    {inside}

with Cluster(topics={{"t": 1}}).in_thread() as cluster:
    cluster.append("t", b"0")
    {run}
print("done")
"""


@pytest.mark.parametrize(
    ("inside", "run", "warned"),
    [
        ("pass", "asyncio.run(start())", 0),
        ("kept = None", "asyncio.run(start())", 1),
        ("kept = None; del consumer; await asyncio.sleep(0)", "asyncio.run(start())", 1),
        (
            "kept = asyncio.create_task(hold(consumer)); del consumer; await asyncio.sleep(0)",
            "asyncio.run(start())",
            1,
        ),
        ("kept.me = kept", "asyncio.run(start())", 0),
        ("pass", "loop = asyncio.new_event_loop(); loop.run_until_complete(start())", 0),
    ],
    ids=[
        "kept",
        "forgotten in the end",
        "forgotten before the end",
        "by a task that the end cancels",
        "in a cycle",
        "the loop is kept, too",
    ],
)
def test_when_the_interpreter_ends_there_is_no_noise(inside: str, run: str, warned: int) -> None:
    program = _PROGRAM.format(inside=inside, run=run)
    done = run_to_end([sys.executable, "-W", "default::ResourceWarning", "-c", program], seconds=50)
    assert (done.stdout, done.returncode) == ("done\n", 0)
    said = [line for line in done.stderr.splitlines() if "ResourceWarning: a Consumer" in line]
    assert len(said) == warned, done.stderr
    assert "Exception ignored" not in done.stderr
    if "loop =" not in run:  # asyncio has something to say of those itself
        assert "destroyed" not in done.stderr
        assert "Traceback" not in done.stderr
        assert "never" not in done.stderr
