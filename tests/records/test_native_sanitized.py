"""The decoder in C under AddressSanitizer and UBSan: its tests, and many mutated batches more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

CHECKS = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror"]
PYTEST = ["pytest", "-q", "-p", "no:cacheprovider"]


def compiler() -> str:
    """gcc, or a skip of this test that says why."""
    found = shutil.which("gcc")
    if found is None:
        pytest.skip("no gcc: the C decoder was not run under sanitizers")
    return found


def sanitizer(gcc: str) -> str:
    """The run-time library that must be loaded before Python is."""
    named = subprocess.run(
        [gcc, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(named).is_absolute():
        reason = f"{gcc} comes without libasan: the C decoder was not run under sanitizers"
        pytest.fail(reason) if IN_CI else pytest.skip(reason)
    return str(Path(named).resolve())


def copy(folder: Path) -> Path:
    """Copy the library and these tests, and return where the extension's sources are."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    for part in ("aiokc", "tests/records"):
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for file in (
        "pyproject.toml",
        "tests/__init__.py",
        "tests/conftest.py",
        "tests/examples.py",
        "tests/test_record_contract.py",
    ):
        shutil.copy(ROOT / file, folder / file)
    return folder / "aiokc/records"


def build(sources: Path, gcc: str, *flags: str) -> None:
    """Build the extension beside its sources."""
    extension = sources / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = f"-isystem{sysconfig.get_path('include')}"
    subprocess.run(
        [gcc, *WARNINGS, *CHECKS, *flags, "-shared", "-fPIC", include, *sources.glob("_*.c"), "-o", str(extension)],
        check=True,
    )


def run(folder: Path, preload: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the copy, with its extension."""
    environment = {
        **os.environ,
        "AIOKC_NATIVE": "1",
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter leaves much behind at its end; test_native counts blocks
        "LD_PRELOAD": preload,
        "PYTHONMALLOC": "malloc",  # every object by itself, or the sanitizer sees nothing but arenas
    }
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def succeed(folder: Path, preload: str, *arguments: str) -> str:
    """Run Python in the copy; fail with all that it said where a sanitizer, or a test, finds something."""
    done = run(folder, preload, "-m", *arguments)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("batches", [4_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_nothing_to_complain_about(tmp_path: Path, batches: int) -> None:
    gcc = compiler()
    preload = sanitizer(gcc)
    build(copy(tmp_path), gcc)
    names = ("records/test_native.py", "records/test_hostile_batch.py", "test_record_contract.py")
    summary = succeed(tmp_path, preload, *PYTEST, *(f"tests/{name}" for name in names))
    assert " passed" in summary
    assert "skipped" not in summary
    assert f"{batches} batches" in succeed(tmp_path, preload, "tests.records.native_fuzz", str(batches), "2")


@pytest.mark.timeout(120)
def test_a_decoder_that_reads_too_far_is_found_out(tmp_path: Path) -> None:
    """The sanitizers are at work, and see what lies behind a payload."""
    gcc = compiler()
    preload = sanitizer(gcc)
    sources = copy(tmp_path)
    layout = sources / "_layout.h"
    check = "if (cursor->at >= cursor->size)"
    text = layout.read_text()
    assert text.count(check) == 1
    layout.write_text(text.replace(check, "if (cursor->at >= cursor->size + 64)"))
    build(sources, gcc)
    done = run(tmp_path, preload, "-m", "tests.records.native_fuzz", "10000")
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr
