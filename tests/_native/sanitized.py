"""The decoder in C, built in a copy of the library with AddressSanitizer, UBSan and a count of what ran."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Final

from tests.suite.child_process import run_to_end

ROOT: Final = Path(__file__).parent.parent.parent
FILES: Final = (
    "pyproject.toml",
    "tests/__init__.py",
    "tests/conftest.py",
    "tests/suite/__init__.py",
    "tests/suite/hang_guard.py",
    "tests/suite/peers/__init__.py",
    "tests/suite/peers/without_peers.py",
    "tests/suite/spark_releases.py",
    "tests/suite/unused_faults.py",
    "tests/suite/examples.py",
    "tests/test_record_contract.py",
    "tests/wire/golden.txt",
)

_SECONDS: Final = 1_800.0  # until a program hangs

_CHECKS: Final = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
_WARNINGS: Final = ("-std=c11", "-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror")


class Unavailable(Exception):
    """This machine cannot build it; the message says what is missing."""


class Sanitized:
    """A copy in ``folder``, with the extension that ``build`` makes. Raises Unavailable."""

    def __init__(self, folder: Path) -> None:
        self._gcc = shutil.which("gcc")
        if self._gcc is None:
            raise Unavailable("no gcc")
        named = run_to_end([self._gcc, "-print-file-name=libasan.so"], seconds=_SECONDS)
        # The run-time library that must be loaded before Python is.
        self._preload = Path(named.stdout.strip())
        if not self._preload.is_absolute():
            raise Unavailable(f"{self._gcc} comes without libasan")
        ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
        for part in ("aiokc", "tests/records", "tests/_native"):
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        for file in FILES:
            (folder / file).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / file, folder / file)
        self.folder = folder
        self.sources = folder / "aiokc/_native"

    def copied(self, folder: Path) -> Sanitized:
        """Return a copy of this copy, with all that was built."""
        another = copy(self)
        shutil.copytree(self.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        another.folder, another.sources = folder, folder / "aiokc/_native"
        return another

    def build(self, changed: str = "*.c") -> None:
        """Build the extension beside its sources. Compile those that ``changed`` matches: the others are compiled."""
        extension = self.sources / f"extension{sysconfig.get_config_var('EXT_SUFFIX')}"
        include = f"-isystem{sysconfig.get_path('include')}"
        counter = self.folder / "coverage.o"
        self._compile("-O2", "-c", str(self.folder / "tests/_native/coverage.c"), "-o", str(counter))
        traced = (*_CHECKS, "-fsanitize-coverage=trace-pc", include, "-c")
        with ThreadPoolExecutor() as together:
            again = self.sources.glob(changed)
            list(together.map(lambda file: self._compile(*traced, str(file), "-o", f"{file}.o"), again))
        objects = (*(f"{file}.o" for file in sorted(self.sources.glob("*.c"))), str(counter))
        self._compile(*_CHECKS, *objects, "-shared", "-o", str(extension))

    def _compile(self, *arguments: str) -> None:
        done = run_to_end([str(self._gcc), *_WARNINGS, "-fPIC", *arguments], seconds=_SECONDS)
        assert done.returncode == 0, done.stderr

    def run(self, *arguments: str, seconds: float = _SECONDS) -> subprocess.CompletedProcess[str]:
        """Run Python in the copy, with its extension, to its end, which comes within ``seconds``."""
        environment = {
            **os.environ,
            "AIOKC_NATIVE": "1",
            # Hypothesis needs a quarter of a minute in there to work out its tables of Unicode, and writes them here.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),
            "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter leaves much behind
            "LD_PRELOAD": str(self._preload.resolve()),
            # Every object by itself, or the sanitizer sees nothing but arenas. Python counts no blocks then: the tests
            # that count them, and find leaks so, have their say outside.
            "PYTHONMALLOC": "malloc",
        }
        return run_to_end([sys.executable, *arguments], seconds=seconds, cwd=self.folder, env=environment)

    def succeed(self, *arguments: str) -> str:
        """Run a module in the copy and return its output; fail where a sanitizer, or a test, finds something."""
        done = self.run("-m", *arguments)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout
