"""franz-go: runs a program in Go (benchmarks/go), if there is a Go toolchain."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Final

from ..measuring.job import FETCH_SETTINGS, Job
from ..measuring.stopwatch import Stopwatch
from ..measuring.tally import Tally

_SOURCE: Final = Path(__file__).resolve().parent.parent / "go"
PROGRAM: Final = _SOURCE.parent / ".build" / "franz_go"
_BUILD_SECONDS: Final = 300


def prepare() -> str | None:
    """Build the program; return why this is impossible. Its packages come through Go's module proxy, once."""
    go = find_go()
    if go is None:
        return "no Go toolchain is here (https://go.dev/dl)"
    try:
        done = subprocess.run(
            [go, "build", "-o", str(PROGRAM), "."],
            cwd=_SOURCE,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"go build was not done after {_BUILD_SECONDS} s"
    return None if done.returncode == 0 else f"go build failed: {done.stderr.strip().splitlines()[-1]}"


def find_go() -> str | None:
    """Return the go command, on PATH or where its installer puts it."""
    return shutil.which("go") or shutil.which("go", path=os.pathsep.join(("/usr/local/go/bin", "/usr/lib/go/bin")))


def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    task = json.dumps({**asdict(job), "fetch": FETCH_SETTINGS})
    done = subprocess.run([str(PROGRAM), task], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"franz-go: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    stopwatch.read(seconds=found["seconds"], cpu_seconds=found["cpu_seconds"], peak_rss=found["peak_rss"])
    return Tally(found["records"], found["data_bytes"], found["offset_sum"])
