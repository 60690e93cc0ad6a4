"""Runs the commands about groups beside a cluster, with a folder for what they save; reads what they print."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokc import Client, Consumer, TopicPartition
from aiokc.testing import Cluster
from tests.cli.running import Result, aiokc
from tests.client.virtually import virtually

TOPICS = {"orders": 3, "returns": 1}


def filled(cluster: Cluster, topic: str, *counts: int) -> None:
    """Append so many records to each partition."""
    for partition, count in enumerate(counts):
        if count:
            cluster.append(topic, *[b"%d" % number for number in range(count)], partition=partition)


async def commit(cluster: Cluster, group: str, topic: str, *offsets: int | None) -> None:
    """Commit an offset for each partition; None leaves one out."""
    async with Client(bootstrap_servers=cluster.bootstrap) as client:
        committed = {TopicPartition(topic, at): offset for at, offset in enumerate(offsets) if offset is not None}
        await client.commit(group, committed)


class Commands:
    """Runs commands on the cluster of these addresses; what they save goes to ``folder``."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder = bootstrap, folder

    async def run(self, *words: str, columns: int | None = None) -> Result:
        """Run ``aiokc`` with these words."""
        environ = {"XDG_STATE_HOME": str(self.folder), "TZ": "UTC"}
        return await aiokc(*words, bootstrap=self.bootstrap, columns=columns, environ=environ)

    async def rows(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """Run ``aiokc`` with these words and --json; return its rows."""
        result = await self.run(*words, "--json")
        assert result.code == code, result
        return [json.loads(line) for line in result.out.splitlines()]

    async def run_line(self, line: str) -> list[Result]:
        """Run what a command has told to run: lines that a shell would take as they are."""
        results = []
        for part in line.split(" && "):
            program, *words = shlex.split(part)
            assert program == "aiokc"
            results.append(await self.run(*words))
        return results

    @property
    def saved(self) -> list[Path]:
        """The files that were saved."""
        return sorted((self.folder / "aiokc").glob("*")) if (self.folder / "aiokc").exists() else []


class Shell(Commands):
    """Runs commands beside a cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster.bootstrap, folder)
        self.cluster = cluster


def stocked(cluster: Cluster, folder: Path) -> Shell:
    """Return a shell beside the cluster, with 10, 20 and 0 records in orders, and 5 in returns."""
    filled(cluster, "orders", 10, 20, 0)
    filled(cluster, "returns", 5)
    return Shell(cluster, folder)


def in_virtual_time(folder: Path, story: Callable[[Shell], Awaitable[None]]) -> None:
    """Run ``story``, in which a command waits for all of its --timeout, with such a shell as the fixture ``shell``."""

    async def happen(cluster: Cluster) -> None:
        await story(stocked(cluster, folder))

    virtually(happen, brokers=2, topics=TOPICS)


@asynccontextmanager
async def member(shell: Shell, group: str = "billing", instance: str | None = "pod-1") -> AsyncIterator[Consumer]:
    """A member of the group, which owns all of orders."""
    async with Consumer(
        "orders",
        bootstrap_servers=shell.cluster.bootstrap,
        group_id=group,
        group_instance_id=instance,
        client_id="app",
        enable_auto_commit=False,
    ) as consumer:
        await consumer.wait_assigned()
        yield consumer


def told(result: Result, what: str) -> str:
    """Return the line to run that follows these words on stderr, in the same line or the next one."""
    lines = result.err.splitlines()
    at = next(at for at, line in enumerate(lines) if what in line)
    return lines[at].partition(what)[2].strip() or lines[at + 1]


def csv_rows(text: str) -> list[dict[str, str]]:
    """Read CSV with a heading."""
    return list(csv.DictReader(io.StringIO(text)))
