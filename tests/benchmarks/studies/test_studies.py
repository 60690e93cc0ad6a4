from __future__ import annotations

import asyncio
import importlib
import subprocess
import time
from pathlib import Path

import pytest

import aiokc
from aiokc.testing.kafka import LocalKafka
from benchmarks import studies
from benchmarks.report.results import Results
from benchmarks.report.table import render_studies
from benchmarks.studies import Study, StudyFailed, latency, measured, observing, render, stalls, startup, stopped_broker
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


def test_a_first_row_that_failed_hides_no_column() -> None:
    failed = {"client": "aiokc", "p50 ms": "failed: no broker"}
    table = render(Study("latency", "How long", [failed, {"client": "other", "p50 ms": "1.00", "p99 ms": "2.00"}]))
    assert table.splitlines()[2:] == [
        "| client | p50 ms | p99 ms |",
        "| - | - | - |",
        "| aiokc | failed: no broker | - |",
        "| other | 1.00 | 2.00 |",
    ]


def test_studies_are_in_the_results(tmp_path: Path) -> None:
    found = results(aiokc=[measurement()])
    with_study = Results(found.environment, found.settings, found.cases, found.outcomes, [STUDY])
    with_study.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == with_study


def test_a_process_that_fails_gives_its_reason() -> None:
    with pytest.raises(StudyFailed, match="KeyError: 'bootstrap'"):
        measured("latency", client="aiokc")


@pytest.mark.parametrize("where", ["run", "import_module"])
def test_a_study_that_raises_is_one_row(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Others were measured before it, for an hour."""

    def stumble(*_: object) -> None:
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(*((importlib, where) if where == "import_module" else (latency, where)), stumble)
    study = studies.run("latency", "localhost:1", 1)
    assert study.failed
    (row,) = study.rows
    assert row["figures"].startswith("failed: TimeoutExpired: Command 'python' timed out")


def test_a_statement_that_does_not_end_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def python(statement: str) -> subprocess.CompletedProcess[str]:
        if statement == "import asyncio":
            raise subprocess.TimeoutExpired("python", 60)
        return subprocess.CompletedProcess([], 0, "50", "")

    monkeypatch.setattr(startup, "_python", python)
    rows = {row["process"]: row for row in startup.run("", 1)}
    assert rows["import asyncio"] == {"process": "import asyncio", "CPU ms": "failed: not done after 60 s"}
    assert rows["pass"]["modules"] == "50"


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


def test_nothing_is_compared_with_a_partition_that_failed() -> None:
    one = {"cpu": 0.2, "rate": 2.0, "idle": 0.1, "stall_p99": 1.0, "stall_max": 2.0}
    row = scale_study._row(1_000, {1: [one], 1_000: [one]}, {1: "failed: not done after 300 s"})
    assert row["vs 1 partition"] == "-"


def test_a_broker_that_is_given_is_not_the_one_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no process of it here: the study starts a broker of its own, or says why it cannot."""
    monkeypatch.setenv("AIOKC_BOOTSTRAP", "localhost:1")
    monkeypatch.setattr(stopped_broker, "missing", lambda _: None)
    monkeypatch.setattr(LocalKafka, "start", lambda kafka: kafka.bootstrap)  # fails where no broker was given
    monkeypatch.setattr(LocalKafka, "stop", lambda _: None)
    (row,) = stopped_broker.run("localhost:1", 1)
    assert row["memory MB"].startswith("failed: the local Kafka is not started")


@pytest.mark.parametrize("name", ["logins", "stopped_broker"])
def test_a_study_whose_broker_needs_java_is_left_out_without_java(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is not measured, which is no failure, as with Java's tools: the broker of the run may be elsewhere."""
    monkeypatch.setattr(f"benchmarks.studies.{name}.missing", lambda _: "no java on PATH: install Java 17")
    study = studies.run(name, "localhost:1", 1)
    assert not study.failed
    assert study.left_out
    (row,) = study.rows
    assert "not measured: no java on PATH: install Java 17" in row.values()


def test_a_stopped_broker_is_left_out_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stopped_broker, "missing", lambda _: None)
    monkeypatch.setattr(stopped_broker, "Path", lambda _: tmp_path / "none")
    study = studies.run("stopped_broker", "localhost:1", 1)
    assert not study.failed
    (row,) = study.rows
    assert row["memory MB"].startswith("not measured: how much memory")


async def test_the_reader_of_stalls_looks_at_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of aiokc is made when it is read: who only counts them measures nothing of that."""
    monkeypatch.setattr(stalls, "_RECORDS", 40)
    monkeypatch.setattr(stalls, "_AHEAD_SECONDS", 0.0)
    looked_at = []

    class Record:
        @property
        def value(self) -> bytes:
            looked_at.append(self)
            return bytes(100)

    class Reader:
        def __init__(self, **_: object) -> None: ...
        async def __aenter__(self) -> Reader:
            return self

        async def __aexit__(self, *_: object) -> None: ...
        def assign(self, _: object) -> None: ...
        async def getmany(self, **_: object) -> dict[int, list[Record]]:
            await asyncio.sleep(0.006)  # longer than a tick of the stopwatch
            return {0: [Record()], 1: [Record()] * 11}

    monkeypatch.setattr(aiokc, "Consumer", Reader)
    figures = await stalls.main({"client": "aiokc", "bootstrap": "localhost:1"})
    assert figures.keys() == {"p50", "p99", "max"}
    assert len(looked_at) == 12 * 4  # one call before the clock starts, and then until nine tenths are there
