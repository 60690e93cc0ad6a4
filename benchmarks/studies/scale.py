"""The cost of many partitions: the same records, spread over 1 to 10,000 of them, and the cost of an idle consumer."""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
from statistics import median
from typing import Any, Final

from aiokc import Consumer, TopicPartition

from ..load import LoadFailed, load_spread
from ..measuring.stopwatch import LoopStopwatch, cpu_seconds
from . import StudyFailed, measured

TITLE: Final = "Cost of scale: 500,000 records of 100 B over so many partitions (aiokc getmany, its defaults)"

PARTITIONS: Final = (1, 100, 1_000, 10_000)
_RECORDS: Final = 500_000
_IDLE_SECONDS: Final = 5.0


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    found: dict[int, list[dict[str, float]]] = {}
    failures: dict[int, str] = {}
    for partitions in PARTITIONS:
        try:
            load_spread(bootstrap, topic(partitions), partitions, _RECORDS, 100)
        except LoadFailed as error:
            failures[partitions] = f"failed: {error}"
    for _ in range(rounds):
        for partitions in PARTITIONS:
            if partitions not in failures:
                try:
                    one = measured("scale", bootstrap=bootstrap, partitions=partitions)
                    found.setdefault(partitions, []).append(one)
                except StudyFailed as error:
                    failures[partitions] = f"failed: {error}"
    return [_row(partitions, found, failures) for partitions in PARTITIONS]


def topic(partitions: int) -> str:
    return f"benchmark-scale-{partitions}-{_RECORDS}"


def _row(partitions: int, found: dict[int, list[dict[str, float]]], failures: dict[int, str]) -> dict[str, str]:
    def middle(number: int, name: str) -> float:
        return median(one[name] for one in found[number])

    row = {"partitions": f"{partitions:,}"}
    names = ("CPU s per M records", "vs 1 partition", "M records/s", "idle: % of a core", "loop stall p99 / max ms")
    if partitions in failures or partitions not in found:
        return row | dict.fromkeys(names, "-") | {names[0]: failures.get(partitions, "-")}
    is_base_known = 1 in found and 1 not in failures
    ratio = f"{middle(partitions, 'cpu') / middle(1, 'cpu'):.2f}x" if is_base_known else "-"
    stalls = f"{middle(partitions, 'stall_p99'):.1f} / {max(one['stall_max'] for one in found[partitions]):.0f}"
    figures = (
        f"{middle(partitions, 'cpu'):.3f}",
        ratio,
        f"{middle(partitions, 'rate'):.2f}",
        f"{middle(partitions, 'idle'):.2f}",
        stalls,
    )
    return row | dict(zip(names, figures, strict=True))


async def main(job: dict[str, Any]) -> dict[str, float]:
    partitions = [TopicPartition(topic(job["partitions"]), number) for number in range(job["partitions"])]
    async with Consumer(
        bootstrap_servers=job["bootstrap"], auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        await consumer.partitions_for_topic(partitions[0].topic)
        gc.collect()  # which is due after the imports, and would be counted where there are partitions enough
        stopwatch = LoopStopwatch()
        stopwatch.start()
        consumer.assign(partitions)
        seen = size = 0
        while seen < _RECORDS:
            for records in (await consumer.getmany()).values():
                seen += len(records)
                for record in records:
                    size += len(record.value or b"")
        stopwatch.stop()
        stalls = stopwatch.stalls()
        await consumer.getmany(timeout_ms=1_000)
        before, began = cpu_seconds(resource.RUSAGE_SELF), time.perf_counter()
        await consumer.getmany(timeout_ms=int(_IDLE_SECONDS * 1e3))
        idle = (cpu_seconds(resource.RUSAGE_SELF) - before) / (time.perf_counter() - began)
    return {
        "cpu": stopwatch.cpu_seconds / seen * 1e6,
        "rate": seen / stopwatch.seconds / 1e6,
        "idle": idle * 100,
        "stall_p99": stalls.p99 if stalls else 0.0,
        "stall_max": stalls.max if stalls else 0.0,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
