from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.environment import WARNING, environment, keep_bytecode, warning


@pytest.mark.parametrize(("load", "cpus"), [(0.0, 1), (0.5, 2), (2.0, 8)])
def test_a_quiet_machine_needs_no_warning(load: float, cpus: int) -> None:
    assert warning(load, cpus) is None


@pytest.mark.parametrize(("load", "cpus"), [(0.6, 2), (2.1, 8)])
def test_a_busy_one_does_in_words(load: float, cpus: int) -> None:
    told = warning(load, cpus)
    assert told is not None
    assert f"on average {load:.1f} other programs wanted its {cpus} CPUs" in told


def test_the_warning_is_the_first_line_of_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    assert next(iter(environment([], local_broker=True))) == WARNING
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 99.0, 99.0))
    assert WARNING not in environment([], local_broker=True)


def test_the_load_that_counts_is_that_from_before_anything_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    about = environment([], local_broker=True, load=(0.0, 0.1, 0.2))
    assert WARNING not in about
    assert about["load average before"] == "0.00 0.10 0.20"


def test_what_is_measured_keeps_its_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    keep_bytecode()
    asked = [sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"]
    assert subprocess.run(asked, capture_output=True, text=True, timeout=200, check=True).stdout == "False\n"
