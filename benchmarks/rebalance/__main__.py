"""``python -m benchmarks.rebalance``: measures how long a group takes to settle, and how long partitions are silent."""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from aiokc.testing.kafka import LocalKafka

from ..clients import CLIENTS
from ..environment import environment
from ..report.readme import replace_section
from .board import Board
from .members import MEMBERS, PROTOCOLS, Seat
from .table import Key, Settled, render

TOPIC: Final = "rebalance"
PARTITIONS: Final = 200
SIZES: Final = (1, 10, 50)
#: The broker's own default; the tests' brokers have none.
INITIAL_DELAY_MS: Final = 3_000
WRITE_EVERY: Final = 0.25
#: Longer than the heartbeat interval, so that a rebalance that is still to come shows within it.
QUIET: Final = 4.0
#: A member hears of a rebalance with its next heartbeat, of which there is one every 3 s. So the one that joins comes
#: at another moment between two of them in each round, and at the same ones for all clients: seconds after the others
#: were started, for from then on the broker counts the 3 or 6 s until it answers all of them at once, which is when
#: heartbeats begin. Counted from when the group is settled, a client that is slower in that would wait less.
JOINS_AFTER: Final = (14.5, 15.5, 16.5)
TIMEOUT: Final = 120.0
README: Final = Path(__file__).resolve().parents[1] / "README.md"
BEGIN: Final = "<!-- rebalances: written by python -m benchmarks.rebalance --write-readme -->"
END: Final = "<!-- end of rebalances -->"


async def settle(
    seat: Seat, client: str, members: int, joins_after: float = JOINS_AFTER[0], quiet: float = QUIET
) -> Settled:
    """Form a group of so many members, wait, then let one more join. The members run until the process ends."""
    board = seat.board
    lives: list[asyncio.Future[None]] = []

    def start(number: int) -> None:
        member = Seat(number, seat.bootstrap, seat.topic, seat.group, seat.protocol, board)
        lives.append(asyncio.ensure_future(MEMBERS[client](member)))

    async def steady(count: int) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not board.is_steady(count, quiet) or not board.all_heard():
                for life in lives:
                    if life.done():
                        life.result()
                await asyncio.sleep(0.05)

    began = time.perf_counter()
    for number in range(members):
        start(number)
    await steady(members)
    formed = board.changed_at - began
    board.new_window()
    await asyncio.sleep(max(quiet, began + joins_after - time.perf_counter()))
    calm = max(board.new_window())
    before = list(board.owners)
    began = time.perf_counter()
    start(members)
    await steady(members + 1)
    gaps = board.new_window()
    same = [p for p, (old, new) in enumerate(zip(before, board.owners, strict=True)) if old == new]
    longest = max((gaps[p] for p in same), default=float("nan"))
    return Settled(formed, board.changed_at - began, calm, len(same), longest)


def worker(given: str) -> None:
    """Measure once, print the result, and exit without leaving the group: it has no other members."""
    job = json.loads(given)
    gc.freeze()  # all clients are imported here; a full collection of their objects would disturb the measurement
    asyncio.run(_settle_and_exit(Seat(number=0, board=Board(PARTITIONS), **job["seat"]), **job["settle"]))


async def _settle_and_exit(seat: Seat, **given: Any) -> None:
    print(json.dumps(asdict(await settle(seat, **given))), flush=True)
    os._exit(0)


@contextmanager
def writing(bootstrap: str, topic: str, partitions: int) -> Iterator[None]:
    """Keep writing a record to each partition."""
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 4})

    def write() -> None:
        due = time.monotonic()
        while not stop.is_set():
            for partition in range(partitions):
                producer.produce(topic, b"a record", partition=partition)
            producer.poll(0)
            due += WRITE_EVERY
            stop.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.flush(10)


def measure(
    bootstrap: str, client: str, protocol: str, members: int, joins_after: float, quiet: float = QUIET
) -> Settled:
    """Run one measurement in a process of its own. Raises RuntimeError if it fails."""
    group = f"rebalance-{uuid.uuid4().hex[:8]}"
    seat = {"bootstrap": bootstrap, "topic": TOPIC, "group": group, "protocol": protocol}
    job = json.dumps(
        {
            "seat": seat,
            "settle": {"client": client, "members": members, "joins_after": joins_after, "quiet": quiet},
        }
    )
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.rebalance", "--worker", job],
        cwd=README.parent.parent,
        capture_output=True,
        text=True,
        timeout=3 * TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{client}, {protocol}, {members}: {done.stderr[-2000:]}")
    return Settled(**json.loads(done.stdout.splitlines()[-1]))


def warm_up(bootstrap: str, clients: Sequence[str], members: int) -> None:
    """Let members of each client join once, without measuring.

    The broker loads and compiles its group code when the first group comes. Then fifty members took longer to join than
    the 3 s that the broker gives them, and so this group had one rebalance more than all groups after it.
    """
    for client in clients:
        measure(bootstrap, client, PROTOCOLS[client][0], members, 0.0, quiet=0.5)


def run(clients: Sequence[str], sizes: Sequence[int], rounds: int) -> dict[Key, list[Settled]]:
    """Measure everything. Each round measures all clients, and begins with another one."""
    rows = [(client, protocol) for client in clients for protocol in PROTOCOLS[client]]
    found: dict[Key, list[Settled]] = {}
    config = {"group.initial.rebalance.delay.ms": str(INITIAL_DELAY_MS)}
    with LocalKafka(fast=False, config=config) as kafka:
        kafka.create_topic(TOPIC, PARTITIONS)
        with writing(kafka.bootstrap, TOPIC, PARTITIONS):
            warm_up(kafka.bootstrap, clients, max(sizes))
            for turn, size in itertools.product(range(rounds), sizes):
                joins_after = JOINS_AFTER[turn % len(JOINS_AFTER)]
                for client, protocol in rows[turn % len(rows) :] + rows[: turn % len(rows)]:
                    settled = measure(kafka.bootstrap, client, protocol, size, joins_after)
                    print(f"{size:3} {protocol:11} {client:9} {settled}", flush=True)
                    found.setdefault((size, protocol, client), []).append(settled)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rebalance", description=__doc__)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--clients", type=lambda text: text.split(","), default=list(MEMBERS))
    parser.add_argument("--members", type=lambda text: [int(one) for one in text.split(",")], default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write-readme", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args(arguments)
    if options.worker:
        worker(options.worker)
        return
    about = environment([CLIENTS[client] for client in options.clients], local_broker=True)
    found = run(options.clients, options.members, options.rounds)
    about["load average after"] = " ".join(f"{load:.2f}" for load in os.getloadavg())
    about["rounds"] = str(options.rounds)
    section = "\n".join(f"- {name}: {value}" for name, value in about.items()) + f"\n\n{render(found)}"
    print(f"\n{section}")
    if options.write_readme:
        README.write_text(replace_section(README.read_text(), section, BEGIN, END))


if __name__ == "__main__":
    main()
