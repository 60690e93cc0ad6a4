"""Studies beside the table of throughput (startup, latency, stalls, memory, many partitions), each with its own table.

A module has TITLE, and ``run(bootstrap, rounds)``, which returns the rows, each a dict of its cells by column.
Every measurement is a process of its own: ``measured`` runs the module with a job as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NAMES: Final = (
    "startup",
    "latency",
    "stalls",
    "memory",
    "logins",
    "observing",
    "producing",
    "acknowledging",
    "stopped_broker",
    "scale",
)  # the last one leaves the broker with 10,000 partitions

_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Study:
    """The results of a study."""

    name: str
    title: str
    rows: Sequence[Mapping[str, str]]


class StudyFailed(Exception):
    """A process of a study failed; str() is the last line of its output."""


def run(name: str, bootstrap: str, rounds: int) -> Study:
    """Run one study. A measurement that fails has the reason in its row."""
    module = importlib.import_module(f".{name}", __package__)
    return Study(name, module.TITLE, module.run(bootstrap, rounds))


def measured(name: str, **job: Any) -> dict[str, float]:
    """Return what ``python -m benchmarks.studies.NAME JOB`` has measured. Raises StudyFailed.

    ``name`` may also be that of another module, in full.
    """
    module = name if "." in name else f"{__package__}.{name}"
    worker = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(job)],
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = worker.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise StudyFailed(f"not done after {_SECONDS} s") from None
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.communicate()
    if worker.returncode != 0:
        raise StudyFailed((errors.strip().splitlines() or ["it said nothing"])[-1])
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def render(study: Study) -> str:
    """Return the study as Markdown."""
    names = list(study.rows[0])
    lines = [study.title, "", f"| {' | '.join(names)} |", f"| {' | '.join('-' for _ in names)} |"]
    lines += [f"| {' | '.join(row.get(name, '-') for name in names)} |" for row in study.rows]
    return "\n".join(lines)
