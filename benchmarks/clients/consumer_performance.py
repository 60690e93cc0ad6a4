"""Apache Kafka's own consumer, measured by its own tool ConsumerPerformance.

The tool can't assign partitions, so it joins a group. Its column fetch.time.ms includes neither the join nor the start
of the JVM. Processor time and memory are those of the whole JVM, with its start and just-in-time compilation.
"""

from __future__ import annotations

import resource
import subprocess
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from aiokc.testing.kafka.jars import java_command, last_lines

from ..measuring.job import (
    CHECK_CRCS,
    FETCH_MAX_BYTES,
    FETCH_MAX_WAIT_MS,
    FETCH_MIN_BYTES,
    MAX_PARTITION_FETCH_BYTES,
    SASL_MECHANISM,
    Job,
)
from ..measuring.stopwatch import Stopwatch, cpu_seconds, max_rss
from ..measuring.tally import Tally

_MEBIBYTE: Final = 1 << 20
# How long it waits for the first record, and for each next one. By default it gives up after 10 s, which the start of
# the JVM, TLS and the join can take on a busy machine.
_PATIENCE_MS: Final = 60_000
# data.consumed.in.MB has four decimals.
_ROUNDING_BYTES: Final = 53


@dataclass(frozen=True, slots=True)
class Report:
    """What ConsumerPerformance printed about its run."""

    records: int
    mebibytes: float
    fetch_seconds: float


def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    properties = (
        "enable.auto.commit=false",
        f"fetch.max.bytes={FETCH_MAX_BYTES}",
        f"fetch.min.bytes={FETCH_MIN_BYTES}",
        f"fetch.max.wait.ms={FETCH_MAX_WAIT_MS}",
        f"max.poll.records={job.max_records}",
        f"check.crcs={str(CHECK_CRCS).lower()}",
        *_security(job),
    )
    # fmt: off
    command = java_command(
        "org.apache.kafka.tools.ConsumerPerformance",
        "--bootstrap-server", job.bootstrap, "--topic", job.topic, "--num-records", str(job.records),
        "--fetch-size", str(MAX_PARTITION_FETCH_BYTES), "--timeout", str(_PATIENCE_MS),
        *(word for one in properties for word in ("--command-property", one)),  # it takes one of them at a time
    )
    # fmt: on
    cpu_before = cpu_seconds(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ConsumerPerformance ended with code {done.returncode}:\n{last_lines(done.stderr)}")
    report = parse(done.stdout)
    stopwatch.read(
        seconds=report.fetch_seconds,
        cpu_seconds=cpu_seconds(resource.RUSAGE_CHILDREN) - cpu_before,
        peak_rss=max_rss(resource.RUSAGE_CHILDREN),
    )
    data_bytes = round(report.mebibytes * _MEBIBYTE)
    return Tally(report.records, data_bytes, offset_sum=None, data_bytes_error=_ROUNDING_BYTES)


def _security(job: Job) -> list[str]:
    properties = [f"security.protocol={job.security_protocol}"]
    if job.tls:
        properties += ["ssl.truststore.type=PEM", f"ssl.truststore.location={job.ca}"]
    if job.sasl:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        login = f'{module} required username="{job.user}" password="{job.password}";'
        properties += [f"sasl.mechanism={SASL_MECHANISM}", f"sasl.jaas.config={login}"]
    return properties


def parse(output: str) -> Report:
    """Read the line of figures under the line of column names; raise ValueError if there is none."""
    lines = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
    for names, figures in pairwise(lines):
        if "fetch.time.ms" in names and len(figures) == len(names):
            row = dict(zip(names, figures, strict=True))
            return Report(
                records=int(row["data.consumed.in.nMsg"]),
                mebibytes=float(row["data.consumed.in.MB"]),
                fetch_seconds=int(row["fetch.time.ms"]) / 1e3,
            )
    raise ValueError(f"no figures in what ConsumerPerformance printed:\n{last_lines(output)}")
