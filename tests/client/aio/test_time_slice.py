"""let_others_run(): how long other tasks wait for a loop over records that never waits for anything itself."""

from __future__ import annotations

import asyncio
import socket

from aiokc.client.aio.time_slice import let_others_run


async def test_giving_way_lets_due_timers_and_sockets_run() -> None:
    """After one round of the loop they would still be behind the task that has just given way."""
    loop = asyncio.get_running_loop()
    seen: list[str] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        loop.add_reader(ours, lambda: seen.append(ours.recv(1).decode()))
        theirs.send(b"s")
        loop.call_at(loop.time() - 1, seen.append, "t")

        await let_others_run()

        loop.remove_reader(ours)
    assert sorted(seen) == ["s", "t"]
