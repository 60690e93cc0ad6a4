"""A program that forks while a consumer, a producer and a client run; it says "child ok", and then "parent ok".

    python -m tests.client.forking inside|between asyncio|uvloop
    python -m tests.client.forking unstarted consumer|auto

The child goes on with the event loop of its parent, as a program does that forks between two calls of
run_until_complete(), or (inside) with the coroutine that was running. So it has the clients' background tasks, too, and
copies of all sockets. The cluster has a thread of its own, which the child has not.

Or (unstarted) the program forks twice before it starts its consumer, as a server does that imports its application
first, and starts it in both children; then it says "parent ok".
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

import pytest

from aiokc import Client, Consumer, Producer, TopicPartition
from aiokc.client.aio import time_slice
from aiokc.errors import UsageError
from aiokc.testing import Cluster
from aiokc.wire.messages.discovery import ApiVersionsRequest

ZERO = TopicPartition("t", 0)
SECONDS = 20.0
# Several heartbeats would be due in this time, and the metadata.
A_WHILE = 0.5


@dataclass
class Clients:
    """What the parent has started, and has in use."""

    consumer: Consumer[Any, Any]
    producer: Producer[Any, Any]
    client: Client
    reader: Consumer[Any, Any]  # of a topic of its own

    @classmethod
    async def started(cls, bootstrap: str) -> Clients:
        clients = cls(
            Consumer(
                "t",
                group_id="g",
                bootstrap_servers=bootstrap,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=100,
                metadata_max_age_ms=100,
            ),
            Producer(bootstrap_servers=bootstrap, metadata_max_age_ms=100, linger_ms=60_000),
            Client(bootstrap_servers=bootstrap),
            Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest"),
        )
        clients.reader.assign([TopicPartition("u", 0)])
        for one in clients.all:
            await one.start()
        await clients.producer.send("t", b"first", partition=0)
        await clients.producer.flush()
        assert await clients.read(1) == [b"first"]
        assert await clients.client.list_offsets({ZERO: -2})
        # Its batch stays open: the next record would be put behind it by the short way in C.
        await clients.producer.send("t", b"second", partition=0)
        return clients

    @property
    def all(self) -> list[Consumer[Any, Any] | Producer[Any, Any] | Client]:
        return [self.consumer, self.producer, self.client, self.reader]

    async def read(self, count: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        async with asyncio.timeout(SECONDS):
            while len(values) < count:
                values += [record.value for part in (await self.consumer.getmany()).values() for record in part]
        return values

    @property
    def calls(self) -> list[Callable[[], Awaitable[Any]]]:
        consumer, producer, client = self.consumer, self.producer, self.client

        async def send_soon() -> None:
            producer.send_soon("t", b"of the child", partition=0)

        return [
            self.reader.getone,
            self.reader.__anext__,
            consumer.getmany,
            consumer.getmany_columns,
            consumer.getone,
            consumer.__anext__,
            consumer.commit,
            lambda: consumer.end_offsets([ZERO]),
            consumer.stop,
            lambda: producer.send("t", b"of the child", partition=0),
            lambda: producer.send_many("t", [b"of the child"]),
            send_soon,
            producer.flush,
            producer.stop,
            lambda: client.list_topics(),
            lambda: client.describe_cluster(),
            client.stop,
        ]

    async def refuse(self, error_type: type[RuntimeError], text: str) -> None:
        for call in self.calls:
            with pytest.raises(error_type, match=text):
                await call()

    async def stop(self) -> None:
        for one in self.all:
            await one.stop()


def fork() -> int:
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 and newer: there are threads
        return os.fork()


def as_child(run: Callable[[], None]) -> None:
    """Run the child's part, and end the process without the parent's part."""
    code = 1
    try:
        run()
        print("child ok", flush=True)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def fork_between(loop: asyncio.AbstractEventLoop, clients: Clients) -> int:
    child = fork()
    if child == 0:

        def run() -> None:
            loop.run_until_complete(clients.refuse(UsageError, "was forked"))
            loop.run_until_complete(asyncio.sleep(A_WHILE))  # the background goes on, too

        as_child(run)
    return child


def step(coroutine: Any) -> None:
    """Run what does not wait."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


async def fork_inside(clients: Clients) -> int:
    """Fork in the time slice of a poll, with records that the next steps hand out without one."""
    time_slice.SLICE_SECONDS = SECONDS
    assert [(await clients.reader.getone()).value for _ in range(2)] == [b"0", b"1"]
    child = fork()
    if child == 0:
        # Python itself says to the child that no loop runs.
        as_child(lambda: step(clients.refuse(RuntimeError, "was forked|no running event loop")))
    assert (await clients.reader.getone()).value == b"2"
    return child


def main(where: str, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with Cluster(brokers=2, topics={"t": 1, "u": 1}).in_thread() as cluster:
        cluster.append("u", b"0", b"1", b"2", b"3")
        loop = new_loop()
        clients = loop.run_until_complete(Clients.started(cluster.bootstrap))
        connections = cluster.intercept(ApiVersionsRequest, lambda exchange: None)
        child = loop.run_until_complete(fork_inside(clients)) if where == "inside" else fork_between(loop, clients)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert connections.hits == 0, "the child has connected"
        loop.run_until_complete(go_on(clients))
        assert connections.hits == 0, "a connection of the parent was lost"
        assert [record.value for record in cluster.records("t", 0)] == [b"first", b"second", b"third"]
        connections.cancel()
        loop.run_until_complete(clients.stop())
        loop.close()
    print("parent ok", flush=True)


async def go_on(clients: Clients) -> None:
    async with asyncio.timeout(SECONDS):
        await clients.producer.send("t", b"third", partition=0)
        await clients.producer.flush()
        assert await clients.read(2) == [b"second", b"third"]
        await clients.consumer.commit()
        assert await clients.client.list_offsets({ZERO: -1})
        assert clients.consumer.metrics().rebalances.count == 1


async def work_alone(consumer: Consumer[Any, Any], told: TextIO) -> None:
    """Say the member's id, then the only partition that it reads. Poll until the parent ends the process."""
    async with asyncio.timeout(SECONDS), consumer:
        await consumer.wait_assigned()
        print(consumer.group_metadata().member_id, file=told, flush=True)
        while len(consumer.assignment()) != 1:
            await consumer.getmany(timeout_ms=10)
        print(*consumer.assignment(), file=told, flush=True)
        while True:
            await consumer.getmany(timeout_ms=10)


@contextmanager
def started_in_child(consumer: Consumer[Any, Any]) -> Iterator[TextIO]:
    """Start the consumer in a child, and yield what that says."""
    heard, told = os.pipe()
    child = fork()
    if child == 0:
        os.close(heard)
        as_child(lambda: asyncio.run(work_alone(consumer, os.fdopen(told, "w"))))
    os.close(told)
    try:
        with os.fdopen(heard) as said:
            yield said
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def start_in_children(protocol: Any) -> None:
    """One consumer that was not started is started in two children."""
    with Cluster(topics={"t": 2}).in_thread() as cluster:
        cluster.configure_group("g", consumer_heartbeat_interval_ms=100, consumer_assignment_interval_ms=0)
        consumer: Consumer[Any, Any] = Consumer(
            "t", group_id="g", group_protocol=protocol, bootstrap_servers=cluster.bootstrap
        )
        with started_in_child(consumer) as one, started_in_child(consumer) as other:
            assert one.readline() != other.readline(), "two members of one id"
            assert one.readline() != other.readline(), "two readers of one partition"
            assert len(cluster.members("g")) == 2
    print("parent ok", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "unstarted":
        start_in_children(sys.argv[2])
    elif sys.argv[2] == "uvloop":
        import uvloop

        main(sys.argv[1], uvloop.new_event_loop)
    else:
        main(sys.argv[1], asyncio.SelectorEventLoop)
