"""Memory of a producer whose broker has stopped: how far it goes beyond buffer_memory while the application sends on.

It starts a broker of its own, which it stops (SIGSTOP) and lets go on again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from aiokc.testing.kafka import LocalKafka, LocalKafkaError

from ..foreign import JAVA, missing
from ..load import LoadFailed, create_topic
from ..measuring.stopwatch import peak_rss
from ..producers.job import BUFFER_MEMORY, ProduceJob
from ..producers.options import aiokafka_producer, aiokc_producer, librdkafka_settings
from . import NOT_MEASURED, StudyFailed, measured

TITLE: Final = (
    "A broker that stops (SIGSTOP) while an application sends as much as it may for six seconds: what was taken, and "
    "by how much the memory of the process grew, beside buffer_memory = 32 MiB (aiokafka has no such limit)"
)

CLIENTS: Final = {
    "send_many": "aiokc send_many",
    "send": "aiokc send",
    "aiokafka": "aiokafka send",
    "confluent": "confluent produce",
}
_SIZES: Final = (100, 1_000)
_SECONDS: Final = 6.0
_WARM_UP: Final = 2_000
_PARTITIONS: Final = 6
_AT_ONCE: Final = 1_000
#: As it is anyway: where a broker is given a setting, the one of AIOKC_BOOTSTRAP, which is not ours to stop, takes no
#: place of it.
_OF_OUR_OWN: Final = {"auto.create.topics.enable": "false"}


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    """Measure each client once for each size: memory hardly differs from round to round."""
    reason = missing(JAVA)
    if not Path("/proc").exists():
        reason = "how much memory a process has now is read from /proc, which this system has not"
    if reason:
        return [{"client": "all", "memory MB": f"{NOT_MEASURED}{reason}"}]
    try:
        with LocalKafka(fast=False, config=_OF_OUR_OWN) as kafka:
            return [_row(kafka, client, label, size) for size in _SIZES for client, label in CLIENTS.items()]
    except LocalKafkaError as error:
        return [{"client": "all", "memory MB": f"failed: {error}"}]


def _row(kafka: LocalKafka, client: str, label: str, size: int) -> dict[str, str]:
    topic, node = f"benchmark-stopped-{time.time_ns()}", kafka.nodes[0]
    job = ProduceJob(client, kafka.bootstrap, topic, _PARTITIONS, _WARM_UP, size, "none")
    row = {"client": label, "values": f"{size:,} B"}
    try:
        create_topic(kafka.bootstrap, topic, _PARTITIONS)
        found = measured("stopped_broker", job=asdict(job), broker=node.pid)
    except (LoadFailed, StudyFailed) as error:
        return row | {"records taken": f"failed: {error}", "values MB": "-", "memory MB": "-", "vs buffer_memory": "-"}
    finally:
        node.resume()
    return row | {
        "records taken": f"{found['taken']:,.0f}",
        "values MB": f"{found['taken'] * size / 1e6:.1f}",
        "memory MB": f"{found['grown'] / 1e6:.1f}",
        "vs buffer_memory": f"{found['grown'] / BUFFER_MEMORY:.2f}x",
    }


class Stopped:
    """The broker's process group is stopped in this block. ``figures`` are those of what happened in it."""

    def __init__(self, broker: int) -> None:
        self.taken = 0
        self._broker = broker
        self._grown = 0

    def __enter__(self) -> Stopped:
        self._before = _rss()
        os.killpg(self._broker, signal.SIGSTOP)
        self._until = time.monotonic() + _SECONDS
        return self

    def __exit__(self, *error: object) -> None:
        self._grown = peak_rss() - self._before
        os.killpg(self._broker, signal.SIGCONT)

    @property
    def left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    @property
    def figures(self) -> dict[str, float]:
        return {"taken": self.taken, "grown": self._grown}


def _rss() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


async def _aiokc(job: ProduceJob, stopped: Stopped) -> None:
    values = cycle(job.distinct())
    async with aiokc_producer(job) as producer:
        await producer.send_many(job.topic, list(islice(values, _WARM_UP)))
        await producer.flush()
        with stopped:
            try:
                async with asyncio.timeout(stopped.left):
                    while True:
                        if job.client == "send":
                            await producer.send(job.topic, next(values))
                            stopped.taken += 1
                        else:
                            await producer.send_many(job.topic, list(islice(values, _AT_ONCE)))
                            stopped.taken += _AT_ONCE
            except TimeoutError:
                pass
        await producer.flush()


async def _aiokafka(job: ProduceJob, stopped: Stopped) -> None:
    values = cycle(job.distinct())
    async with aiokafka_producer(job) as producer:
        for value in islice(values, _WARM_UP):
            await producer.send(job.topic, value)
        await producer.flush()
        with stopped:
            try:
                async with asyncio.timeout(stopped.left):
                    while True:
                        await producer.send(job.topic, next(values))
                        stopped.taken += 1
            except TimeoutError:
                pass
        await producer.flush()


def _confluent(job: ProduceJob, stopped: Stopped) -> None:
    from confluent_kafka import Producer

    values = cycle(job.distinct())
    producer = Producer(librdkafka_settings(job))
    for value in islice(values, _WARM_UP):
        producer.produce(job.topic, value)
    producer.flush(30)
    with stopped:
        while stopped.left:
            try:
                producer.produce(job.topic, next(values))
                stopped.taken += 1
            except BufferError:
                producer.poll(min(0.1, stopped.left))
    producer.flush(60)


def main(given: dict[str, Any]) -> dict[str, float]:
    job, stopped = ProduceJob(**given["job"]), Stopped(given["broker"])
    run_it: dict[str, Callable[[], object]] = {
        "aiokafka": lambda: asyncio.run(_aiokafka(job, stopped)),
        "confluent": lambda: _confluent(job, stopped),
    }
    run_it.get(job.client, lambda: asyncio.run(_aiokc(job, stopped)))()
    return stopped.figures


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
