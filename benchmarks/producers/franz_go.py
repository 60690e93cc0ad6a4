"""franz-go: runs the program of benchmarks/go, which produces where the job says how."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from typing import Any

from ..clients.franz_go import PROGRAM
from ..measuring.stopwatch import Stopwatch
from .job import LINGER_MS, PRODUCE_SETTINGS, ProduceJob


def produce(job: ProduceJob, stopwatch: Stopwatch) -> None:
    found = run(job, rate=0, linger_ms=LINGER_MS)
    stopwatch.read(seconds=found["seconds"], cpu_seconds=found["cpu_seconds"], peak_rss=found["peak_rss"])


def run(job: ProduceJob, *, rate: int, linger_ms: int, warm_up: int = 0) -> dict[str, Any]:
    """Run the program, at ``rate`` records per second; 0: as many as it can. The first ``warm_up`` do not count."""
    settings = {**PRODUCE_SETTINGS, "linger_ms": linger_ms}
    values = [value.decode() for value in job.distinct()]
    task = json.dumps({**asdict(job), "warm_up": warm_up, "produce": {**settings, "rate": rate, "values": values}})
    done = subprocess.run([str(PROGRAM), "-"], input=task, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"franz-go: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
