"""One measurement: a group forms, one more member joins, and one is killed. It has a process of its own."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from math import nan
from typing import Any, Final

from ..measuring.process import ProcessFailed, last_line
from .board import Board
from .hosts import Host, host_members
from .members import MEMBERS, Seat
from .table import Settled

TOPIC: Final = "rebalance"
PARTITIONS: Final = 200
#: Longer than the heartbeat interval, so that a rebalance that is still to come shows within it.
QUIET: Final = 4.0
#: A member hears of a rebalance with its next heartbeat, of which there is one every 3 s. So the one that joins comes
#: at another moment between two of them in each round, and at the same ones for all clients: seconds after the others
#: were started, for from then on the broker counts the 3 or 6 s until it answers all of them at once, which is when
#: heartbeats begin. Counted from when the group is settled, a client that is slower in that would wait less.
JOINS_AFTER: Final = (14.5, 15.5, 16.5)
TIMEOUT: Final = 120.0


class Unsettled(Exception):
    """A measurement failed; str() is the reason, on one line. ``said`` is the end of what it wrote to stderr."""

    def __init__(self, reason: str, said: str = "") -> None:
        super().__init__(reason)
        self.said = said


class _Group:
    """The members of one group: started in this process, or in that of ``host``."""

    def __init__(self, seat: Seat, client: str, host: Host | None) -> None:
        self.board = seat.board
        self._seat = seat
        self._client = client
        self._host = host
        self._lives: list[asyncio.Future[None]] = []

    def start(self, number: int) -> None:
        """Let this member join."""
        if self._host is not None:
            self._host.start(number)
        else:
            self._lives.append(asyncio.ensure_future(MEMBERS[self._client](replace(self._seat, number=number))))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait. Raises what ended a member."""
        async with asyncio.timeout(TIMEOUT):
            while not is_so():
                for life in self._lives:
                    if life.done():
                        life.result()
                await asyncio.sleep(0.05)


async def settle(
    seat: Seat,
    client: str,
    members: int,
    joins_after: float = JOINS_AFTER[0],
    quiet: float = QUIET,
    kill: bool = True,
) -> Settled:
    """Form a group of so many members, let one more join, kill another one. The rest run until the process ends."""
    board = seat.board
    group = _Group(seat, client, await Host.open(client, seat) if client == "java" else None)
    began = time.perf_counter()
    for number in range(members):
        group.start(number)
    await group.until(lambda: board.is_steady(members, quiet) and board.all_heard())
    formed = board.changed_at - began
    board.new_window()
    await asyncio.sleep(max(quiet, began + joins_after - time.perf_counter()))
    calm = max(board.new_window())
    before = list(board.owners)
    began = time.perf_counter()
    group.start(members)
    await group.until(lambda: board.is_steady(members + 1, quiet) and board.first_heard(members) is not None)
    joined, first = board.changed_at - began, (board.first_heard(members) or nan) - began
    gaps = board.new_window()
    same = [p for p, (old, new) in enumerate(zip(before, board.owners, strict=True)) if old == new]
    longest = max((gaps[p] for p in same), default=nan)
    killed = await _kill(group, seat, client, members + 1, quiet) if kill else None
    return Settled(formed, joined, first, killed, calm, len(same), longest)


async def _kill(group: _Group, seat: Seat, client: str, members: int, quiet: float) -> float:
    """Let one more join, in a process of its own, and kill that: return the seconds until the others have all."""
    host = await Host.open(client, seat)
    host.start(members)
    await group.until(lambda: group.board.is_steady(members + 1, quiet))
    host.kill()
    began = time.perf_counter()
    await group.until(lambda: group.board.is_steady(members, quiet))
    return group.board.changed_at - began


def measure(
    bootstrap: str,
    client: str,
    protocol: str,
    members: int,
    joins_after: float,
    quiet: float = QUIET,
    *,
    kill: bool = True,
) -> Settled:
    """Run one measurement in a process of its own. Raises Unsettled if it fails, also if it does not end."""
    group = f"rebalance-{uuid.uuid4().hex[:8]}"
    seat = {"number": 0, "bootstrap": bootstrap, "topic": TOPIC, "group": group, "protocol": protocol}
    how = {"client": client, "members": members, "joins_after": joins_after, "quiet": quiet, "kill": kill}
    job = json.dumps({"seat": seat, "settle": how})
    try:
        return Settled(**json.loads(last_line("benchmarks.rebalance", "--worker", job, timeout=4 * TIMEOUT)))
    except ProcessFailed as error:
        raise Unsettled(str(error), error.said) from None
    except (ValueError, TypeError):
        raise Unsettled("its figures are not to be read") from None


def worker(given: str) -> None:
    """Measure once, print the result, and exit without leaving the group: it has no other members."""
    job = json.loads(given)
    gc.freeze()  # all clients are imported here; a full collection of their objects would disturb the measurement
    asyncio.run(_settle_and_exit(Seat(**job["seat"], board=Board(PARTITIONS)), **job["settle"]))


async def _settle_and_exit(seat: Seat, **given: Any) -> None:
    print(json.dumps(asdict(await settle(seat, **given))), flush=True)
    os._exit(0)


def host(given: str) -> None:
    """Be a process for members until its input ends, and exit without leaving the group."""
    asyncio.run(_host_and_exit(**json.loads(given)))


async def _host_and_exit(client: str, seat: dict[str, Any]) -> None:
    await host_members(client, seat)
    os._exit(0)
