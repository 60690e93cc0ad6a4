"""Kafka's own VerifiableProducer and VerifiableConsumer as processes: they say in JSON what they have done."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiokc.testing.kafka.jars import java_command
from tests.suite.peers.java_programs import QUICK_JVM

_TOOLS: Final = "org.apache.kafka.tools."
_WITHIN: Final = 60.0


class VerifiableTool:
    """One of the two. ``events`` is what it has said so far, in order."""

    def __init__(self, process: Process, log: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._process, self._log = process, log
        self._news = asyncio.Condition()

    async def hear(self) -> None:
        """Take in what it says, until it has ended."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            async with self._news:
                self.events.append(json.loads(line))
                self._news.notify_all()

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return its events of this name."""
        return [event for event in self.events if event["name"] == name]

    async def until(self, so_far: Callable[[], bool]) -> None:
        """Return once ``so_far()`` is true, which is asked whenever the tool has said something."""
        try:
            async with asyncio.timeout(_WITHIN), self._news:
                await self._news.wait_for(so_far)
        except TimeoutError:
            raise AssertionError(f"the last it said: {self.events[-3:]}\n{self._log.read_text()[-2_000:]}") from None

    def stop(self) -> None:
        """Let it finish what it does, leave its group, and say "shutdown_complete"."""
        self._process.send_signal(signal.SIGTERM)


@asynccontextmanager
async def verifiable(tool: str, log: Path, **options: object) -> AsyncIterator[VerifiableTool]:
    """Run VerifiableProducer or VerifiableConsumer with these options; it does not outlive the block."""
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value)) if word]
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *java_command(_TOOLS + tool, *words, jvm=QUICK_JVM),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=stderr,
            limit=1 << 24,
        )
    running = VerifiableTool(process, log)
    hearing = asyncio.create_task(running.hear())
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await hearing
