"""The code of the two threads in C under ThreadSanitizer and AddressSanitizer, without Python: all orders of events."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests._native.reading.racing import SANITIZERS, SECONDS, built
from tests.suite.child_process import run_to_end


class Race(NamedTuple):
    """A program in C beside this file, the source that it races with, how often, and what has to happen in it."""

    source: str
    rounds: int
    ends: tuple[str, ...]
    rounds_if_long: int


READS = Race("socket_reads.c", 2, ("complete", "cut off", "cancelled", "dropped"), 100)
WORK = Race("background_work.c", 2_000, ("by the thread", "here", "cancelled", "late"), 20_000)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("race", [READS, WORK], ids=lambda race: race.source)
def test_what_begins_ends_and_is_cancelled_in_every_order(
    tmp_path: Path, race: Race, sanitizer: str, is_long: bool
) -> None:
    program = Path(__file__).with_name(f"{Path(race.source).stem}_race.c")
    rounds = race.rounds_if_long if is_long else race.rounds
    done = run_to_end([built(tmp_path, sanitizer, program, race.source), str(rounds)], seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    ends = {kind: int(count) for kind, count in re.findall(rf"({'|'.join(race.ends)}) (\d+)", done.stdout)}
    assert ends.keys() == set(race.ends)
    assert min(ends.values()) > 0
