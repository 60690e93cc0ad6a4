from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.report.results import Results
from benchmarks.report.table import render_studies
from benchmarks.studies import Study, StudyFailed, latency, measured, observing, render
from benchmarks.studies import scale as scale_study

from ..examples import measurement, results

STUDY = Study("latency", "How long", [{"client": "aiokc", "p50 ms": "1.00"}, {"client": "other"}])


def test_a_study_is_a_table_and_what_is_missing_a_dash() -> None:
    assert render(STUDY).splitlines()[2:] == [
        "| client | p50 ms |",
        "| - | - |",
        "| aiokc | 1.00 |",
        "| other | - |",
    ]
    assert render_studies([STUDY]).startswith("\n\nHow long\n\n| client")
    assert render_studies([]) == ""


def test_studies_are_in_the_results(tmp_path: Path) -> None:
    found = results(aiokc=[measurement()])
    with_study = Results(found.environment, found.settings, found.cases, found.outcomes, [STUDY])
    with_study.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == with_study


def test_a_process_that_fails_gives_its_reason() -> None:
    with pytest.raises(StudyFailed, match="KeyError: 'bootstrap'"):
        measured("latency", client="aiokc")


def test_latencies_are_counted_after_the_warm_up() -> None:
    latencies = latency.Latencies()
    for _ in range(1_000):
        latencies.add(b"%020d" % 0)
    for _ in range(5_000):
        assert not latencies.done
        latencies.add(b"%020d" % time.time_ns())
    assert latencies.done
    assert 0 <= latencies.figures()["p50"] <= latencies.figures()["p99"] < 1_000


def test_the_cost_of_observing_is_compared_within_each_process() -> None:
    """The second process ran on a machine that was twice as slow: that is no cost of observing."""
    found = {(mode, size): [0.1, 0.2] for mode in observing.MODES for size in (100, 1_000)}
    found["otel sampled", 100] = [0.11, 0.22]
    found["otel sampled: collecting", 100] = [8.0, 9.0]
    row = observing._row("otel sampled", found)
    assert row["vs nothing (100 B)"] == "+10.0 %"
    assert row["vs nothing (1,000 B)"] == "+0.0 %"
    assert row["one collection: CPU ms"] == "8.5"


def test_a_failed_size_is_a_row_with_its_reason() -> None:
    one = {"cpu": 0.2, "rate": 2.0, "idle": 0.1, "stall_p99": 1.0, "stall_max": 2.0}
    found = {1: [one], 1_000: [{**one, "cpu": 0.3}]}
    assert scale_study._row(1_000, found, {})["vs 1 partition"] == "1.50x"
    row = scale_study._row(10_000, found, {10_000: "failed: full"})
    assert row["CPU s per M records"] == "failed: full"
