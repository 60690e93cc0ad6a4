"""Which of the fast tests call which function: noted once, and kept as long as neither tests nor code change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from . import tracing
from .mutant import ROOT, Mutant

#: The tests that are run, except those that need a real Kafka, or Spark, or a long time.
TESTED_BY: Final = ("tests/core", "tests/client", "tests/net", "tests/scenarios", "tests/simulation", "tests/spark")
FAST: Final = "not long and not kafka and not spark"
# A test that takes longer than this is not a fast one.
_SLOWEST: Final = 3.0
_KEPT: Final = ROOT / ".mutants" / "calls.json"
_CODE: Final = ("aiokc", "spark_source", "pyspark_aiokc")
_PROCESSES: Final = max(1, min(4, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class CoveringTest:
    """``name`` is pytest's; ``seconds`` is the time with every call noted: without that it takes less."""

    name: str
    seconds: float
    calls: frozenset[str]


class Covering:
    """Which functions each test calls."""

    def __init__(self, tests: Iterable[CoveringTest]) -> None:
        self._tests = [test for test in tests if test.seconds <= _SLOWEST]

    @cached_property
    def _by_function(self) -> dict[str, list[CoveringTest]]:
        found: dict[str, list[CoveringTest]] = defaultdict(list)
        for test in self._tests:
            for function in test.calls:
                found[function].append(test)
        return found

    def of(self, mutant: Mutant) -> list[CoveringTest]:
        """Return the tests that call the function; for code outside of functions, those that use the class, or the
        module.

        First come tests whose file is named like the module: the others use it only by the way. Then the quickest.
        """
        found: set[CoveringTest] = set()
        for of in (f"{mutant.path}:{mutant.function}", f"{mutant.path}:{mutant.function}.", f"{mutant.path}:"):
            found = found or {test for function in self._starting(of) for test in self._by_function[function]}
            if mutant.is_in_function:
                break
        words = set(_words(mutant.path))
        return sorted(found, key=lambda test: (words.isdisjoint(_words(test.name)), test.seconds, test.name))

    def _starting(self, of: str) -> list[str]:
        if of[-1] in ".:":
            return [function for function in self._by_function if function.startswith(of)]
        return [of] if of in self._by_function else []


def _words(path: str) -> list[str]:
    """Return the words of a file's name that say what it is about."""
    name = path.partition("::")[0].rpartition("/")[2].removesuffix(".py").removeprefix("test_")
    return [word for word in name.split("_") if len(word) > 2]


def covering(folders: Iterable[str] = TESTED_BY) -> Covering:
    """Return all fast tests of these folders (or files) that pass. New or changed ones are run now."""
    now = {file: digest for folder in folders for file, digest in _digests(folder)}
    kept: dict[str, Any] = json.loads(_KEPT.read_text()) if _KEPT.is_file() else {}
    known = {file: entry for file, entry in kept.items() if now.get(file) == entry["digest"]}
    if missing := sorted(now.keys() - known.keys()):
        print(f"noting which functions the tests of {len(missing)} files call: once, some minutes", flush=True)
        noted = _noted(missing)
        known |= {file: {"digest": now[file], "tests": noted.get(file, {})} for file in missing}
        _keep(kept | known)
    return Covering(
        CoveringTest(name, test["seconds"], frozenset(test["calls"]))
        for entry in known.values()
        for name, test in entry["tests"].items()
    )


def _keep(entries: Mapping[str, Any]) -> None:
    """In one step: another process may read it."""
    _KEPT.parent.mkdir(exist_ok=True)
    there = {file: entry for file, entry in entries.items() if (ROOT / file).is_file()}
    unfinished = _KEPT.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(there))
    unfinished.replace(_KEPT)


def _digests(folder: str) -> Iterable[tuple[str, str]]:
    """Return each file of tests with a key that changes with it, with what the tests share, and with the code."""
    shared = sha256(sys.version.encode())
    for path in sorted(path for top in (*_CODE, "tests") for path in (ROOT / top).rglob("*.py")):
        if not path.name.startswith("test_") and path.parent != Path(__file__).parent:
            shared.update(path.read_bytes())
    named = ROOT / folder
    for path in [named] if named.is_file() else sorted(named.rglob("test_*.py")):
        yield path.relative_to(ROOT).as_posix(), sha256(shared.digest() + path.read_bytes()).hexdigest()


def _noted(files: list[str]) -> dict[str, dict[str, Any]]:
    """Return the tests of each file. The files are divided among several processes."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder:
        parts = [files[first::_PROCESSES] for first in range(_PROCESSES)]
        outcomes = [Path(folder) / f"{number}.json" for number in range(_PROCESSES)]
        running = [_start(part, outcome) for part, outcome in zip(parts, outcomes, strict=True) if part]
        for process in running:
            process.wait()
        for outcome in outcomes[: len(running)]:
            if not outcome.is_file():
                raise SystemExit(f"the tests could not be run: see {outcome.with_suffix('.log')}")
            tests: Mapping[str, Any] = json.loads(outcome.read_text())
            for name, test in tests.items():
                found[name.partition("::")[0]][name] = test
    return found


def _start(files: list[str], outcome: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", "-q", "-m", FAST, "-p", tracing.__name__, "-p", "no:cacheprovider"]
    with outcome.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            [*command, *files],
            cwd=ROOT,
            env={**os.environ, tracing.WRITE_TO: str(outcome)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
