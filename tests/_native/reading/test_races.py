"""The code of the two threads in C under ThreadSanitizer and AddressSanitizer, without Python: all orders of events."""

from __future__ import annotations

import re
from collections import Counter
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
# On a busy machine a rare order of events may not come about at once.
MOST_TRIES = 50


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("race", [READS, WORK], ids=lambda race: race.source)
def test_what_begins_ends_and_is_cancelled_in_every_order(
    tmp_path: Path, race: Race, sanitizer: str, is_long: bool
) -> None:
    source = Path(__file__).with_name(f"{Path(race.source).stem}_race.c")
    program = built(tmp_path, sanitizer, source, race.source)
    rounds = race.rounds_if_long if is_long else race.rounds
    seen = Counter[str]()
    for _ in range(MOST_TRIES):
        done = run_to_end([program, str(rounds)], seconds=SECONDS)
        assert done.returncode == 0, done.stderr
        seen.update({kind: int(count) for kind, count in re.findall(rf"({'|'.join(race.ends)}) (\d+)", done.stdout)})
        if all(seen[kind] for kind in race.ends):
            return
    pytest.fail(f"not all ends have happened: {seen}")
