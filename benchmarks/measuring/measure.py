"""Running one worker process, and accepting its figures only if it has read each record once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from ..cases import Case
from ..clients import CLIENTS
from .job import Job, Measurement

_ROOT: Final = Path(__file__).resolve().parent.parent.parent


class MeasurementFailed(Exception):
    """A client ended without having read exactly the records of its topic; str() is the reason, on one line."""


def measure(job: Job, case: Case, *, timeout: float) -> Measurement:
    """Measure in a fresh process. Raises MeasurementFailed, also if it has not ended after ``timeout`` seconds."""
    command = [sys.executable, "-m", "benchmarks.measuring.worker", job.to_json()]
    worker = subprocess.Popen(
        command,
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(dict(CLIENTS[job.client].environment) if job.client in CLIENTS else {})},
        start_new_session=True,
    )
    try:
        output, errors = worker.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise MeasurementFailed(f"not done after {timeout:g} s") from None
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)  # its JVM too, if it has one
            worker.communicate()
    if worker.returncode != 0:
        reason = errors.strip().splitlines()[-1:] or ["it said nothing"]
        raise MeasurementFailed(f"ended with code {worker.returncode}: {reason[0]}")
    measurement = Measurement.from_json(output.splitlines()[-1])
    verify(measurement, case)
    return measurement


def verify(measurement: Measurement, case: Case) -> None:
    """Raise MeasurementFailed unless each record of the case was read once."""
    if measurement.records != case.records:
        raise MeasurementFailed(f"read {measurement.records} records instead of {case.records}")
    if abs(measurement.data_bytes - case.data_bytes) > measurement.data_bytes_error:
        raise MeasurementFailed(f"read {measurement.data_bytes} bytes of data instead of {case.data_bytes}")
    if measurement.offset_sum not in (None, case.offset_sum):
        raise MeasurementFailed("read some records twice and others never: the sum of the offsets is wrong")
