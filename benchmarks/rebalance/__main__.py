"""``python -m benchmarks.rebalance``: measures how long a group takes to settle, and how long partitions are silent."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from aiokc.testing.kafka import LocalKafka

from ..clients import CLIENTS
from ..environment import environment
from ..measuring.process import exit_on_signals
from ..report.readme import replace_section
from .members import BROKER, PROTOCOLS
from .settle import JOINS_AFTER, PARTITIONS, TOPIC, Unsettled, host, measure, worker
from .table import Key, Settled, render

SIZES: Final = (1, 10, 50)
WRITE_EVERY: Final = 0.25
README: Final = Path(__file__).resolve().parents[1] / "README.md"
BEGIN: Final = "<!-- rebalances: written by python -m benchmarks.rebalance --write-readme -->"
END: Final = "<!-- end of rebalances -->"


@contextmanager
def writing(bootstrap: str, topic: str, partitions: int) -> Iterator[threading.Thread]:
    """Keep writing a record to each partition, in this thread."""
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 4})

    def write_to(partition: int) -> None:
        while not stop.is_set():
            try:
                producer.produce(topic, b"a record", partition=partition)
                return
            except BufferError:  # the broker takes nothing just now
                producer.poll(WRITE_EVERY)

    def write() -> None:
        due = time.monotonic()
        while not stop.is_set():
            for partition in range(partitions):
                write_to(partition)
            producer.poll(0)
            due = max(due + WRITE_EVERY, time.monotonic())
            stop.wait(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()
        producer.flush(10)


def warm_up(bootstrap: str, clients: Sequence[str], members: int) -> None:
    """Let members of each client join once, without measuring.

    The broker loads and compiles its group code when the first group comes. Then fifty members took longer to join than
    the 3 s that the broker gives them, and so this group had one rebalance more than all groups after it.
    """
    for client in clients:
        measure(bootstrap, client, PROTOCOLS[client][0], members, 0.0, quiet=0.5, kill=False)


def _check(kafka: LocalKafka, writer: threading.Thread) -> None:
    """Raise Unsettled where a measurement would take its whole time: without a broker, or without new records."""
    if not all(node.running for node in kafka.nodes):
        raise Unsettled("the broker has ended before")
    if not writer.is_alive():
        raise Unsettled("no records are written any more")


def run(
    clients: Sequence[str], protocols: Sequence[str], sizes: Sequence[int], rounds: int
) -> tuple[dict[Key, list[Settled]], dict[Key, list[str]]]:
    """Measure everything. Each round measures all clients, and begins with another one.

    Return what was found, and what failed: one round in which a client fails fails its row.
    """
    rows = [(client, protocol) for client in clients for protocol in PROTOCOLS[client] if protocol in protocols]
    found: dict[Key, list[Settled]] = {}
    failures: dict[Key, list[str]] = {}
    with LocalKafka(fast=False, config=BROKER) as kafka:
        kafka.create_topic(TOPIC, PARTITIONS)
        with writing(kafka.bootstrap, TOPIC, PARTITIONS) as writer:
            warm_up(kafka.bootstrap, clients, max(sizes))
            for turn, size in itertools.product(range(rounds), sizes):
                joins_after = JOINS_AFTER[turn % len(JOINS_AFTER)]
                for client, protocol in rows[turn % len(rows) :] + rows[: turn % len(rows)]:
                    key, row = (size, protocol, client), f"{size:3} {protocol:11} {client:9}"
                    try:
                        _check(kafka, writer)
                        settled = measure(kafka.bootstrap, client, protocol, size, joins_after)
                    except Unsettled as error:
                        failures.setdefault(key, []).append(f"round {turn + 1}: {error}")
                        print(f"{row} failed: {error}\n{error.said}".rstrip(), flush=True)
                        continue
                    print(f"{row} {settled}", flush=True)
                    found.setdefault(key, []).append(settled)
    return {key: rounds for key, rounds in found.items() if key not in failures}, failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 if a measurement failed; README.md is then left as it was."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rebalance", description=__doc__)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--host", help=argparse.SUPPRESS)
    parser.add_argument("--clients", type=lambda text: text.split(","), default=list(PROTOCOLS))
    parser.add_argument("--protocols", type=lambda text: text.split(","), default=["eager", "cooperative", "consumer"])
    parser.add_argument("--members", type=lambda text: [int(one) for one in text.split(",")], default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write-readme", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args(arguments)
    if options.worker:
        worker(options.worker)
        return 0
    if options.host:
        host(options.host)
        return 0
    about = environment([CLIENTS[client] for client in options.clients], local_broker=True)
    found, failures = run(options.clients, options.protocols, options.members, options.rounds)
    about["load average after"] = " ".join(f"{load:.2f}" for load in os.getloadavg())
    about["rounds"] = str(options.rounds)
    section = "\n".join(f"- {name}: {value}" for name, value in about.items()) + f"\n\n{render(found, failures)}"
    print(f"\n{section}")
    if failures:
        print("benchmarks.rebalance: some measurements failed", file=sys.stderr)
        return 1
    if options.write_readme:
        README.write_text(replace_section(README.read_text(), section, BEGIN, END))
    return 0


if __name__ == "__main__":
    exit_on_signals()
    sys.exit(main())
