"""Latency of producers: from the call to the acknowledgement, at 1,000 records a second, one partition, no linger."""

from __future__ import annotations

import asyncio
import json
import math
import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from statistics import median
from typing import Any, Final, cast

import uvloop

from aiokc.records.encoding.encode import NewRecord, encode_batch
from aiokc.wire import encode_request
from aiokc.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from ..foreign import missing
from ..load import LoadFailed, create_topic, delete_topic
from ..measuring.stopwatch import cpu_seconds
from ..producers import franz_go, java
from ..producers.job import ProduceJob
from ..producers.options import aiokafka_producer, aiokc_producer, librdkafka_settings
from . import StudyFailed, measured

TITLE: Final = (
    "Producing, from the call to the acknowledgement, at 1,000 records of 100 B per second: idempotent, acks=all, "
    "no linger"
)

CLIENTS: Final = {
    "bare": "bare asyncio connection, requests ready before, not idempotent, answers not read",
    "bare-uvloop": "the same, uvloop",
    "aiokc": "aiokc send_soon",
    "aiokc-uvloop": "aiokc send_soon, uvloop",
    "aiokafka": "aiokafka send",
    "aiokafka-uvloop": "aiokafka send, uvloop",
    "confluent": "confluent produce, a thread polls",
    "confluent-spins": "confluent produce, polls without a pause on a whole CPU",
    "confluent-aio": "confluent AIOProducer",
    "java": "Java ProducerPerformance (whole ms; CPU with the JVM's start)",
    "franz-go": "franz-go Produce",
}
_BARE_VERSION: Final = 12  # the last one that names topics
_RATE: Final = 1_000
_WARM_UP: Final = 1_000
_COUNTED: Final = 5_000

#: Sends a value, and calls back when it is acknowledged.
Send = Callable[[bytes, Callable[[], None]], Awaitable[None]]


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    clients = {name: label for name, label in CLIENTS.items() if missing(name) is None}
    found: dict[str, list[dict[str, float]]] = {client: [] for client in clients}
    failures: dict[str, str] = {}
    names = list(clients)
    for number in range(rounds + 1):
        # Each round begins with another client. The first one does not count: the broker compiles its code during that.
        turn = number % len(names)
        for client in names[turn:] + names[:turn]:
            topic = f"benchmark-acknowledging-{time.time_ns()}"
            job = ProduceJob(client, bootstrap, topic, 1, _WARM_UP + _COUNTED, 100, "none")
            try:
                create_topic(bootstrap, topic, 1)
                figures = measured("acknowledging", **asdict(job))
                delete_topic(bootstrap, topic)
            except (LoadFailed, StudyFailed) as error:
                failures[client] = f"round {number} failed: {error}"
            else:
                found[client] += [figures] if number else []
    return [_row(label, found[client], failures.get(client)) for client, label in clients.items()]


def _row(label: str, found: list[dict[str, float]], failure: str | None) -> dict[str, str]:
    if failure is not None:
        return {"client": label, "p50 ms": failure, "p99 ms": "-", "max ms": "-", "CPU s per M records": "-"}
    row = {"client": label}
    for name in ("p50", "p99", "max"):
        values = [one[name] for one in found if name in one]
        row[f"{name} ms"] = f"{median(values):.2f}" if values else "-"
    return row | {"CPU s per M records": f"{median(one['cpu'] for one in found):.1f}"}


class Latencies:
    """How long each record was on its way to the broker and back, and the processor time since the warm-up."""

    def __init__(self) -> None:
        self._number = 0
        self._seconds: list[float] = []
        self._cpu = 0.0

    def begin(self) -> Callable[[], None]:
        """A record is handed over now: return what is to be called when it is acknowledged."""
        self._number += 1
        if self._number == _WARM_UP:
            self._cpu = cpu_seconds(resource.RUSAGE_SELF)
        if self._number <= _WARM_UP:
            return lambda: None
        began = time.perf_counter()
        return lambda: self._seconds.append(time.perf_counter() - began)

    def figures(self) -> dict[str, float]:
        if len(self._seconds) != _COUNTED:
            raise RuntimeError(f"{len(self._seconds)} records were acknowledged instead of {_COUNTED}")
        ordered = sorted(self._seconds)
        p50, p99 = (1e3 * ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
        cpu = (cpu_seconds(resource.RUSAGE_SELF) - self._cpu) / _COUNTED * 1e6
        return {"p50": p50, "p99": p99, "max": 1e3 * ordered[-1], "cpu": cpu}


async def _aiokc(job: ProduceJob, latencies: Latencies) -> None:
    async with aiokc_producer(job, linger_ms=0) as producer:
        await producer.partitions_for(job.topic)

        async def send(value: bytes, done: Callable[[], None]) -> None:
            def on_done(_metadata: object, error: Exception | None) -> None:
                if error is None:
                    done()

            producer.send_soon(job.topic, value, on_done=on_done)

        await _paced(job, send, latencies)
        await producer.flush()


class _BareConnection(asyncio.Protocol):
    """Writes requests, and calls back as their answers come: what no client on asyncio can be quicker than."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._due: deque[Callable[[], None]] = deque()
        self._idle = asyncio.Event()
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            length = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < length:
                break
            self._received = self._received[length:]
            self._due.popleft()()
        if not self._due:
            self._idle.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """No answer comes any more: the broker ends with the benchmark, and this process then has to end, too."""
        self._is_lost = True
        self._idle.set()

    def _check(self) -> None:
        if self._is_lost:
            raise ConnectionError(f"the broker closed the connection, and {len(self._due)} answers are missing")

    def write(self, request: bytes, done: Callable[[], None]) -> None:
        assert self._transport is not None
        self._check()
        self._due.append(done)
        self._idle.clear()
        self._transport.write(request)

    async def close(self) -> None:
        """Wait for the answers that are due, and end the connection. Raises ConnectionError if that has ended."""
        assert self._transport is not None
        await self._idle.wait()
        self._check()
        self._transport.close()


def _bare_request(job: ProduceJob, value: bytes) -> bytes:
    """Return the request for one record, in a version that names topics."""
    batch = encode_batch([NewRecord(value, timestamp=int(time.time() * 1000))])
    partition = PartitionProduceData(index=0, records=memoryview(batch))
    topic = TopicProduceData(name=job.topic, partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    return encode_request(request, version=_BARE_VERSION, correlation_id=0, client_id="bare")


async def _bare(job: ProduceJob, latencies: Latencies) -> None:
    """There is one broker, which leads the topic's one partition."""
    host, port = job.bootstrap.rsplit(":", 1)
    requests = iter([_bare_request(job, value) for value in job.values()])
    _, connection = await asyncio.get_running_loop().create_connection(_BareConnection, host, int(port))

    async def send(_value: bytes, done: Callable[[], None]) -> None:
        connection.write(next(requests), done)

    await _paced(job, send, latencies)
    await connection.close()


async def _aiokafka(job: ProduceJob, latencies: Latencies) -> None:
    async with aiokafka_producer(job, linger_ms=0) as producer:
        await producer.partitions_for(job.topic)

        async def send(value: bytes, done: Callable[[], None]) -> None:
            (await producer.send(job.topic, value)).add_done_callback(_if_acknowledged(done))

        await _paced(job, send, latencies)
        await producer.flush()


async def _confluent_aio(job: ProduceJob, latencies: Latencies) -> None:
    from confluent_kafka.aio import AIOProducer

    # Its buffer goes to the producer when it is full or old: here each record fills it.
    producer = AIOProducer(librdkafka_settings(job, linger_ms=0), batch_size=1)
    try:
        await producer.list_topics(job.topic, timeout=10)

        async def send(value: bytes, done: Callable[[], None]) -> None:
            (await producer.produce(job.topic, value)).add_done_callback(_if_acknowledged(done))

        await _paced(job, send, latencies)
        await producer.flush()
    finally:
        await producer.close()


def _if_acknowledged(done: Callable[[], None]) -> Callable[[asyncio.Future[Any]], None]:
    """Call back for a record that the broker has, and not for one that failed: figures() then misses it."""

    def on_done(future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            done()

    return on_done


async def _paced(job: ProduceJob, send: Send, latencies: Latencies) -> None:
    values, began = job.values(), time.perf_counter()
    for number, value in enumerate(values):
        ahead = began + number / _RATE - time.perf_counter()
        if ahead > 0:
            await asyncio.sleep(ahead)
        await send(value, latencies.begin())


def _confluent(job: ProduceJob, latencies: Latencies) -> None:
    """Another thread waits in poll(), which calls the callbacks, as its users do who have something else to do."""
    from confluent_kafka import Producer

    producer = Producer(librdkafka_settings(job, linger_ms=0))
    producer.list_topics(job.topic, timeout=10)
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            producer.poll(0.1)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        _confluent_paced(job, latencies, producer, time.sleep)
    finally:
        is_over.set()
        poller.join()
    producer.flush(60)


def _confluent_spins(job: ProduceJob, latencies: Latencies) -> None:
    """poll() takes whole milliseconds: it does not wait for what is left until the next record, and is called again."""
    from confluent_kafka import Producer

    producer = Producer(librdkafka_settings(job, linger_ms=0))
    producer.list_topics(job.topic, timeout=10)
    _confluent_paced(job, latencies, producer, producer.poll)
    producer.flush(60)


def _confluent_paced(job: ProduceJob, latencies: Latencies, producer: Any, wait: Callable[[float], object]) -> None:
    values, began = job.values(), time.perf_counter()
    for number, value in enumerate(values):
        while (ahead := began + number / _RATE - time.perf_counter()) > 0:
            wait(ahead)
        done = latencies.begin()
        producer.produce(job.topic, value, on_delivery=lambda error, _, done=done: None if error else done())


def _java(job: ProduceJob) -> dict[str, float]:
    """The tool counts all records, and gives whole milliseconds."""
    before = cpu_seconds(resource.RUSAGE_CHILDREN)
    report = java.run(job, throughput=_RATE, linger_ms=0)
    cpu = (cpu_seconds(resource.RUSAGE_CHILDREN) - before) / report.records * 1e6
    return {"p50": report.p50, "p99": report.p99, "cpu": cpu}


def _franz_go(job: ProduceJob) -> dict[str, float]:
    found = franz_go.run(job, rate=_RATE, linger_ms=0, warm_up=_WARM_UP)
    return {name: found[name] for name in ("p50", "p99", "max")} | {"cpu": found["cpu_seconds"] / _COUNTED * 1e6}


def main(given: dict[str, Any]) -> dict[str, float]:
    job, latencies = ProduceJob(**given), Latencies()
    if job.client == "java":
        return _java(job)
    if job.client == "franz-go":
        return _franz_go(job)
    if job.client == "confluent":
        _confluent(job, latencies)
    elif job.client == "confluent-spins":
        _confluent_spins(job, latencies)
    else:
        name, on_uvloop = job.client.removesuffix("-uvloop"), job.client.endswith("-uvloop")
        send = {"bare": _bare, "aiokc": _aiokc, "aiokafka": _aiokafka, "confluent-aio": _confluent_aio}[name]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if on_uvloop else None) as runner:
            runner.run(send(job, latencies))
    return latencies.figures()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
