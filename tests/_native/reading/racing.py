"""C code of threads, without Python, built with a program that drives it hard, under a sanitizer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.suite.child_process import run_to_end

SANITIZERS: Final = ("thread", "address,undefined")
SECONDS: Final = 500.0

_NATIVE: Final = Path(__file__).parents[3] / "aiokc" / "_native"
_FLAGS: Final = ("-std=c11", "-g", "-O1", "-pthread", "-fno-sanitize-recover=all")
_WARNINGS: Final = ("-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror")


def built(folder: Path, sanitizer: str, race: Path, source: str) -> Path:
    """Return the program of ``race`` and one source of the extension, or skip this test and say why."""
    gcc = shutil.which("gcc")
    library = {"thread": "libtsan.so", "address,undefined": "libasan.so"}[sanitizer]
    if gcc is None or not Path(run_to_end([gcc, f"-print-file-name={library}"], seconds=SECONDS).stdout).is_absolute():
        reason = f"no gcc with {library}"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(reason)
        pytest.skip(reason)
    program = folder / "race"
    command: list[str | Path] = [
        gcc,
        *_FLAGS,
        *_WARNINGS,
        f"-fsanitize={sanitizer}",
        race,
        _NATIVE / source,
        "-o",
        program,
    ]
    done = run_to_end(command, seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    return program
