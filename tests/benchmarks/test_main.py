from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aiokc.testing.kafka import LocalKafka
from benchmarks import __main__ as benchmarks
from benchmarks.__main__ import main
from benchmarks.report.results import Results
from tests.suite.child_process import run_to_end

from .examples import failed_study, measurement, results

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.kafka
def test_a_quick_run_of_two_clients(kafka: LocalKafka, tmp_path: Path) -> None:
    arguments = ("--quick", "--clients", "aiokafka,confluent", "--records", "20000", "--output", str(tmp_path))
    done = run_to_end(
        [sys.executable, "-m", "benchmarks", *arguments],
        seconds=200,
        cwd=ROOT,
        env={**os.environ, "AIOKC_BOOTSTRAP": kafka.bootstrap},
    )
    assert done.returncode == 0, done.stderr
    assert "round 1 of 1, 100B-none-value, confluent consume: " in done.stderr
    assert "| 100B-none-value | aiokafka getmany" in done.stdout
    assert (tmp_path / "results.svg").read_text().startswith("<svg")
    found = Results.read(tmp_path / "results.json")
    measured = [outcome.measurement for outcome in found.outcomes if outcome.measurement]
    assert [each.records for each in measured] == [20_000] * 4
    assert [each.stalls is not None for each in measured] == [True, False] * 2


def test_an_earlier_run_is_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    results(aiokc=[measurement()]).write(path)
    assert main(["--read", str(path)]) == 0
    assert "| 100B-none | aiokc getmany" in capsys.readouterr().out


@pytest.mark.parametrize(
    "found",
    [
        results(aiokc=["not done after 300 s"]),
        replace(results(aiokc=[measurement()]), studies=[failed_study("latency", client="aiokc getmany")]),
    ],
    ids=["case", "study"],
)
def test_a_failed_row_is_in_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str], found: Results) -> None:
    path = tmp_path / "results.json"
    found.write(path)
    assert main(["--read", str(path)]) == 1
    assert "not done after 300 s" in capsys.readouterr().out


def test_a_run_is_stored_before_anything_is_said_about_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of measurements must not be lost to figures that the table cannot show."""
    found = results(aiokc=[measurement()])

    def stumble(_: Results) -> str:
        raise ValueError("could not convert string to float")

    monkeypatch.setattr(benchmarks, "run", lambda plan: found)
    monkeypatch.setattr(benchmarks, "render", stumble)
    with pytest.raises(ValueError, match="could not convert"):
        main(["--output", str(tmp_path)])
    assert Results.read(tmp_path / "results.json") == found


def test_a_run_of_studies_alone_is_shown_and_not_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    replace(results(aiokc=[measurement()] * 3), cases=[], outcomes=[]).write(path)
    assert main(["--read", str(path)]) == 0
    assert "| client" not in capsys.readouterr().out
    assert main(["--read", str(path), "--write-readme"]) == 1
    assert "studies alone are no whole run" in capsys.readouterr().err


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--clients", "aiokc,kcat"])
    assert "kcat: not one of aiokc, " in capsys.readouterr().err
