"""Kafka's own command line tools in one JVM, which is also a member of two groups: ``KafkasTools``."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiokc.testing.kafka.jars import java_command
from tests.suite.peers.java_programs import QUICK_JVM

_PROGRAM: Final = Path(__file__).with_name("KafkasTools.java")
_SECONDS: Final = 180.0

CONSUMER_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
GET_OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"


class KafkasTools:
    """Runs one tool after the other."""

    def __init__(self, process: Process, bootstrap: str) -> None:
        self._process = process
        self._bootstrap = bootstrap

    async def run(self, tool: str, *arguments: str) -> str:
        """Return what the tool prints. Fails where it ends with another code than 0."""
        assert self._process.stdin is not None
        line = "\t".join([tool, "--bootstrap-server", self._bootstrap, *arguments])
        self._process.stdin.write(f"{line}\n".encode())
        said: list[str] = []
        while not (line := await self._line()).startswith("END "):
            said.append(line)
        assert line == "END 0", "\n".join([line, *said])
        return "\n".join(said).strip()

    async def table(self, tool: str, *arguments: str) -> list[dict[str, str]]:
        """Return the rows of the tables that the tool prints, by column. Cells must hold no blanks."""
        rows: list[dict[str, str]] = []
        header: list[str] = []
        for line in (await self.run(tool, *arguments)).splitlines():
            cells = line.replace("COORDINATOR (ID)", "COORDINATOR ID").split()
            if cells[:1] == ["GROUP"]:
                header = cells
            elif header and len(cells) == len(header):
                rows.append(dict(zip(header, cells, strict=True)))
        return rows

    async def _line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(_SECONDS):
            line = await self._process.stdout.readline()
        assert line, "the JVM has ended"
        return line.decode().rstrip("\n")

    async def ready(self) -> None:
        """Wait until its two consumers are members of their groups."""
        while await self._line() != "READY":
            pass


@asynccontextmanager
async def kafkas_tools(bootstrap: str, topic: str, group_id: str, share_group_id: str) -> AsyncIterator[KafkasTools]:
    """Start the JVM: a member of ``group_id`` (consumer protocol), and one of ``share_group_id``."""
    command = java_command(str(_PROGRAM), bootstrap, topic, group_id, share_group_id, jvm=QUICK_JVM)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=1 << 24)
    try:
        tools = KafkasTools(process, bootstrap)
        await tools.ready()
        yield tools
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
