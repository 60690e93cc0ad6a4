"""The cost of being observed: the same records with nothing on, with each exporter, and with traces."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBasedTraceIdRatio
from opentelemetry.trace import NoOpTracerProvider
from prometheus_client import CollectorRegistry

from aiokc import Consumer, Observer, TopicPartition
from aiokc.contrib.otel import instrument
from aiokc.contrib.prometheus import collector, exposition

from ..load import LoadFailed, load_spread
from ..measuring.stopwatch import Stopwatch
from . import StudyFailed, measured

TITLE: Final = "Cost of observing: aiokc getmany, its defaults, 4 partitions read again and again in one process"

_PARTITIONS: Final = 4
_RECORDS: Final = {100: 1_000_000, 1_000: 300_000}  # by size in bytes
#: A read is of a part of them: of many short ones, some meet a machine that does nothing else.
_PART: Final = 4
_READS: Final = 20  # of each mode in one process
_SAMPLED: Final = 0.001

MODES: Final = {
    "off": "nothing",
    "prometheus": "prometheus",
    "observer": "an observer that does nothing",
    "otel metrics": "otel: metrics",
    "otel rarely": "otel: metrics and traces, one of 1,000 sampled",
    "otel sampled": "otel: metrics and traces, all sampled",
}


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    found: dict[tuple[str, int], list[float]] = {}
    try:
        for size, records in _RECORDS.items():
            load_spread(bootstrap, topic(size), _PARTITIONS, records, size)
            for _ in range(rounds):
                for name, cpu in measured("observing", bootstrap=bootstrap, size=size).items():
                    found.setdefault((name, size), []).append(cpu)
    except (LoadFailed, StudyFailed) as error:
        return [{"on": "all", _column(size): f"failed: {error}"}]
    return [_row(mode, found) for mode in MODES]


def topic(size: int) -> str:
    return f"benchmark-observing-{_PARTITIONS}-{size}"


def _column(size: int) -> str:
    return f"CPU s per M records of {size:,} B"


def _row(mode: str, found: dict[tuple[str, int], list[float]]) -> dict[str, str]:
    """The median of the processes, each of which has measured all modes in turn."""
    row = {"on": MODES[mode]}
    for size in _RECORDS:
        here, base = found[mode, size], found["off", size]
        ratio = median(one / other for one, other in zip(here, base, strict=True))
        row |= {_column(size): f"{median(here):.3f}", f"vs nothing ({size:,} B)": f"{(ratio - 1) * 100:+.1f} %"}
    row["one collection: CPU ms"] = f"{median(found[f'{mode}: collecting', 100]):.1f}"
    return row


class _Idle(Observer):
    """Hears all, and does nothing."""


async def main(job: dict[str, Any]) -> dict[str, float]:
    """Read the topic in each mode in turn, and return the least processor time of each mode's reads.

    What else runs on the machine only adds to that, and the differences are small.
    """
    size = job["size"]
    records = _RECORDS[size] // _PART
    found: dict[str, list[float]] = defaultdict(list)
    async with Consumer(
        bootstrap_servers=job["bootstrap"], auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        await consumer.partitions_for_topic(topic(size))
        consumer.assign([TopicPartition(topic(size), number) for number in range(_PARTITIONS)])
        await _read(consumer, _RECORDS[size])  # the warm-up
        for number in range(_READS):
            # Each turn begins with another mode, so that what changes meanwhile falls on all of them.
            for mode in [*MODES][number % len(MODES) :] + [*MODES][: number % len(MODES)]:
                await consumer.seek_to_beginning()
                collect, end = _observed(consumer, mode)
                gc.collect()
                gc.freeze()  # what switching on has made is walked over by no collection of garbage during the read
                stopwatch = Stopwatch()
                stopwatch.start()
                await _read(consumer, records)
                stopwatch.stop()
                found[mode].append(stopwatch.cpu_seconds / records * 1e6)
                stopwatch.start()
                collect()
                stopwatch.stop()
                found[f"{mode}: collecting"].append(stopwatch.cpu_seconds * 1e3)
                end()
    return {mode: min(seconds) for mode, seconds in found.items()}


async def _read(consumer: Consumer[Any, Any], wanted: int) -> None:
    seen = total = 0
    while seen < wanted:
        for records in (await consumer.getmany()).values():
            seen += len(records)
            for record in records:
                total += len(record.value or b"")


def _observed(consumer: Consumer[Any, Any], mode: str) -> tuple[Callable[[], object], Callable[[], None]]:
    """Switch on what is to be measured; return what collects it, and what switches it off."""
    if mode == "prometheus":
        registry = CollectorRegistry()
        collector(consumer, registry=registry)
        return lambda: exposition(registry), _nothing
    if mode == "observer":
        idle = _Idle()
        consumer.observe(idle)
        return _nothing, lambda: consumer.no_longer_observe(idle)
    if mode.startswith("otel"):
        reader = InMemoryMetricReader()
        sampler = {"otel rarely": ParentBasedTraceIdRatio(_SAMPLED), "otel sampled": ALWAYS_ON}.get(mode)
        provider = TracerProvider(sampler=sampler) if sampler is not None else NoOpTracerProvider()
        telemetry = instrument(consumer, meter_provider=MeterProvider([reader]), tracer_provider=provider)
        return reader.get_metrics_data, telemetry.close
    return _nothing, _nothing


def _nothing() -> None:
    pass


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
