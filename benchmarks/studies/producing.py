"""Throughput of producers: idempotent, acks=all, from the first record handed over to the last one acknowledged."""

from __future__ import annotations

import time
from dataclasses import asdict
from statistics import median
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ..foreign import missing
from ..load import LoadFailed, create_topic, delete_topic
from ..producers import PRODUCER_REFERENCE, PRODUCERS, ProducerClient
from ..producers.job import ProduceJob
from . import StudyFailed, measured

TITLE: Final = (
    "Producing: idempotent, acks=all, 6 partitions, values without keys, batches of 16 KiB, linger 5 ms, 32 MiB of "
    "buffer. Rates count from the first record handed over to the last one acknowledged"
)

_PARTITIONS: Final = 6
_MOST_ROUNDS: Final = 3
#: The sizes of values, and how many of them a client sends that takes batches of them, or is not in Python.
_RECORDS: Final = {100: 1_000_000, 1_000: 300_000}
_COLUMNS: Final = (
    "records/s",
    "min-max",
    "CPU s per M records",
    "peak MiB",
    "loop stall p99 / max ms",
    "vs aiokc send_many",
)
_CODECS: Final = ("none", "lz4")


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    failures: dict[tuple[str, str], str] = {}
    cases = {
        f"{'1kB' if size == 1_000 else f'{size}B'}-{codec}": (size, codec) for size in _RECORDS for codec in _CODECS
    }
    clients = [client for client in PRODUCERS.values() if missing(client.name) is None]
    for _ in range(min(rounds, _MOST_ROUNDS)):
        for case, (size, codec) in cases.items():
            for client in clients:
                try:
                    found.setdefault((case, client.name), []).append(_measure(bootstrap, client, size, codec))
                except (LoadFailed, StudyFailed) as error:
                    failures[case, client.name] = f"failed: {error}"
    # A round that failed fails its row: what the others found is nothing to compare with either.
    whole = {key: rounds for key, rounds in found.items() if key not in failures}
    return [
        _row(
            case, client, whole.get((case, client.name), []), failures.get((case, client.name)), _reference(case, whole)
        )
        for case in cases
        for client in clients
    ]


def _measure(bootstrap: str, client: ProducerClient, size: int, codec: str) -> dict[str, float]:
    """Let the client fill a topic of its own. Raises StudyFailed unless that holds exactly what it was given."""
    topic, records = f"benchmark-producing-{time.time_ns()}", int(_RECORDS[size] * client.share)
    create_topic(bootstrap, topic, _PARTITIONS)
    try:
        job = ProduceJob(client.name, bootstrap, topic, _PARTITIONS, records, size, codec)
        found = measured("benchmarks.producers.worker", **asdict(job))
        if (stored := written(bootstrap, topic)) != records:
            raise StudyFailed(f"{stored} records are stored instead of {records}")
    finally:
        delete_topic(bootstrap, topic)
    return found | {"records": records}


def written(bootstrap: str, topic: str) -> int:
    """Return how many records the topic's partitions hold. Raises StudyFailed if the broker does not say it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
            for partition in range(_PARTITIONS)
        ]
    except KafkaException as error:
        raise StudyFailed(f"how many records are stored is not known: {error}") from error
    finally:
        consumer.close()
    return sum(ends)


def _reference(case: str, found: dict[tuple[str, str], list[dict[str, float]]]) -> float | None:
    mine = found.get((case, PRODUCER_REFERENCE))
    return median(one["records"] / one["seconds"] for one in mine) if mine else None


def _row(
    case: str, client: ProducerClient, found: list[dict[str, float]], failure: str | None, reference: float | None
) -> dict[str, str]:
    row = {"case": case, "client": client.label}
    if failure is not None:
        return row | {"records/s": failure} | dict.fromkeys(_COLUMNS[1:], "-")
    rates = [one["records"] / one["seconds"] for one in found]
    row |= {
        "records/s": f"{median(rates):,.0f}",
        "min-max": f"{min(rates):,.0f} - {max(rates):,.0f}",
        "CPU s per M records": f"{median(one['cpu'] / one['records'] for one in found) * 1e6:.2f}",
        "peak MiB": f"{median(one['peak'] for one in found) / (1 << 20):.0f}",
    }
    if "stall p99" in found[0]:
        stalls = median(one["stall p99"] for one in found), max(one["stall max"] for one in found)
        row["loop stall p99 / max ms"] = f"{stalls[0]:.1f} / {stalls[1]:.0f}"
    else:
        row["loop stall p99 / max ms"] = "-"
    return row | {"vs aiokc send_many": "-" if reference is None else f"{median(rates) / reference:.2f}x"}
