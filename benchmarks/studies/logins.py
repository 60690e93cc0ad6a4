"""Logins: from nothing to the first record by each way to connect, a hundred consumers at once, and renewed sessions.

It starts a broker of its own, with TLS and SASL.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any, Final

from aiokc.testing.kafka import LocalKafkaError, SecureKafka
from aiokc.testing.kafka.secure.tokens import unsecured

from ..foreign import JAVA, missing
from ..load import LoadFailed, load_spread
from ..measuring.stopwatch import LoopStopwatch
from . import NOT_MEASURED, StudyFailed, measured

TITLE: Final = (
    "Logins: ms from making a client to its first record, and how late timers of the loop fire meanwhile (p99 / max "
    "ms); then 100 consumers of one process that start at once, how often they ask for a token, and what holds the "
    "loop: the longest pass of Python's garbage collector, and, before the clock starts, making them all in one step; "
    "and last, the p99 ms of requests one after the other over sessions of 4 s (KIP-368), away from renewals / within "
    "250 ms of one"
)

_TOPIC: Final = "benchmark-logins"
_RECORDS: Final = 600
_CROWD: Final = 100
_UNMEASURED: Final = 30
_USER: Final = "admin"
_PASSWORD: Final = "benchmark"
_SESSION_SECONDS: Final = 4.0
_SESSIONS: Final = 5
_NEAR_SECONDS: Final = 0.25
_TOKEN_SECONDS: Final = 0.1  # how long the provider of tokens takes
_RENEWED: Final = ("SCRAM-SHA-512", "OAUTHBEARER")
#: The ways to connect: the broker's listener and the SASL mechanism.
_WAYS: Final = (
    ("PLAINTEXT", ""),
    ("TLS", ""),
    ("SASLTLS", "PLAIN"),
    ("SASLTLS", "SCRAM-SHA-256"),
    ("SASLTLS", "SCRAM-SHA-512"),
    ("SASLTLS", "OAUTHBEARER"),
)


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    """Measure each way with each client. ``bootstrap`` is not used: that broker need have no such listeners."""
    if reason := missing(JAVA):
        return [{"way": "all", "aiokc": f"{NOT_MEASURED}{reason}"}]
    try:
        with SecureKafka(
            fast=False,
            passwords={_USER: _PASSWORD},
            scram_passwords={_USER: _PASSWORD},
            session_seconds=_SESSION_SECONDS,
        ) as kafka:
            load_spread(kafka.bootstrap, _TOPIC, 1, _RECORDS, 100)
            ways = {(listener, mechanism): _job(kafka, listener, mechanism) for listener, mechanism in _WAYS}
            for job in ways.values():
                measured("logins", client="unmeasured", **job)
            rows = [_row(mechanism or listener, job, rounds) for (listener, mechanism), job in ways.items()]
            rows.append(_crowd(ways["SASLTLS", "OAUTHBEARER"], rounds))
            return [*rows, *(_renewals(_job(kafka, "SHORT", mechanism), rounds) for mechanism in _RENEWED)]
    except (LocalKafkaError, LoadFailed, StudyFailed) as error:
        return [{"way": "all", "aiokc": f"failed: {error}"}]


def _job(kafka: SecureKafka, listener: str, mechanism: str) -> dict[str, str]:
    protocol = {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL"}.get(listener, "SASL_SSL")
    return {
        "bootstrap": kafka.bootstrap_of(listener),
        "protocol": protocol,
        "ca": str(kafka.certificates.ca),
        "mechanism": mechanism,
        "token": unsecured(_USER),
    }


def _row(label: str, job: dict[str, str], rounds: int) -> dict[str, str]:
    row = {"way": label}
    for client in CLIENTS:
        try:
            found = [measured("logins", client=client, **job) for _ in range(rounds)]
        except StudyFailed as error:
            row[client] = f"failed: {error}"
            continue
        row[client] = f"{median(one['ms'] for one in found):.0f}"
        if "p99" in found[0]:
            row[f"{client} stalls"] = _stalls(found)
    return row


def _crowd(job: dict[str, str], rounds: int) -> dict[str, str]:
    try:
        found = [measured("logins", client="crowd", **job) for _ in range(rounds)]
    except StudyFailed as error:
        return {"way": f"{_CROWD} consumers", "aiokc": f"failed: {error}"}
    calls, collector = max(one["calls"] for one in found), max(one["collector"] for one in found)
    return {
        "way": f"{_CROWD} consumers, OAUTHBEARER: {calls:.0f} call{'s' if calls > 1 else ''} for a token, "
        f"{collector:.0f} ms of the garbage collector, made in {median(one['making'] for one in found):.0f} ms",
        "aiokc": f"{median(one['ms'] for one in found):.0f}",
        "aiokc stalls": _stalls(found),
    }


def _renewals(job: dict[str, str], rounds: int) -> dict[str, str]:
    way = f"requests, {job['mechanism']}"
    try:
        found = [measured("logins", client="requests", **job) for _ in range(rounds)]
    except StudyFailed as error:
        return {"way": way, "aiokc": f"failed: {error}"}
    away, near = (median(one[name] for one in found) for name in ("away", "near"))
    renewals = sum(one["renewals"] for one in found)
    return {"way": f"{way}: {renewals:.0f} renewals", "aiokc": f"{away:.2f} / {near:.2f}"}


def _stalls(found: list[dict[str, float]]) -> str:
    return f"{median(one['p99'] for one in found):.1f} / {max(one['max'] for one in found):.1f}"


class _Provider:
    """A source of tokens for aiokc and aiokafka, which takes its time, and counts."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.calls = 0

    async def token(self) -> str:
        self.calls += 1
        await asyncio.sleep(_TOKEN_SECONDS)
        return self._token


def _aiokc_options(job: dict[str, str], provider: _Provider) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap_servers": job["bootstrap"], "security_protocol": job["protocol"]}
    if job["protocol"] != "PLAINTEXT":
        options["ssl_truststore_location"] = job["ca"]
    if job["mechanism"] == "OAUTHBEARER":
        options |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider}
    elif job["mechanism"]:
        options |= {
            "sasl_mechanism": job["mechanism"],
            "sasl_plain_username": _USER,
            "sasl_plain_password": _PASSWORD,
        }
    return options


async def _aiokc(job: dict[str, str]) -> dict[str, float]:
    from aiokc import Consumer, TopicPartition

    stopwatch, started = LoopStopwatch(), time.perf_counter()
    stopwatch.start()
    async with Consumer(
        auto_offset_reset="earliest", enable_auto_commit=False, **_aiokc_options(job, _Provider(job["token"]))
    ) as consumer:
        consumer.assign([TopicPartition(_TOPIC, 0)])
        await consumer.getone()
        return _figures(stopwatch, started)


async def _unmeasured(job: dict[str, str]) -> dict[str, float]:
    """Log in again and again, so that the broker has compiled what this way needs before a client is measured.

    It does so on the cores that the client's loop needs, and would do so for the first client in the row alone.
    """
    for _ in range(_UNMEASURED):
        await _aiokc(job)
    return {}


async def _aiokafka(job: dict[str, str]) -> dict[str, float]:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.helpers import create_ssl_context

    class Provider(_Provider, AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
        pass

    stopwatch, started = LoopStopwatch(), time.perf_counter()
    stopwatch.start()
    options: dict[str, Any] = {"bootstrap_servers": job["bootstrap"], "security_protocol": job["protocol"]}
    if job["protocol"] != "PLAINTEXT":
        options["ssl_context"] = create_ssl_context(cafile=job["ca"])
    if job["mechanism"] == "OAUTHBEARER":
        options |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider(job["token"])}
    elif job["mechanism"]:
        options |= {
            "sasl_mechanism": job["mechanism"],
            "sasl_plain_username": _USER,
            "sasl_plain_password": _PASSWORD,
        }
    async with AIOKafkaConsumer(auto_offset_reset="earliest", enable_auto_commit=False, **options) as consumer:
        consumer.assign([TopicPartition(_TOPIC, 0)])
        await consumer.getone()
        return _figures(stopwatch, started)


async def _confluent(job: dict[str, str]) -> dict[str, float]:
    from confluent_kafka import Consumer, TopicPartition

    started = time.perf_counter()
    settings: dict[str, Any] = {
        "bootstrap.servers": job["bootstrap"],
        "security.protocol": job["protocol"],
        "group.id": "benchmark",
        "enable.auto.commit": False,
        "log_level": 4,
    }
    if job["protocol"] != "PLAINTEXT":
        settings["ssl.ca.location"] = job["ca"]
    if job["mechanism"] == "OAUTHBEARER":
        settings |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (job["token"], time.time() + 3600)}
    elif job["mechanism"]:
        settings |= {"sasl.mechanism": job["mechanism"], "sasl.username": _USER, "sasl.password": _PASSWORD}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    while not consumer.consume(1, timeout=0.1):
        pass
    seconds = time.perf_counter() - started
    consumer.close()
    return {"ms": seconds * 1e3}


async def _many(job: dict[str, str]) -> dict[str, float]:
    from aiokc import Consumer, TopicPartition

    provider, begun = _Provider(job["token"]), time.perf_counter()
    consumers = [
        Consumer(auto_offset_reset="earliest", enable_auto_commit=False, **_aiokc_options(job, provider))
        for _ in range(_CROWD)
    ]
    making = time.perf_counter() - begun
    stopwatch, started = LoopStopwatch(), time.perf_counter()
    stopwatch.start()

    async def read_one(consumer: Consumer[Any, Any]) -> None:
        async with consumer:
            consumer.assign([TopicPartition(_TOPIC, 0)])
            await consumer.getone()

    passes = _Passes()
    gc.callbacks.append(passes)
    async with asyncio.TaskGroup() as tasks:
        for consumer in consumers:
            tasks.create_task(read_one(consumer))
    gc.callbacks.remove(passes)
    more = {"calls": float(provider.calls), "collector": passes.longest * 1e3, "making": making * 1e3}
    return _figures(stopwatch, started) | more


async def _requests(job: dict[str, str]) -> dict[str, float]:
    """Ask for the offset of a partition again and again, over one connection whose session is renewed meanwhile."""
    from aiokc import Consumer, TopicPartition

    renewals = _Renewals()
    logger = logging.getLogger("aiokc.net")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(renewals)
    taken: list[tuple[float, float]] = []
    async with Consumer(**_aiokc_options(job, _Provider(job["token"]))) as client:
        partitions = [TopicPartition(_TOPIC, 0)]
        await client.end_offsets(partitions)
        until = time.perf_counter() + _SESSIONS * _SESSION_SECONDS
        while (begun := time.perf_counter()) < until:
            await client.end_offsets(partitions)
            taken.append((begun, time.perf_counter() - begun))
            await asyncio.sleep(0.001)
    near, away = list[float](), list[float]()
    for begun, seconds in taken:
        is_near = any(abs(begun - renewal) < _NEAR_SECONDS for renewal in renewals.times)
        (near if is_near else away).append(seconds)
    figures = {name: _p99(found) * 1e3 for name, found in (("near", near), ("away", away))}
    return figures | {"renewals": float(len(renewals.times))}


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1]


class _Renewals(logging.Handler):
    """Hears when a session is renewed; ``times`` are of time.perf_counter()."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "authenticated again" in record.getMessage():
            self.times.append(time.perf_counter())


class _Passes:
    """Hears of each pass of the garbage collector; ``longest`` is in seconds."""

    def __init__(self) -> None:
        self.longest = self._begun = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self.longest = max(self.longest, time.perf_counter() - self._begun)


def _figures(stopwatch: LoopStopwatch, started: float) -> dict[str, float]:
    ms = (time.perf_counter() - started) * 1e3
    stopwatch.stop()
    stalls = stopwatch.stalls()
    assert stalls is not None
    return {"ms": ms, "p99": stalls.p99, "max": stalls.max}


#: The clients by the names of their columns.
CLIENTS: Final[dict[str, Callable[[dict[str, str]], Awaitable[dict[str, float]]]]] = {
    "aiokc": _aiokc,
    "aiokafka": _aiokafka,
    "confluent": _confluent,
}


async def main(job: dict[str, str]) -> dict[str, float]:
    client = job.pop("client")
    return await {"unmeasured": _unmeasured, "crowd": _many, "requests": _requests, **CLIENTS}[client](job)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
