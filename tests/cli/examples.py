"""Runs the examples that the help of a command shows, in virtual time, against a cluster that has what they name."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

from aiokc import Client, Consumer, TopicPartition
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop
from tests.cli.running import Result, Stream, aiokc, system_of

#: Examples that run until Ctrl-C: so many seconds are enough to see them at work.
FOREVER = ("tail",)
_SECONDS = 5.0
_LIMIT_S = 300.0


#: What the examples read: files of these names, on stdin and as arguments.
FILES = {
    "lines.txt": b"one\ntwo\n",
    "pairs.txt": b"a:1\nb:2\n",
    "deletes.txt": b"a:\nb:\n",
    "orders.jsonl": b'{"key":"a","value":"1"}\n{"key":"b","value":null}\n',
    "docs.jsonl": b'{"n": 1}\n[2]\n',
    "one.png": b"\x89PNG\r\n1",
    "two.png": b"\x89PNG\r\n2",
}


def run_example(line: str) -> Result:
    """Run ``line``, without what comes behind a pipe or a redirection of stdout. Ctrl-C has the exit code 130."""
    command, _, redirected = line.partition(" | ")[0].partition(" > ")[0].partition(" || ")[0].partition(" < ")
    words = shlex.split(command)
    assert words[0] == "aiokc"
    loop = VirtualLoop(Random(1))
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # for the files that they write
            for name, content in FILES.items():
                Path(name).write_bytes(content)
            stdin = FILES[redirected] if redirected else b""
            result = loop.run_until_complete(asyncio.wait_for(_run(words[1:], stdin, loop), _LIMIT_S))
        assert loop.errors == []
        return result
    finally:
        loop.end()


async def _run(words: list[str], stdin: bytes, loop: VirtualLoop) -> Result:
    async with Cluster(3, topics={"orders": 5, "events": 1, "old-orders": 1}, random=Random(2)) as cluster:
        now_ms, begun = 1_793_491_200_000, loop.time()
        for partition in range(5):
            value = b'{"status": "failed", "partition": %d}' % partition
            records = [NewRecord(key=b"key-%d" % n, value=value, timestamp=now_ms - 60_000 + n) for n in range(50)]
            cluster.append("orders", *records, partition=partition)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            everywhere = {TopicPartition("orders", partition): 5 for partition in range(5)}
            for group in ("billing", "billing-eu", "old-billing", "test-1"):
                await client.commit(group, everywhere | {TopicPartition("old-orders", 0): 0})
        system = system_of(
            environ={"AIOKC_BOOTSTRAP_SERVERS": cluster.bootstrap, "XDG_STATE_HOME": "state"}, stdin=stdin
        )
        system.now = lambda: now_ms / 1000 + loop.time() - begun  # type: ignore[method-assign]
        assert isinstance(system.stdout, Stream)
        assert isinstance(system.stderr, Stream)
        members = AsyncExitStack()
        if words[:2] == ["groups", "kick"]:
            await members.enter_async_context(_member(cluster))
        running = asyncio.ensure_future(aiokc(*words, system=system))
        async with asyncio.TaskGroup() as tasks:
            feeder = tasks.create_task(_feed(cluster, now_ms, loop))
            timeout = _SECONDS if words[0] in FOREVER or "--watch" in words else _LIMIT_S
            _, late = await asyncio.wait([running], timeout=timeout)
            running.cancel()
            feeder.cancel()
            await asyncio.wait([running])
        await members.aclose()
        if late:
            return Result(130, system.stdout.text, system.stderr.text)
        return running.result()


@asynccontextmanager
async def _member(cluster: Cluster) -> AsyncIterator[None]:
    """A static member of billing."""
    async with Consumer(
        "orders", bootstrap_servers=cluster.bootstrap, group_id="billing", group_instance_id="pod-3"
    ) as consumer:
        await consumer.wait_assigned()
        yield


async def _feed(cluster: Cluster, now_ms: int, loop: VirtualLoop) -> None:
    """Append a record in each tenth of a second."""
    begun = loop.time()
    while True:
        await asyncio.sleep(0.1)
        when = now_ms + int((loop.time() - begun) * 1000)
        cluster.append("orders", NewRecord(key=b"key", value=b'{"status": "live"}', timestamp=when))
