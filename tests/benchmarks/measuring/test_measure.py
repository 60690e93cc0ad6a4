from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.measuring.job import Job, Measurement, Stalls
from benchmarks.measuring.measure import MeasurementFailed, measure, verify

from ..examples import CASE, measurement


def test_a_complete_read_is_believed() -> None:
    verify(measurement(), CASE)
    verify(replace(measurement(), offset_sum=None, data_bytes=CASE.data_bytes + 40, data_bytes_error=53), CASE)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (replace(measurement(), records=999), "999 records instead of 1000"),
        (replace(measurement(), records=1001), "1001 records instead of 1000"),
        (replace(measurement(), data_bytes=CASE.data_bytes - 1), "107999 bytes of data instead of 108000"),
        (replace(measurement(), data_bytes=CASE.data_bytes + 54, data_bytes_error=53), "bytes of data"),
        (replace(measurement(), offset_sum=CASE.offset_sum + 1), "twice"),
    ],
)
def test_any_other_read_is_not(found: Measurement, reason: str) -> None:
    with pytest.raises(MeasurementFailed, match=reason):
        verify(found, CASE)


def test_jobs_and_measurements_survive_the_way() -> None:
    job = Job("aiokc", "127.0.0.1:9092", "topic", 6, 1000, 500, cpu=1)
    assert Job.from_json(job.to_json()) == job
    for found in (measurement(), measurement(stalls=Stalls(p50=1, p99=2, max=3))):
        assert Measurement.from_json(found.to_json()) == found


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_worker_that_fails_gives_its_reason() -> None:
    job = Job("no such client", "127.0.0.1:1", CASE.topic, 6, CASE.records, 500)
    with pytest.raises(MeasurementFailed, match="ended with code 1: KeyError: 'no such client'"):
        measure(job, CASE, timeout=30)


def test_a_worker_that_does_not_end_is_ended(silent_port: int) -> None:
    job = Job("confluent", f"127.0.0.1:{silent_port}", CASE.topic, 6, CASE.records, 500)
    with pytest.raises(MeasurementFailed, match=r"not done after 0\.5 s"):
        measure(job, CASE, timeout=0.5)
