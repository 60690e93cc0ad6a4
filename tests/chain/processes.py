"""The processes of the chain as the test sees them: it starts, kills and pauses them, and hears what they have done."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
#: What a process has begun takes it at most so long to end. A commit that waits for brokers may take max_block_ms, a
#: minute, and on a busy machine the process may have to start first.
_WITHIN: Final = 150.0

#: Called with each line that a process writes.
Hear = Callable[[dict[str, Any]], None]


class WorkerProcess:
    """``python -m tests.chain.worker`` in one role, or another program that says the same.

    ``is_ready`` is set when it says so (a copier does once it has its transactional id), or has ended before that.
    ``ended`` is the error that it ended by, if it did.
    """

    def __init__(self, role: str, given: dict[str, Any], hear: Hear, log: Path, *, program: Path | None = None) -> None:
        """``program`` does it in the place of ours: its only argument is ``given``."""
        self.name: str = given["name"]
        self.ended: str | None = None
        self.is_ready = asyncio.Event()
        self.is_paused = False
        ours = (sys.executable, "-m", "tests.chain.worker", role)
        self._command = (*((program,) if program else ours), json.dumps(given))
        self._hear, self._log = hear, log
        self._process: Process | None = None
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, cwd=_ROOT, stdin=PIPE, stdout=PIPE, stderr=log, limit=1 << 26
            )
        self._listening = asyncio.create_task(self._listen())
        self._listening.add_done_callback(lambda _: self.is_ready.set())

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def has_ended(self) -> bool:
        """Whether it does nothing any more, or is about to."""
        return self.ended is not None or not self.running

    async def kill(self) -> None:
        """SIGKILL: it sends no last request. Everything that it has written is heard on return."""
        if self.running:
            self._signal(signal.SIGKILL)
        await self._wait()

    async def stop(self) -> None:
        """Let it end by itself: it finishes what it has begun. Fails where it ends badly, or not at all."""
        self.resume()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._wait()
        assert self.ended is None, f"{self.name}: {self.ended}"
        assert self._process.returncode == 0, f"{self.name} ended with {self._process.returncode}: see {self._log}"

    async def ends(self) -> None:
        """Return when it has ended by itself."""
        await self._wait()

    async def _wait(self) -> None:
        assert self._process is not None
        assert self._listening is not None
        async with asyncio.timeout(_WITHIN):
            await self._process.wait()
            await self._listening

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and it does nothing."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused:
            self._signal(signal.SIGCONT)
            self.is_paused = False

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            assert self._process is not None
            self._process.send_signal(number)

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if not line.endswith(b"\n"):
                return  # it was killed while it wrote
            said = json.loads(line)
            if "ended" in said:
                self.ended = f"{said['ended']}: {said['why']}"
            elif "is_ready" in said:
                self.is_ready.set()
            else:
                self._hear(said)
