"""The thread's own code in C under ThreadSanitizer and AddressSanitizer, without Python: work in every order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests._native.reading.racing import SANITIZERS, SECONDS, built
from tests.suite.child_process import run_to_end

RACE = Path(__file__).parent / "background_work_race.c"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [2_000, pytest.param(20_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_work_that_ends_and_is_cancelled_in_every_order(tmp_path: Path, sanitizer: str, rounds: int) -> None:
    done = run_to_end([built(tmp_path, sanitizer, RACE, "background_work.c"), str(rounds)], seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    ends = {kind: int(count) for kind, count in re.findall(r"(by the thread|here|cancelled|late) (\d+)", done.stdout)}
    assert len(ends) == 4
    assert min(ends.values()) > 0
