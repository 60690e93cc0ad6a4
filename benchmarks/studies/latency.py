"""Latency from produce() to the application, at 1,000 records a second; and from a seek() to its first record."""

from __future__ import annotations

import asyncio
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from . import StudyFailed, bare_fetches, measured

TITLE: Final = "Latency, from produce() to the record in hand, at 1,000 records of 100 B per second"

#: What asyncio itself takes: no client, which would decode and check what comes.
BARE: Final = "bare asyncio connection"
CLIENTS: Final = {
    "bare": BARE,
    "aiokc": "aiokc getmany",
    "aiokafka": "aiokafka getmany",
    "confluent": "confluent poll",
}
#: The same clients after a seek() to one of the last records, while the broker holds back the Fetch that asks for more.
SEEKS: Final = "after a seek() beside a parked Fetch"
_RATE: Final = 1_000
_WARM_UP: Final = 1_000
_COUNTED: Final = 5_000
_STORED: Final = 100
_SEEKS: Final = 40
_PAUSES: Final = (0.02, 0.05, 0.1, 0.15)  # seconds from the last record to the seek


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    measurements = [(client, seeks) for seeks in (False, True) for client in CLIENTS if client != "bare" or not seeks]
    found: dict[tuple[str, bool], list[dict[str, float]]] = {one: [] for one in measurements}
    failures: dict[tuple[str, bool], str] = {}
    for number in range(rounds + 1):
        # Each round begins with another client. The first one does not count: the broker compiles its code during that,
        # on the cores that the clients need, and would do so for those alone that come first.
        turn = number % len(measurements)
        for client, seeks in measurements[turn:] + measurements[:turn]:
            job = {"client": client, "seeks": seeks, "topic": f"benchmark-latency-{time.time_ns()}"}
            try:
                figures = measured("latency", bootstrap=bootstrap, **job)
            except StudyFailed as error:
                failures[client, seeks] = f"round {number} failed: {error}"
            else:
                found[client, seeks] += [figures] if number else []
    rows = []
    for client, seeks in measurements:
        counted = found[client, seeks]
        row = {"client": f"{CLIENTS[client]} {SEEKS}" if seeks else CLIENTS[client]}
        if (client, seeks) in failures:
            row["p50 ms"] = failures[client, seeks]
        else:
            row |= {f"{name} ms": f"{median(one[name] for one in counted):.2f}" for name in ("p50", "p99", "max")}
            if not seeks:
                row["CPU s per M records"] = f"{median(one['cpu'] for one in counted):.1f}"
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
        return _spread(self._seconds) | {"cpu": (_cpu() - self._cpu) / len(self._seconds) * 1e6}


def _spread(milliseconds: Iterable[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
    return {"p50": p50, "p99": p99, "max": ordered[-1]}


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


async def _bare(bootstrap: str, topic: str, start: Callable[[], None], latencies: Latencies) -> None:
    await bare_fetches.read(bootstrap, topic, start, latencies.add, lambda: latencies.done)


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


def _seeking() -> Iterator[tuple[int, float]]:
    """The offset of each seek, among the last ten, and how long to wait before it."""
    for number in range(_SEEKS):
        yield _STORED - 1 - number % 10, _PAUSES[number % len(_PAUSES)]


async def _async_seeks(
    seek: Callable[[int], Any], records: Callable[[], Awaitable[Mapping[Any, Sequence[Any]]]]
) -> list[float]:
    """Return how many ms the first record took after each seek; all records behind it are read before the next one."""
    took = []

    async def until_the_end(left: int) -> None:
        while left > 0:
            left -= sum(map(len, (await records()).values()))

    await until_the_end(_STORED)
    for offset, pause in _seeking():
        await asyncio.sleep(pause)
        began = time.perf_counter()
        seek(offset)
        found: Mapping[Any, Sequence[Any]] = {}
        while not found:
            found = await records()
        took.append((time.perf_counter() - began) * 1e3)
        (first, *_) = next(iter(found.values()))
        if first.offset != offset:
            raise SystemExit(f"offset {first.offset} came after a seek to {offset}")
        await until_the_end(_STORED - offset - sum(map(len, found.values())))
    return took


async def _aiokc_seeks(bootstrap: str, topic: str) -> list[float]:
    from aiokc import Consumer, TopicPartition

    partition = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        return await _async_seeks(lambda offset: consumer.seek(partition, offset), consumer.getmany)


async def _aiokafka_seeks(bootstrap: str, topic: str) -> list[float]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        return await _async_seeks(
            lambda offset: consumer.seek(partition, offset), lambda: consumer.getmany(timeout_ms=1_000)
        )


def _confluent_seeks(bootstrap: str, topic: str) -> list[float]:
    from confluent_kafka import Consumer, Message, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark", "enable.auto.commit": False})

    def record() -> Message:
        while (message := consumer.poll(1.0)) is None or message.error() is not None:
            pass
        return message

    took = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        for _ in range(_STORED):
            record()
        for offset, pause in _seeking():
            time.sleep(pause)
            began = time.perf_counter()
            consumer.seek(TopicPartition(topic, 0, offset))
            first = record()
            took.append((time.perf_counter() - began) * 1e3)
            if first.offset() != offset:
                raise SystemExit(f"offset {first.offset()} came after a seek to {offset}")
            for _ in range(_STORED - offset - 1):
                record()
    finally:
        consumer.close()
    return took


def _seeks(client: str, bootstrap: str, topic: str) -> dict[str, float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 4})
    for _ in range(_STORED):
        producer.produce(topic, bytes(100))
    if producer.flush(10):
        raise SystemExit("the broker does not take the records")
    if client == "confluent":
        return _spread(_confluent_seeks(bootstrap, topic))
    return _spread(asyncio.run((_aiokc_seeks if client == "aiokc" else _aiokafka_seeks)(bootstrap, topic)))


def main(job: dict[str, Any]) -> dict[str, float]:
    from ..load import create_topic

    bootstrap, topic = job["bootstrap"], job["topic"]
    if job["client"] == "producer":
        produce(bootstrap, topic)
        return {}
    create_topic(bootstrap, topic, 1)
    if job["seeks"]:
        return _seeks(job["client"], bootstrap, topic)
    latencies = Latencies()
    producers: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        task = json.dumps({**job, "client": "producer"})
        producers.append(subprocess.Popen([sys.executable, "-m", "benchmarks.studies.latency", task]))

    try:
        if job["client"] == "confluent":
            _confluent(bootstrap, topic, start, latencies)
        else:
            read = {"bare": _bare, "aiokc": _aiokc, "aiokafka": _aiokafka}[job["client"]]
            asyncio.run(read(bootstrap, topic, start, latencies))
    finally:
        for producer in producers:
            producer.kill()
            producer.wait()
    return latencies.figures()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
