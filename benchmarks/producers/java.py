"""Apache Kafka's own producer, measured by its own tool ProducerPerformance.

Its rate is that of the records, without the start of the JVM. Processor time and memory are those of the whole JVM,
with its start and just-in-time compilation.
"""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aiokc.testing.kafka.jars import java_command, last_lines

from ..measuring.stopwatch import Stopwatch, cpu_seconds, max_rss
from .job import BATCH_SIZE, BUFFER_MEMORY, LINGER_MS, MAX_IN_FLIGHT, MAX_REQUEST_SIZE, ProduceJob

_FIGURES = re.compile(
    r"(?P<records>\d+) records sent, (?P<rate>[\d.,]+) records/sec .* (?P<p50>\d+) ms 50th, .* (?P<p99>\d+) ms 99th"
)


@dataclass(frozen=True, slots=True)
class Report:
    """What ProducerPerformance printed about its run: latencies in whole milliseconds."""

    records: int
    records_per_second: float
    p50: float
    p99: float


def produce(job: ProduceJob, stopwatch: Stopwatch) -> None:
    cpu_before = cpu_seconds(resource.RUSAGE_CHILDREN)
    report = run(job, throughput=-1, linger_ms=LINGER_MS)
    stopwatch.read(
        seconds=report.records / report.records_per_second,
        cpu_seconds=cpu_seconds(resource.RUSAGE_CHILDREN) - cpu_before,
        peak_rss=max_rss(resource.RUSAGE_CHILDREN),
    )


def run(job: ProduceJob, *, throughput: int, linger_ms: int) -> Report:
    """Run the tool. ``throughput`` is in records per second; -1: as many as it can."""
    properties = (
        "acks=all",
        "enable.idempotence=true",
        f"compression.type={job.compression}",
        f"batch.size={BATCH_SIZE}",
        f"buffer.memory={BUFFER_MEMORY}",
        f"max.request.size={MAX_REQUEST_SIZE}",
        f"linger.ms={linger_ms}",
        f"max.in.flight.requests.per.connection={MAX_IN_FLIGHT}",
    )
    with tempfile.TemporaryDirectory() as folder:
        payloads = Path(folder) / "payloads"
        payloads.write_bytes(b"\n".join(job.distinct()))
        # fmt: off
        command = java_command(
            "org.apache.kafka.tools.ProducerPerformance",
            "--bootstrap-server", job.bootstrap, "--topic", job.topic, "--num-records", str(job.records),
            "--throughput", str(throughput), "--payload-file", str(payloads),
            *(word for one in properties for word in ("--command-property", one)),
        )
        # fmt: on
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ProducerPerformance ended with code {done.returncode}:\n{last_lines(done.stderr)}")
    return parse(done.stdout)


def parse(output: str) -> Report:
    """Read the last line of figures, that of the whole run; raise ValueError if there is none."""
    for line in reversed(output.splitlines()):
        if found := _FIGURES.search(line):
            rate = float(found["rate"].replace(",", ""))
            return Report(int(found["records"]), rate, float(found["p50"]), float(found["p99"]))
    raise ValueError(f"no figures in what ProducerPerformance printed:\n{last_lines(output)}")
