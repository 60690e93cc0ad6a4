"""Programs that have to end: their output, their time, and what they leave behind."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pytest

from tests.suite.child_process import run_bytes, run_to_end

# It starts a process that would outlive it, with the same stdout, and prints its number.
PARENT = "sleep 100 & echo $!"


def is_gone(pid: int) -> bool:
    """Return whether no such process runs any more; a dead one may still be in the table."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False


def test_what_it_said_and_how_it_ended(tmp_path: Path) -> None:
    program = "import os, sys; print(os.getcwd(), os.environ['A'], input()); sys.stderr.write('oh'); sys.exit(3)"
    done = run_to_end([sys.executable, "-c", program], seconds=50, cwd=tmp_path, env={"A": "b"}, given="c\n")
    assert (done.stdout, done.stderr, done.returncode) == (f"{tmp_path} b c\n", "oh", 3)
    assert run_bytes(["printf", r"\377"], seconds=50).stdout == b"\xff"


def test_no_caller_waits_for_processes_that_it_leaves_behind() -> None:
    done = run_to_end(["sh", "-c", PARENT], seconds=50)
    assert done.returncode == 0
    assert is_gone(int(done.stdout))


def test_one_that_does_not_end_is_ended_with_all_that_it_started() -> None:
    for seconds in (3, 30):  # within the first ones a busy machine may not have started what prints the number
        with pytest.raises(AssertionError, match=rf"not ended after {seconds} s: sh -c ") as found:
            run_to_end(["sh", "-c", f"{PARENT}; wait"], seconds=seconds)
        if re.search(r"\n\d+\n", str(found.value)):
            break
    assert is_gone(int(str(found.value).splitlines()[-1]))
