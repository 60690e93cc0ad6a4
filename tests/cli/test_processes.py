"""The command as a process of its own: signals, closed pipes, what it imports. Few, for each start takes its time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process

from aiokc.records import NewRecord
from aiokc.testing import Cluster

COMMAND = (sys.executable, "-m", "aiokc")
_SECONDS = 40


async def started(*words: str, bootstrap: str = "") -> Process:
    environ = {**os.environ, "AIOKC_BOOTSTRAP_SERVERS": bootstrap or "localhost:1", "COLUMNS": "80"}
    return await asyncio.create_subprocess_exec(*COMMAND, *words, stdout=PIPE, stderr=PIPE, env=environ)


async def line_of(process: Process) -> bytes:
    assert process.stdout is not None
    return await asyncio.wait_for(process.stdout.readline(), _SECONDS)


async def ended(process: Process) -> tuple[int | None, bytes, bytes]:
    out, err = await asyncio.wait_for(process.communicate(), _SECONDS)
    return process.returncode, out, err


async def test_ctrl_c_ends_tail() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        cluster.append("events", b"first")
        tail = await started("tail", "events", bootstrap=cluster.bootstrap)
        assert await line_of(tail) == b"first\n"
        cluster.append("events", b"second")
        assert await line_of(tail) == b"second\n"
        tail.send_signal(signal.SIGINT)
        assert await ended(tail) == (130, b"", b"")


async def test_a_closed_pipe_ends_cat_silently() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        for _ in range(20):
            cluster.append("events", *[NewRecord(key=None, value=b"x" * 1000)] * 500)
        cat = await started("cat", "events", bootstrap=cluster.bootstrap)
        assert await line_of(cat) == b"x" * 1000 + b"\n"
        assert cat.stdout is not None
        cat.stdout._transport.close()  # type: ignore[attr-defined]
        code, _, err = await ended(cat)
        assert (code, err) == (0, b"")


async def test_fake_is_a_cluster_until_it_is_told_to_end() -> None:
    from aiokc import Client

    fake = await started("fake", "--topic", "events:6", "--brokers", "2")
    bootstrap = (await line_of(fake)).decode().strip()
    async with Client(bootstrap_servers=bootstrap) as client:
        assert len((await client.list_topics(["events"]))["events"].partitions) == 6
    fake.send_signal(signal.SIGTERM)
    code, out, err = await ended(fake)
    assert (code, out) == (0, b"")
    assert b"Traceback" not in err


def test_help_and_usage_errors_import_nothing_of_the_client() -> None:
    """So they come as soon as Python itself does (benchmarks/studies measure it)."""
    program = """
import sys
from aiokc.cli.main import main
for words in (["--help"], ["cat", "--help"], ["cat", "--nope"], ["nope"], ["config", "show", "--help"]):
    main(words)
print(*sorted(sys.modules), file=sys.__stderr__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=_SECONDS, check=True)
    imported = set(done.stderr.splitlines()[-1].split())
    slow = {"asyncio", "anyio", "ssl", "logging", "dataclasses", "inspect", "rich", "json", "cramjam", "tomllib"}
    assert imported & slow == set()
    ours = {name for name in imported if name.startswith("aiokc") and not name.startswith("aiokc.cli")}
    assert ours == {"aiokc"}
