"""A program that makes a consumer, forks twice, and starts the consumer in each child; it says "ok" in the end.

    python -m tests.client.forking_before_start consumer|auto

So does a server that imports its application before it forks its workers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from aiokc import Consumer
from aiokc.testing import Cluster

from .forking import SECONDS, as_child, fork


async def work(consumer: Consumer[bytes, bytes], told: TextIO) -> None:
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
def forked(consumer: Consumer[bytes, bytes]) -> Iterator[TextIO]:
    """Start the consumer in a child, and yield what that says."""
    heard, told = os.pipe()
    child = fork()
    if child == 0:
        os.close(heard)
        as_child(lambda: asyncio.run(work(consumer, os.fdopen(told, "w"))))
    os.close(told)
    try:
        with os.fdopen(heard) as said:
            yield said
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def main(protocol: Any) -> None:
    with Cluster(topics={"t": 2}).in_thread() as cluster:
        cluster.configure_group("g", consumer_heartbeat_interval_ms=100, consumer_assignment_interval_ms=0)
        consumer: Consumer[bytes, bytes] = Consumer(
            "t", group_id="g", group_protocol=protocol, bootstrap_servers=cluster.bootstrap
        )
        with forked(consumer) as one, forked(consumer) as other:
            assert one.readline() != other.readline(), "two members of one id"
            assert one.readline() != other.readline(), "two readers of one partition"
            assert len(cluster.members("g")) == 2
    print("ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
