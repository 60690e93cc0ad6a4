"""Members in processes of their own: they start on a line of input, and report to the Board by lines of output.

A member that is to be killed lives so, and so do all members of Java, in one process.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from aiokc.testing.kafka.jars import java, libs

from .board import Board
from .members import MEMBERS, Seat

_JAVA: Final = Path(__file__).with_name("JavaMembers.java")
#: As much as the lines of some seconds need.
_LINE_BYTES: Final = 1 << 20


class Host:
    """A process that runs members of one group."""

    def __init__(self, process: Process, board: Board) -> None:
        self._process = process
        self._board = board
        self._relaying: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, client: str, seat: Seat) -> Host:
        """Start the process, and return once it is ready to start members."""
        process = await asyncio.create_subprocess_exec(
            *(_java_command(seat) if client == "java" else _python_command(client, seat)),
            stdin=PIPE,
            stdout=PIPE,
            limit=_LINE_BYTES,
        )
        assert process.stdout is not None
        async with asyncio.timeout(60):
            if await process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"{client}: the process for members ended with exit code {await process.wait()}")
        host = cls(process, seat.board)
        host._relaying = asyncio.create_task(host._relay())
        return host

    def start(self, number: int) -> None:
        """Let this member join."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"start %d\n" % number)

    def kill(self) -> None:
        """End the process with SIGKILL: no member leaves the group."""
        self._process.kill()

    async def _relay(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            what, number, partitions = line.decode().split()
            told = list(map(int, partitions.split(",")))
            {"took": self._board.took, "gave": self._board.gave, "heard": self._board.heard}[what](int(number), told)


class Reports(Board):
    """The Board of a process for members: it writes a line of each report."""

    def took(self, member: int, partitions: Iterable[int]) -> None:
        self._write("took", member, partitions)

    def gave(self, member: int, partitions: Iterable[int]) -> None:
        self._write("gave", member, partitions)

    def heard(self, member: int, partitions: Iterable[int]) -> None:
        self._write("heard", member, partitions)

    def _write(self, what: str, member: int, partitions: Iterable[int]) -> None:
        if told := ",".join(map(str, partitions)):
            print(what, member, told, flush=True)


async def host_members(client: str, seat: Mapping[str, str | int]) -> None:
    """Be such a process, for members of a client in Python: return when the input ends."""
    vacant = Seat(**seat, board=Reports(0))  # type: ignore[arg-type]
    lives = set[asyncio.Future[None]]()
    loop = asyncio.get_running_loop()
    print("ready", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        member = replace(vacant, number=int(line.removeprefix("start ")))
        lives.add(asyncio.ensure_future(MEMBERS[client](member)))


def _python_command(client: str, seat: Seat) -> list[str]:
    given = {field.name: getattr(seat, field.name) for field in fields(seat) if field.name != "board"}
    return [sys.executable, "-m", "benchmarks.rebalance", "--host", json.dumps({"client": client, "seat": given})]


def _java_command(seat: Seat) -> list[str]:
    options = {
        "bootstrap.servers": seat.bootstrap,
        "group.id": seat.group,
        "group.protocol": "consumer",
    }
    command = [java(), "-Xmx512m", "-cp", str(libs() / "*"), str(_JAVA), seat.topic]
    return command + [f"{name}={value}" for name, value in options.items()]
