"""A member of a group in a process of its own, and how a test starts it, reads its output, and kills it.

python -m tests.client.member_process BOOTSTRAP GROUP TOPIC '{"group_instance_id": "i"}' reads, commits after each
batch, and writes what it is assigned and what it has read to its output, a line of JSON each.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiokc import Consumer
from aiokc.client.aio.signal import Signal

_ROOT = Path(__file__).parents[2]
_WITHIN = 90.0


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def _live(bootstrap: str, group: str, topic: str, options: dict[str, Any]) -> None:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300, **options}
    async with Consumer(topic, bootstrap_servers=bootstrap, group_id=group, **settings) as consumer:
        membership = consumer._runtime.membership
        assert membership is not None
        said: object = None
        while True:
            batch = await consumer.getmany(timeout_ms=100)
            now = sorted(tp.partition for tp in consumer.assignment()), membership.generation
            if now != said:
                _say(assigned=now[0], generation=now[1])
                said = now
            for tp, records in batch.items():
                _say(partition=tp.partition, offsets=[record.offset for record in records])
            if batch:
                await consumer.commit()


class MemberProcess:
    """What a member has written so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.assigned: list[int] = []
        self.generation = -1
        self.read: set[tuple[int, int]] = set()
        self.moved = Signal()
        self._process = process

    async def listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            if "assigned" in said:
                self.assigned, self.generation = said["assigned"], said["generation"]
            else:
                self.read |= {(said["partition"], offset) for offset in said["offsets"]}
            self.moved.notify()

    async def kill(self) -> None:
        """SIGKILL: the member sends no last request."""
        if self._process.returncode is None:
            self._process.kill()
        async with asyncio.timeout(_WITHIN):
            await self._process.wait()


@asynccontextmanager
async def member_process(bootstrap: str, group: str, topic: str, **options: Any) -> AsyncIterator[MemberProcess]:
    """A member that lives until it is killed, at the end of the block at the latest."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.client.member_process", bootstrap, group, topic, json.dumps(options)),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    member = MemberProcess(process)
    listening = asyncio.get_running_loop().create_task(member.listen())
    try:
        yield member
    finally:
        await member.kill()
        await listening


async def until(members: Iterable[MemberProcess], condition: Callable[[], bool]) -> None:
    """Return when ``condition`` holds; it is checked after each line of one of these members."""
    woken = Signal()
    for member in members:
        member.moved.followed_by(woken)
    async with asyncio.timeout(_WITHIN):
        while not condition():
            await woken.wait()
    for member in members:
        member.moved.not_followed_by(woken)


if __name__ == "__main__":
    asyncio.run(_live(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
