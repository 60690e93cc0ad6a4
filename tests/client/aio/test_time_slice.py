"""How long others have to wait for a loop over records that never waits itself."""

from __future__ import annotations

import asyncio
import socket

from aiokc.client.aio.time_slice import let_others_run


async def test_whoever_gives_way_lets_timers_and_sockets_run_that_are_due() -> None:
    """One round of the loop would find them behind the task that has just given way: after its next turn only."""
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
