"""The thread's own code in C under ThreadSanitizer and AddressSanitizer, without Python: reads in every order."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.suite.child_process import run_to_end

FOLDER: Final = Path(__file__).parent
SOURCE: Final = FOLDER.parents[2] / "aiokc" / "_native" / "socket_reads.c"
FLAGS: Final = ("-std=c11", "-g", "-O1", "-pthread", "-fno-sanitize-recover=all")
WARNINGS: Final = ("-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror")
SECONDS: Final = 500.0


def built(folder: Path, sanitizer: str) -> Path:
    """The program, or a skip of this test that says why."""
    gcc = shutil.which("gcc")
    library = {"thread": "libtsan.so", "address,undefined": "libasan.so"}[sanitizer]
    if gcc is None or not Path(run_to_end([gcc, f"-print-file-name={library}"], seconds=SECONDS).stdout).is_absolute():
        reason = f"no gcc with {library}"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(reason)
        pytest.skip(reason)
    program, race = folder / "race", FOLDER / "socket_reads_race.c"
    done = run_to_end([gcc, *FLAGS, *WARNINGS, f"-fsanitize={sanitizer}", race, SOURCE, "-o", program], seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_reads_that_end_and_are_cancelled_in_every_order(tmp_path: Path, sanitizer: str, rounds: int) -> None:
    done = run_to_end([built(tmp_path, sanitizer), str(rounds)], seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    ends = {kind: int(count) for kind, count in re.findall(r"(complete|cut off|cancelled|dropped) (\d+)", done.stdout)}
    assert len(ends) == 4
    assert min(ends.values()) > 0
