"""Running one worker process, and accepting its figures only if it has read each record once."""

from __future__ import annotations

from ..cases import Case
from ..clients import CLIENTS
from .job import Job, Measurement
from .process import ProcessFailed, last_line


class MeasurementFailed(Exception):
    """A client ended without having read exactly the records of its topic; str() is the reason, on one line."""


def measure(job: Job, case: Case, *, timeout: float) -> Measurement:
    """Measure in a fresh process. Raises MeasurementFailed, also if it has not ended after ``timeout`` seconds."""
    environment = dict(CLIENTS[job.client].environment) if job.client in CLIENTS else None
    try:
        said = last_line("benchmarks.measuring.worker", job.to_json(), timeout=timeout, environment=environment)
        measurement = Measurement.from_json(said)
    except ProcessFailed as error:
        raise MeasurementFailed(str(error)) from None
    except (ValueError, TypeError, KeyError):
        raise MeasurementFailed(f"said {said!r} where its figures belong") from None
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
