"""A mutant's trial: the fast tests that cover it run in a process of their own until one of them fails."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from pathlib import Path
from typing import Final, NoReturn

import pytest

from .covering import Covering, CoveringTest
from .mutant import ROOT, Mutant
from .planting import Planted

# A wrong change can make a loop endless: its process gets no more memory than this, and no more time than the tests
# take on a busy machine. One test is cut short before.
_MEMORY: Final = 6 * 1024**3
_START_SECONDS: Final = 45.0
_SLOWNESS: Final = 4.0
_TEST_SECONDS: Final = 20
_LOOK_SECONDS: Final = 0.02
# pytest would load the modules of its plugins itself, to rewrite their assertions, and aiokc has such a plugin.
_OPTIONS: Final = ("-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-o", f"timeout={_TEST_SECONDS}")
_NOT_USED: Final = 77


class Outcome(Enum):
    """The outcomes of a trial."""

    FAILED = "a test failed"
    BROKEN = "what imports it is broken"
    HUNG = "the tests did not end"
    SURVIVED = "no test saw it"
    UNCOVERED = "no fast test calls it"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``by``: the test that failed or hung. ``tests``: how many were to run; ``left_out``: how many had no time."""

    mutant: Mutant
    outcome: Outcome
    seconds: float
    by: str = ""
    tests: int = 0
    left_out: int = 0

    @property
    def is_caught(self) -> bool:
        return self.outcome not in (Outcome.SURVIVED, Outcome.UNCOVERED)


def verdicts(
    mutants: Iterable[Mutant], covering: Covering, *, processes: int, seconds: float, shown: bool = False
) -> Iterator[Verdict]:
    """Yield the result for each mutant as it comes. Its tests take ``seconds`` at most: the quickest ones are taken."""
    waiting = list(mutants)[::-1]
    running: list[_Trial] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            while waiting or running:
                while waiting and len(running) < processes:
                    mutant = waiting.pop()
                    tests, left_out = _affordable(covering.of(mutant), seconds)
                    if tests:
                        running.append(_Trial(mutant, tests, left_out, Path(folder) / mutant.key, shown))
                    else:
                        yield Verdict(mutant, Outcome.UNCOVERED, 0.0)
                for trial in [*running]:
                    if (verdict := trial.verdict()) is not None:
                        running.remove(trial)
                        yield verdict
                time.sleep(_LOOK_SECONDS)
        finally:
            for trial in running:
                trial.end()


def _affordable(tests: list[CoveringTest], seconds: float) -> tuple[list[CoveringTest], int]:
    ends = accumulate(test.seconds for test in tests)
    taken = [test for test, end in zip(tests, ends, strict=True) if end <= seconds] or tests[:1]
    return taken, len(tests) - len(taken)


class _Trial:
    """One process. The output of its tests goes to a file, or (``shown``) to this process's output."""

    def __init__(self, mutant: Mutant, tests: list[CoveringTest], left_out: int, says: Path, shown: bool) -> None:
        self._mutant = mutant
        self._tests = len(tests)
        self._left_out = left_out
        self._says = says
        self._began = time.monotonic()
        self._until = self._began + _START_SECONDS + _SLOWNESS * sum(test.seconds for test in tests)
        sys.stdout.flush()
        self._process = os.fork()
        if not self._process:
            _be_tried(mutant, [test.name for test in tests], says, shown)

    def verdict(self) -> Verdict | None:
        """Return None while the tests run."""
        ended, status = os.waitpid(self._process, os.WNOHANG)
        if not ended and time.monotonic() < self._until:
            return None
        if not ended:
            outcome = Outcome.HUNG
        else:
            code = os.waitstatus_to_exitcode(status)
            if code == _NOT_USED:
                raise RuntimeError(f"the tests did not import the changed module: {self._mutant}")
            outcome = {0: Outcome.SURVIVED, 1: Outcome.FAILED, -signal.SIGKILL: Outcome.HUNG}.get(code, Outcome.BROKEN)
        self.end(ended=bool(ended))
        by = self._says.read_text() if self._says.is_file() else ""
        return Verdict(self._mutant, outcome, time.monotonic() - self._began, by, self._tests, self._left_out)

    def end(self, *, ended: bool = False) -> None:
        """End the process, and those that it started."""
        try:
            os.killpg(self._process, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all of it has ended
        if not ended:
            os.waitpid(self._process, 0)


def _be_tried(mutant: Mutant, tests: list[str], says: Path, shown: bool) -> NoReturn:
    """The life of the process. It ends with the exit code of pytest, whatever happens."""
    try:
        os.setsid()
        os.chdir(ROOT)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        if not shown:
            with open(f"{says}.log", "wb") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
        planted = Planted(mutant)
        planted.plant()
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        code = pytest.main([*_OPTIONS, *files], plugins=[_OnlyThese(tests, says)])
        if not planted.is_used:
            code = _NOT_USED
        sys.stdout.flush()
        os._exit(code)
    except BaseException:
        traceback.print_exc()  # where the caller watches
    finally:
        os._exit(2)


class _OnlyThese:
    """A plugin of pytest: runs these tests, in this order, and writes down the current one and the one that failed."""

    def __init__(self, tests: list[str], says: Path) -> None:
        self._places = {test: place for place, test in enumerate(tests)}
        self._says = says
        self._has_failed = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wanted = [item for item in items if item.nodeid in self._places]
        items[:] = sorted(wanted, key=lambda item: self._places[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if not self._has_failed:
            self._says.write_text(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed = self._has_failed or report.failed
