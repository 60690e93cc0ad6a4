"""How long other tasks wait for a loop over records that never waits for anything itself: let_others_run(), Turns."""

from __future__ import annotations

import asyncio
import socket

from aiokc.client.aio.time_slice import Turns, let_others_run


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


async def test_a_task_that_calls_without_a_wait_gives_way_each_256_calls() -> None:
    turns, rounds = Turns(), 0

    def count() -> None:
        nonlocal rounds
        rounds += 1
        asyncio.get_running_loop().call_soon(count)

    count()
    calls = []
    for _ in range(5):
        begun = rounds
        calls.append(next(number for number in range(1, 300) if turns.is_over()))
        assert rounds == begun
        await let_others_run()
        assert rounds > begun
    assert max(calls) == 256


async def test_what_other_tasks_call_does_not_count() -> None:
    """A thousand tasks that send one record each are begun in one round of the loop, and none has to wait."""
    turns = Turns()

    async def call() -> bool:
        return turns.is_over()

    assert not any(await asyncio.gather(*(call() for _ in range(1_000))))
    assert not any(turns.is_over() for _ in range(127)), "nor do the calls of the round before"
