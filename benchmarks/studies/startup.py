"""Startup: the processor time of a process that imports a client and ends, beside that of a bare Python."""

from __future__ import annotations

import resource
import subprocess
import sys
from statistics import median
from typing import Final

from ..measuring.stopwatch import cpu_seconds

TITLE: Final = (
    "Startup: ms of processor time (median / least) and modules of a process that does this and ends, after the first "
    "one, which compiles what it imports"
)

_STATEMENTS: Final = (
    *("pass", "import asyncio"),
    *("import aiokc", "from aiokc import TopicPartition", "from aiokc import Client", "from aiokc import Consumer"),
    *("from aiokafka import AIOKafkaConsumer", "from kafka import KafkaConsumer"),
    "from confluent_kafka import Consumer",
    # the command: help and a usage error, within 100 ms of a bare Python; and a command that makes a config
    "from aiokc.cli.main import main; main(['--help'])",
    "from aiokc.cli.main import main; main(['cat', '--help'])",
    "from aiokc.cli.main import main; main(['cat', '--nope'])",
    "from aiokc.cli.main import main; main(['config', 'show'])",
)
_AGAIN: Final = 7  # processes a round
_SECONDS: Final = 60


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    """Measure each statement in turn, and all of them again. No broker is needed."""
    spent: dict[str, list[float]] = {statement: [] for statement in _STATEMENTS}
    failures: dict[str, str] = {}
    modules = {statement: _modules(statement) for statement in _STATEMENTS}
    for _ in range(rounds * _AGAIN):
        for statement in _STATEMENTS:
            if modules[statement] is not None and statement not in failures:
                try:
                    spent[statement].append(_cpu_seconds(statement))
                except subprocess.TimeoutExpired:
                    failures[statement] = f"failed: not done after {_SECONDS} s"
    return [_row(statement, spent[statement], modules[statement], failures.get(statement)) for statement in _STATEMENTS]


def _row(statement: str, spent: list[float], modules: int | None, failure: str | None) -> dict[str, str]:
    if failure is not None:
        return {"process": statement, "CPU ms": failure}
    if modules is None:
        return {"process": statement, "CPU ms": "not installed"}
    times = f"{median(spent) * 1e3:.0f} / {min(spent) * 1e3:.0f}"
    return {"process": statement, "CPU ms": times, "modules": str(modules)}


def _modules(statement: str) -> int | None:
    """How many modules are loaded after the statement; None where what it imports is not installed."""
    ran = _python(f"{statement}\nimport sys\nprint(len(sys.modules))")
    return int(ran.stdout.split()[-1]) if ran.returncode == 0 else None


def _cpu_seconds(statement: str) -> float:
    before = cpu_seconds(resource.RUSAGE_CHILDREN)  # in microseconds: os.times() counts in ticks of 10 ms
    _python(statement)
    return cpu_seconds(resource.RUSAGE_CHILDREN) - before


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=_SECONDS)
