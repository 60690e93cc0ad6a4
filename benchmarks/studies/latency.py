"""Latency from produce() to the application: 1,000 records a second, one partition, the clock of one machine."""

from __future__ import annotations

import asyncio
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from . import StudyFailed, measured

TITLE: Final = "Latency, from produce() to the record in hand, at 1,000 records of 100 B per second"

CLIENTS: Final = {
    "aiokc": "aiokc getmany",
    "aiokafka": "aiokafka getmany",
    "confluent": "confluent poll",
}
_RATE: Final = 1_000
_WARM_UP: Final = 1_000
_COUNTED: Final = 5_000


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    rows = []
    found: dict[str, list[dict[str, float]]] = {client: [] for client in CLIENTS}
    failures: dict[str, str] = {}
    for number in range(rounds):
        for client in CLIENTS:
            topic = f"benchmark-latency-{time.time_ns()}"
            try:
                found[client].append(measured("latency", client=client, bootstrap=bootstrap, topic=topic))
            except StudyFailed as error:
                failures[client] = f"round {number + 1} failed: {error}"
    for client, label in CLIENTS.items():
        figures = found[client]
        row = {"client": label}
        if client in failures:
            row["p50 ms"] = failures[client]
        else:
            row |= {f"{name} ms": f"{median(one[name] for one in figures):.2f}" for name in ("p50", "p99", "max")}
            row["CPU s per M records"] = f"{median(one['cpu'] for one in figures):.1f}"
        rows.append(row)
    rows.sort(key=len, reverse=True)
    return rows


class Latencies:
    """How long each record was under way, and the processor time since the warm-up."""

    def __init__(self) -> None:
        self._seen = 0
        self._seconds: list[float] = []
        self._cpu = 0.0

    def add(self, value: bytes) -> None:
        now = time.time_ns()
        self._seen += 1
        if self._seen == _WARM_UP:
            self._cpu = _cpu()
        elif self._seen > _WARM_UP:
            self._seconds.append((now - int(value[:20])) / 1e6)

    @property
    def done(self) -> bool:
        return len(self._seconds) >= _COUNTED

    def figures(self) -> dict[str, float]:
        ordered = sorted(self._seconds)
        p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
        return {"p50": p50, "p99": p99, "max": ordered[-1], "cpu": (_cpu() - self._cpu) / len(ordered) * 1e6}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def produce(bootstrap: str, topic: str) -> None:
    """Send at the rate, each record with the time of its produce(). Ends by itself."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1, "log_level": 4})
    began = time.perf_counter()
    for number in range((_WARM_UP + _COUNTED) * 2):
        ahead = began + number / _RATE - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        producer.produce(topic, (b"%020d" % time.time_ns()).ljust(100, b"."))
        producer.poll(0)
    producer.flush(10)


async def _aiokc(bootstrap: str, topic: str, start: Callable[[], None], latencies: Latencies) -> None:
    from aiokc import Consumer, TopicPartition

    async with Consumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        start()
        while not latencies.done:
            for records in (await consumer.getmany()).values():
                for record in records:
                    latencies.add(record.value or b"")


async def _aiokafka(bootstrap: str, topic: str, start: Callable[[], None], latencies: Latencies) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        start()
        while not latencies.done:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in records:
                    latencies.add(record.value or b"")


def _confluent(bootstrap: str, topic: str, start: Callable[[], None], latencies: Latencies) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.poll(1.0)
        start()
        while not latencies.done:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                latencies.add(message.value() or b"")
    finally:
        consumer.close()


def main(job: dict[str, Any]) -> dict[str, float]:
    from ..load import create_topic

    bootstrap, topic = job["bootstrap"], job["topic"]
    if job["client"] == "producer":
        produce(bootstrap, topic)
        return {}
    create_topic(bootstrap, topic, 1)
    latencies = Latencies()
    producers: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        task = json.dumps({**job, "client": "producer"})
        producers.append(subprocess.Popen([sys.executable, "-m", "benchmarks.studies.latency", task]))

    try:
        if job["client"] == "confluent":
            _confluent(bootstrap, topic, start, latencies)
        else:
            asyncio.run((_aiokc if job["client"] == "aiokc" else _aiokafka)(bootstrap, topic, start, latencies))
    finally:
        for producer in producers:
            producer.kill()
            producer.wait()
    return latencies.figures()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
