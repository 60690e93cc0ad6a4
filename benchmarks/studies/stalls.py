"""Stalls of the event loop while an application reads records fetched ahead: eight partitions of 6 MB.

The value of each record is looked at, for aiokc makes a record only where it is read.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from statistics import median
from typing import Any, Final

from ..load import LoadFailed, load_spread
from ..measuring.stopwatch import LoopStopwatch
from . import StudyFailed, measured

TITLE: Final = (
    "Stalls of the loop: 8 partitions of 6 MB of 100 B records, read 500 at a time, "
    "after three seconds in which clients could fetch all of it"
)

_PARTITIONS: Final = 8
_RECORDS: Final = 480_000
_SIZE: Final = 100
_TOPIC: Final = f"benchmark-stalls-{_PARTITIONS}-{_RECORDS}"
_PER_PARTITION: Final = 8 << 20
_AHEAD_SECONDS: Final = 3.0

#: Takes some records, 500 at most, looks at their values, and says how many.
Take = Callable[[], Awaitable[int]]
#: Assigns itself everything, and calls back with how records are taken.
Client = Callable[[str, Callable[[Take], Awaitable[None]]], Awaitable[None]]


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    rows = []
    for client, (label, _) in CLIENTS.items():
        row = {"client": label}
        try:
            load_spread(bootstrap, _TOPIC, _PARTITIONS, _RECORDS, _SIZE)
            found = [measured("stalls", client=client, bootstrap=bootstrap) for _ in range(rounds)]
        except (LoadFailed, StudyFailed) as error:
            rows.append(row | {"p50 ms": f"failed: {error}", "p99 ms": "-", "max ms": "-"})
            continue
        row |= {f"{name} ms": f"{median(one[name] for one in found):.1f}" for name in ("p50", "p99")}
        rows.append(row | {"max ms": f"{max(one['max'] for one in found):.1f}"})
    return rows


async def _aiokc(bootstrap: str, read: Callable[[Take], Awaitable[None]]) -> None:
    from aiokc import Consumer, TopicPartition

    async with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=_PER_PARTITION,
    ) as consumer:
        consumer.assign(TopicPartition(_TOPIC, number) for number in range(_PARTITIONS))

        async def take() -> int:
            return _read((await consumer.getmany(max_records=500)).values())

        await read(take)


async def _aiokafka(bootstrap: str, read: Callable[[Take], Awaitable[None]]) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=_PER_PARTITION,
        check_crcs=True,
    ) as consumer:
        consumer.assign([TopicPartition(_TOPIC, number) for number in range(_PARTITIONS)])

        async def take() -> int:
            return _read((await consumer.getmany(timeout_ms=1_000, max_records=500)).values())

        await read(take)


async def _confluent(bootstrap: str, read: Callable[[Take], Awaitable[None]]) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.aio import AIOConsumer

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "benchmark",
        "enable.auto.commit": False,
        "max.partition.fetch.bytes": _PER_PARTITION,
        "check.crcs": True,
        "log_level": 4,
    }
    async with AIOConsumer(settings) as consumer:
        await consumer.assign([TopicPartition(_TOPIC, number, 0) for number in range(_PARTITIONS)])

        async def take() -> int:
            messages = await consumer.consume(500, timeout=1.0)
            return _all_of_size([message.value() for message in messages])

        await read(take)


def _read(partitions: Iterable[Iterable[Any]]) -> int:
    return sum(_all_of_size([record.value for record in records]) for records in partitions)


def _all_of_size(values: list[bytes | None]) -> int:
    """Return how many they are. Raises RuntimeError unless each is as long as those that were written."""
    if sum(len(value or b"") for value in values) != _SIZE * len(values):
        raise RuntimeError(f"values are not of {_SIZE} B")
    return len(values)


CLIENTS: Final[dict[str, tuple[str, Client]]] = {
    "aiokc": ("aiokc getmany", _aiokc),
    "aiokafka": ("aiokafka getmany", _aiokafka),
    "confluent": ("confluent AIOConsumer", _confluent),
}


async def main(job: dict[str, Any]) -> dict[str, float]:
    figures: dict[str, float] = {}

    async def read(take: Take) -> None:
        await take()
        await asyncio.sleep(_AHEAD_SECONDS)
        stopwatch = LoopStopwatch()
        stopwatch.start()
        left = _RECORDS * 9 // 10  # some were taken already, and the last ones may have to be waited for
        while left > 0:
            left -= await take()
        stopwatch.stop()
        stalls = stopwatch.stalls()
        assert stalls is not None
        figures.update(p50=stalls.p50, p99=stalls.p99, max=stalls.max)

    await CLIENTS[job["client"]][1](job["bootstrap"], read)
    return figures


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
